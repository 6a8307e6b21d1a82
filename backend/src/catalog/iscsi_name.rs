//! Names of targets and initiators (RFC 7143 section 4.2.7).

use std::fmt;
use std::sync::Arc;

use super::error::CatalogError;

/// Bytes of a name (RFC 7143 section 4.2.7.1).
const BYTES_MAX: usize = 223;

/// The name of a target or an initiator, in lower case: `iqn.`, `eui.` or `naa.` and what follows.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IscsiName(Arc<str>);

impl IscsiName {
    /// Takes capitals, which some initiators show, for small letters.
    ///
    /// # Errors
    /// `Invalid` with the rule that `text` breaks.
    pub fn new(text: &str) -> Result<Self, CatalogError> {
        let name = text.to_ascii_lowercase();
        match problem_of(&name) {
            None => Ok(Self(Arc::from(name))),
            Some(problem) => Err(CatalogError::Invalid {
                field: "iSCSI name",
                value: text.to_owned(),
                problem,
            }),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn problem_of(name: &str) -> Option<&'static str> {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b);
    let is_hexadecimal = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    if name.len() > BYTES_MAX {
        Some("must have 223 bytes at most")
    } else if let Some(rest) = name.strip_prefix("iqn.") {
        // A year and a month, a point, and the reversed name of a domain.
        let date = rest.get(..8).map(str::as_bytes);
        let is_dated = date.is_some_and(|date| {
            date[..4].iter().all(u8::is_ascii_digit)
                && date[4] == b'-'
                && date[5..7].iter().all(u8::is_ascii_digit)
                && date[7] == b'.'
        });
        if !is_dated || rest.len() == 8 {
            Some("must look like iqn.2024-01.com.example:disk")
        } else if !name.bytes().all(is_valid) {
            Some("may hold letters, digits, '-', '.' and ':' only")
        } else {
            None
        }
    } else if let Some(rest) = name.strip_prefix("eui.") {
        (rest.len() != 16 || !is_hexadecimal(rest))
            .then_some("must have 16 hexadecimal digits behind eui.")
    } else if let Some(rest) = name.strip_prefix("naa.") {
        (![16, 32].contains(&rest.len()) || !is_hexadecimal(rest))
            .then_some("must have 16 or 32 hexadecimal digits behind naa.")
    } else {
        Some("must begin with iqn., eui. or naa.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_standard() {
        for good in [
            "iqn.2001-04.com.example:storage.disk2.sys1.xyz",
            "iqn.1998-01.com.vmware:esx01-12345678",
            "iqn.1991-05.com.microsoft:hv01.example.com",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(IscsiName::new(good).unwrap().as_str(), good);
        }
        let folded = IscsiName::new("IQN.1991-05.com.Microsoft:HV01").unwrap();
        assert_eq!(folded.as_str(), "iqn.1991-05.com.microsoft:hv01");
        let long = format!("iqn.2001-04.com.example:{}", "x".repeat(200));
        for bad in [
            "",
            "disk",
            "iqn.",
            "iqn.2001-04.",
            "iqn.01-04.com.example",
            "iqn.2001-04.com.example:a b",
            "iqn.2001-04.com.example:a/b",
            "eui.0200",
            "eui.02004567a425678g",
            "naa.5200",
            &long,
        ] {
            assert!(IscsiName::new(bad).is_err(), "{bad}");
        }
    }
}
