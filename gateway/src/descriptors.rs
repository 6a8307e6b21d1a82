//! File descriptors: shells and service managers hand out few by default and allow many.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside connections: the store's files, listeners, side connections.
const RESERVE: usize = 256;

/// Raises this process's limit to what it may have, and warns if that is not enough for
/// `connections`.
pub(crate) fn raise_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let descriptors = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of file descriptors");
            limit.current
        }
    };
    let needed = u64::try_from(connections + RESERVE).unwrap_or(u64::MAX);
    if let Some(allowed) = descriptors.filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "too few file descriptors for the configured connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        raise_limit(1);
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
