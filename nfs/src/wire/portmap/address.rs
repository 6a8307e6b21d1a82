//! Universal addresses (RFC 5665 section 5.2.3): an IP address and two numbers of its port, with dots.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use crate::wire::WireError;

/// An address as rpcbind tells it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UniversalAddress {
    pub host: IpAddr,
    pub port: u16,
}

impl UniversalAddress {
    /// # Errors
    /// `Field` if it is none.
    pub fn parse(text: &[u8]) -> Result<Self, WireError> {
        let found = std::str::from_utf8(text).ok().and_then(|text| {
            let (rest, low) = text.rsplit_once('.')?;
            let (host, high) = rest.rsplit_once('.')?;
            let host = match host.contains(':') {
                true => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
                false => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
            };
            let port = u16::from_be_bytes([octet(high)?, octet(low)?]);
            Some(Self { host, port })
        });
        found.ok_or(WireError::Field("r_addr"))
    }
}

impl fmt::Display for UniversalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.port.to_be_bytes();
        write!(f, "{}.{high}.{low}", self.host)
    }
}

/// Digits alone: what numbers are parsed with takes a sign too.
fn octet(text: &str) -> Option<u8> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_standard() {
        for (text, host, port) in [
            ("10.1.3.7.2.15", IpAddr::from([10, 1, 3, 7]), 527),
            ("0.0.0.0.8.1", IpAddr::from([0, 0, 0, 0]), 2_049),
            ("::.0.111", IpAddr::from([0_u16; 8]), 111),
            ("fe80::1.255.255", "fe80::1".parse().unwrap(), 65_535),
        ] {
            let address = UniversalAddress { host, port };
            assert_eq!(UniversalAddress::parse(text.as_bytes()), Ok(address));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let refused = Err(WireError::Field("r_addr"));
        for text in [
            &b""[..],
            b"1",
            b"1.2",
            b"1.2.3.4",
            b"1.2.3.4.5",
            b"1.2.3.4.256.1",
            b"1.2.3.4.-1.1",
            b"1.2.3.4.+1.1",
            b"1.2.3.4.1.1.1",
            b"1.2.3.4..1",
            b":::.1.1",
            b"\xff.1.1",
        ] {
            assert_eq!(UniversalAddress::parse(text), refused, "{text:?}");
        }
    }
}
