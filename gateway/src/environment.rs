//! The environment variables the program knows. Nothing else reads the environment.

use std::fmt;

use crate::error::{Exit, Failure};

/// Access key of the root user, for the first start.
pub(crate) const ROOT_ACCESS_KEY: &str = "PORTICO_ROOT_ACCESS_KEY";
/// Secret key of the root user, for the first start.
pub(crate) const ROOT_SECRET_KEY: &str = "PORTICO_ROOT_SECRET_KEY";

/// What the environment says.
#[derive(Default)]
pub(crate) struct Environment {
    /// Access key and secret key of the root user; used only if the store has no root user yet.
    pub(crate) root: Option<(String, String)>,
}

impl Environment {
    /// # Errors
    /// If only one of two variables that belong together is set, or one is not text.
    pub(crate) fn read() -> Result<Self, Failure> {
        let access = variable(ROOT_ACCESS_KEY)?;
        let secret = variable(ROOT_SECRET_KEY)?;
        match (access, secret) {
            (None, None) => Ok(Self { root: None }),
            (Some(access), Some(secret)) => Ok(Self {
                root: Some((access, secret)),
            }),
            (Some(_), None) => Err(half_set(ROOT_ACCESS_KEY, ROOT_SECRET_KEY)),
            (None, Some(_)) => Err(half_set(ROOT_SECRET_KEY, ROOT_ACCESS_KEY)),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("root", &self.root.as_ref().map(|(access, _)| access))
            .finish()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new(
            Exit::Usage,
            format!("the environment variable {name} is not valid UTF-8"),
        )),
    }
}

fn half_set(present: &str, missing: &str) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("the environment variable {present} is set but {missing} is not"),
    )
    .with_help("set both or none of them")
}
