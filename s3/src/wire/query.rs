//! The parameters of a query string, decoded, in the order sent.

use super::encoding::query_decode;
use crate::error::{Code, S3Error};
use crate::limits::QUERY_PARAMETERS_MAX;

/// Names and values; a parameter without `=` has an empty value.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes the raw text behind `?` apart.
    ///
    /// # Errors
    /// `InvalidURI` for more than `QUERY_PARAMETERS_MAX` parameters, broken escapes or text that
    /// is not UTF-8.
    pub fn parse(raw: &str) -> Result<Self, S3Error> {
        let mut parameters = Vec::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == QUERY_PARAMETERS_MAX {
                return Err(S3Error::new(Code::InvalidUri)
                    .with_message("The query string has too many parameters."));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((query_decode(name)?, query_decode(value)?));
        }
        Ok(Self(parameters))
    }

    /// The first value of a parameter.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(given, _)| *given == name)
            .map(|(_, value)| value)
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// All parameters in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A parameter that is a number.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is absent or a decimal number of `0..=max`. An empty value
    /// counts as absent; a greater number as `max` (S3 cuts `max-keys` down to 1,000).
    pub fn count(&self, name: &str, max: u32) -> Result<Option<u32>, S3Error> {
        let Some(value) = self.first(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.parse::<i64>() {
            Ok(number) if (0..=i64::from(i32::MAX)).contains(&number) => {
                Ok(Some(u32::try_from(number).unwrap_or(max).min(max)))
            }
            Ok(_) => Err(S3Error::invalid_argument(
                name,
                value,
                format!("Argument {name} must be an integer between 0 and 2147483647"),
            )),
            Err(_) => Err(S3Error::invalid_argument(
                name,
                value,
                format!("Provided {name} not an integer or within integer range"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once_in_order() {
        let query = Query::parse("a=1&b&&prefix=x%2By%20z+&a=2&=v").unwrap();
        assert_eq!(query.first("a"), Some("1"));
        assert_eq!(query.first("b"), Some(""));
        assert_eq!(query.first("prefix"), Some("x+y z "));
        assert_eq!(query.first("c"), None);
        assert_eq!(query.iter().count(), 5);
        assert_eq!(Query::parse("").unwrap(), Query::default());
        assert!(Query::parse(&"a&".repeat(1_000)).is_err());
    }

    #[test]
    fn counts_are_cut_down_and_nonsense_is_an_argument_error() {
        let query = Query::parse("k=7&big=123456&bad=blah&neg=-1&none=&huge=99999999999").unwrap();
        assert_eq!(query.count("k", 1_000).unwrap(), Some(7));
        assert_eq!(query.count("big", 1_000).unwrap(), Some(1_000));
        assert_eq!(query.count("none", 1_000).unwrap(), None);
        assert_eq!(query.count("absent", 1_000).unwrap(), None);
        for name in ["bad", "neg", "huge"] {
            let error = query.count(name, 1_000).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
    }
}
