//! Where in the file a mistake is: the line, and the key with its table.

/// Line and key at a byte offset of a TOML text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Position {
    /// From 1.
    pub(crate) line: usize,
    /// Dotted, with its table: `s3.listen.address`. Empty if there is none on the line.
    pub(crate) key: String,
}

impl Position {
    /// The position of `offset`; offsets beyond the end count as the end.
    pub(crate) fn at(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let (left, right) = line.split_at(before.len() - line_start);
        let table = text[..line_start]
            .lines()
            .filter_map(table_name)
            .next_back();
        let parts = [table_name(line).or(table), key(left, right)];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        Self {
            line: before.matches('\n').count() + 1,
            key: parts.join("."),
        }
    }
}

/// The key that the place between `left` and `right` belongs to: one that starts there, or the last
/// one before it.
fn key<'a>(left: &'a str, right: &'a str) -> Option<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = right.find(|c| !is_part(c)).unwrap_or(right.len());
    if right[end..].trim_start().starts_with('=') {
        return Some(&right[..end]);
    }
    let (before, _) = left.rsplit_once('=')?;
    let before = before.trim_end();
    let start = before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    Some(&before[start..])
}

/// `s3.listen` of `[[s3.listen]]  # comment`.
fn table_name(line: &str) -> Option<&str> {
    let inner = line.trim_start().strip_prefix('[')?;
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    inner.split_once(']').map(|(name, _)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_becomes_a_line_and_a_key() {
        let text = "data_dir = \"x\"\n\n[[s3.listen]] # the public one\naddress = \"y\"\n\
                    tls = { key = \"k\",\n  colour = 3 }\n";
        let at = |needle: &str| {
            let position = Position::at(text, text.find(needle).unwrap());
            (position.line, position.key)
        };
        assert_eq!(at("data_dir"), (1, "data_dir".to_owned()));
        assert_eq!(at("\"x\""), (1, "data_dir".to_owned()));
        assert_eq!(at("[["), (3, "s3.listen".to_owned()));
        assert_eq!(at("\"y\""), (4, "s3.listen.address".to_owned()));
        assert_eq!(at("{ key"), (5, "s3.listen.tls".to_owned()));
        assert_eq!(at("\"k\""), (5, "s3.listen.key".to_owned()));
        assert_eq!(at("colour"), (6, "s3.listen.colour".to_owned()));
        assert_eq!(Position::at(text, usize::MAX).line, 7);
    }
}
