//! The procedures of the port mapper and of rpcbind (RFC 1833): which port a program has.

use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::session::request::{PmapRequest, RpcbRequest};
use crate::wire::portmap::{Mapping, Rpcb, TCP, Text, UDP, UniversalAddress};
use crate::wire::xdr::{List, Writer, Xdr};

/// A program that can be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Registration {
    pub program: u32,
    pub version: u32,
    pub is_tcp: bool,
    pub port: u16,
}

/// What a call is answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PortmapAnswer {
    Nothing,
    /// Of SET and UNSET: nobody but this server registers anything.
    Refused,
    Port(u32),
    Mappings(List<Mapping>),
    Address(Text),
    Bindings(List<Rpcb>),
}

impl PortmapAnswer {
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nothing => {}
            Self::Refused => writer.bool(false),
            Self::Port(port) => writer.u32(*port),
            Self::Mappings(list) => list.write(writer),
            Self::Address(text) => text.write(writer),
            Self::Bindings(list) => list.write(writer),
        }
    }
}

/// Version 2.
#[must_use]
pub fn pmap(registered: &[Registration], request: PmapRequest) -> PortmapAnswer {
    match request {
        PmapRequest::Null => PortmapAnswer::Nothing,
        PmapRequest::Register => PortmapAnswer::Refused,
        PmapRequest::GetPort(asked) => PortmapAnswer::Port(getport(registered, asked)),
        PmapRequest::Dump => {
            let mappings = registered.iter().map(|one| Mapping {
                program: one.program,
                version: one.version,
                protocol: protocol(one.is_tcp),
                port: u32::from(one.port),
            });
            PortmapAnswer::Mappings(List(mappings.collect()))
        }
    }
}

/// Versions 3 and 4. `local` is the address that the client reached, `is_tcp` how.
#[must_use]
pub fn rpcb(
    registered: &[Registration],
    request: &RpcbRequest,
    local: SocketAddr,
    is_tcp: bool,
) -> PortmapAnswer {
    let host = local.ip().to_canonical();
    match request {
        RpcbRequest::Null => PortmapAnswer::Nothing,
        RpcbRequest::Register => PortmapAnswer::Refused,
        RpcbRequest::GetAddr(asked) => {
            let exact = getaddr(registered, asked, is_tcp, true);
            let found = exact.or_else(|| getaddr(registered, asked, is_tcp, false));
            PortmapAnswer::Address(found.map_or(text(String::new()), |port| at(host, port)))
        }
        RpcbRequest::GetVersAddr(asked) => {
            let found = getaddr(registered, asked, is_tcp, true);
            PortmapAnswer::Address(found.map_or(text(String::new()), |port| at(host, port)))
        }
        RpcbRequest::Dump => {
            let bindings = registered.iter().map(|one| Rpcb {
                program: one.program,
                version: one.version,
                netid: text(netid(host, one.is_tcp).to_owned()),
                address: at(host, one.port),
                owner: text("superuser".to_owned()),
            });
            PortmapAnswer::Bindings(List(bindings.collect()))
        }
    }
}

/// 0 is none. Another version's port will do: the program itself tells which versions it has.
fn getport(registered: &[Registration], asked: Mapping) -> u32 {
    let of_program = || {
        registered
            .iter()
            .filter(|one| one.program == asked.program && protocol(one.is_tcp) == asked.protocol)
    };
    let exact = of_program().find(|one| one.version == asked.version);
    exact
        .or_else(|| of_program().next())
        .map_or(0, |one| u32::from(one.port))
}

/// By the network that is asked for, or by the one of the call (RFC 1833 section 2.2.1).
fn getaddr(registered: &[Registration], asked: &Rpcb, is_tcp: bool, is_exact: bool) -> Option<u16> {
    let is_tcp = match &asked.netid.0[..] {
        b"tcp" | b"tcp6" => true,
        b"udp" | b"udp6" => false,
        _ => is_tcp,
    };
    registered
        .iter()
        .find(|one| {
            one.program == asked.program
                && one.is_tcp == is_tcp
                && (!is_exact || one.version == asked.version)
        })
        .map(|one| one.port)
}

fn at(host: IpAddr, port: u16) -> Text {
    text(UniversalAddress { host, port }.to_string())
}

fn netid(host: IpAddr, is_tcp: bool) -> &'static str {
    match (host, is_tcp) {
        (IpAddr::V4(_), true) => "tcp",
        (IpAddr::V4(_), false) => "udp",
        (IpAddr::V6(_), true) => "tcp6",
        (IpAddr::V6(_), false) => "udp6",
    }
}

fn protocol(is_tcp: bool) -> u32 {
    match is_tcp {
        true => TCP,
        false => UDP,
    }
}

fn text(text: String) -> Text {
    Text(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTERED: [Registration; 3] = [
        Registration {
            program: 100_003,
            version: 3,
            is_tcp: true,
            port: 2_049,
        },
        Registration {
            program: 100_005,
            version: 3,
            is_tcp: true,
            port: 20_048,
        },
        Registration {
            program: 100_005,
            version: 3,
            is_tcp: false,
            port: 20_049,
        },
    ];

    #[test]
    fn ports_are_those_of_program_and_protocol() {
        for (program, version, protocol, port) in [
            (100_003, 3, TCP, 2_049),
            (100_003, 4, TCP, 2_049),
            (100_003, 3, UDP, 0),
            (100_005, 3, UDP, 20_049),
            (100_005, 3, TCP, 20_048),
            (100_021, 4, TCP, 0),
            (100_003, 3, 1, 0),
        ] {
            let asked = Mapping {
                program,
                version,
                protocol,
                port: 0,
            };
            let answer = pmap(&REGISTERED, PmapRequest::GetPort(asked));
            assert_eq!(answer, PortmapAnswer::Port(port), "{asked:?}");
        }
        let set = pmap(&REGISTERED, PmapRequest::Register);
        assert_eq!(set, PortmapAnswer::Refused);
        let PortmapAnswer::Mappings(List(mappings)) = pmap(&REGISTERED, PmapRequest::Dump) else {
            panic!("a list");
        };
        assert_eq!(mappings.len(), 3);
        assert_eq!((mappings[2].protocol, mappings[2].port), (UDP, 20_049));
    }

    #[test]
    fn addresses_are_those_that_the_client_reached() {
        let local = "[::ffff:10.0.0.9]:111".parse().unwrap();
        let asked = |version, netid: &'static str| Rpcb {
            program: 100_005,
            version,
            netid: Text(Bytes::from_static(netid.as_bytes())),
            address: text(String::new()),
            owner: text(String::new()),
        };
        let answer = |request| rpcb(&REGISTERED, &request, local, false);
        let address = |text: &'static str| PortmapAnswer::Address(Text(text.into()));
        let get = |version, netid| answer(RpcbRequest::GetAddr(asked(version, netid)));
        assert_eq!(get(3, "tcp"), address("10.0.0.9.78.80"));
        assert_eq!(get(3, "udp"), address("10.0.0.9.78.81"));
        assert_eq!(get(1, ""), address("10.0.0.9.78.81"));
        let exact = answer(RpcbRequest::GetVersAddr(asked(1, "tcp")));
        assert_eq!(exact, address(""));
    }
}
