//! Messages from a seed.

use bytes::Bytes;

use crate::wire::mount::{DirPath, HostName, MntResults, MountStatus, Mounted};
use crate::wire::nfs3::attributes::SetTime;
use crate::wire::nfs3::create::{CreateHow, Node};
use crate::wire::nfs3::data::{ReadDone, Stable, Write};
use crate::wire::nfs3::handle::Handle;
use crate::wire::nfs3::name::{Name, Path};
use crate::wire::nfs3::status::{Outcome, Status};
use crate::wire::portmap::Text;
use crate::wire::rpc::credential::{AuthSys, Credential, OpaqueAuth};
use crate::wire::rpc::reply::{Accepted, AuthStatus, Denied, Reply, ReplyBody};
use crate::wire::xdr::List;

/// Numbers that depend on the seed alone (splitmix64).
#[derive(Debug)]
pub(crate) struct Generator(pub(crate) u64);

impl Generator {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..=max`, every length alike, so that all paddings come.
    pub(crate) fn up_to(&mut self, max: usize) -> usize {
        let bound = u64::try_from(max).unwrap() + 1;
        usize::try_from(self.next() % bound).unwrap()
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.up_to(items.len() - 1)]
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Bytes {
        let length = self.up_to(max);
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

pub(crate) trait Random {
    fn random(generator: &mut Generator) -> Self;
}

impl Random for () {
    fn random(_: &mut Generator) {}
}

impl Random for bool {
    fn random(generator: &mut Generator) -> Self {
        generator.next() & 1 == 1
    }
}

impl Random for u32 {
    fn random(generator: &mut Generator) -> Self {
        let value = u64::random(generator);
        Self::try_from(value >> 32).unwrap()
    }
}

/// Often one of the ends.
impl Random for u64 {
    fn random(generator: &mut Generator) -> Self {
        let any = generator.next();
        *generator.one_of(&[0, Self::MAX, any, any])
    }
}

impl Random for [u8; 8] {
    fn random(generator: &mut Generator) -> Self {
        generator.next().to_be_bytes()
    }
}

impl<T: Random> Random for Option<T> {
    fn random(generator: &mut Generator) -> Self {
        bool::random(generator).then(|| T::random(generator))
    }
}

impl<T: Random> Random for List<T> {
    fn random(generator: &mut Generator) -> Self {
        let length = generator.up_to(3);
        Self((0..length).map(|_| T::random(generator)).collect())
    }
}

impl<T: Random, F: Random> Random for Outcome<T, F> {
    fn random(generator: &mut Generator) -> Self {
        match bool::random(generator) {
            true => Self::Done(T::random(generator)),
            false => Self::Failed(Status::random(generator), F::random(generator)),
        }
    }
}

impl Random for Handle {
    fn random(generator: &mut Generator) -> Self {
        Self::new(&generator.bytes(64))
    }
}

impl Random for Name {
    fn random(generator: &mut Generator) -> Self {
        Self(generator.bytes(20))
    }
}

impl Random for Path {
    fn random(generator: &mut Generator) -> Self {
        Self(generator.bytes(20))
    }
}

impl Random for SetTime {
    fn random(generator: &mut Generator) -> Self {
        match generator.up_to(2) {
            0 => Self::DontChange,
            1 => Self::ToServerTime,
            _ => Self::ToClientTime(Random::random(generator)),
        }
    }
}

impl Random for CreateHow {
    fn random(generator: &mut Generator) -> Self {
        match generator.up_to(2) {
            0 => Self::Unchecked(Random::random(generator)),
            1 => Self::Guarded(Random::random(generator)),
            _ => Self::Exclusive(Random::random(generator)),
        }
    }
}

impl Random for Node {
    fn random(generator: &mut Generator) -> Self {
        let (attributes, device) = (Random::random(generator), Random::random(generator));
        match generator.up_to(4) {
            0 => Self::CharacterDevice(attributes, device),
            1 => Self::BlockDevice(attributes, device),
            2 => Self::Socket(attributes),
            3 => Self::Fifo(attributes),
            _ => Self::Other(*generator.one_of(&[0, 1, 2, 5, 8, u32::MAX])),
        }
    }
}

impl Random for ReadDone {
    fn random(generator: &mut Generator) -> Self {
        let pieces = generator.up_to(3);
        Self {
            attributes: Random::random(generator),
            eof: Random::random(generator),
            data: (0..pieces).map(|_| generator.bytes(700)).collect(),
        }
    }
}

impl Random for Write {
    fn random(generator: &mut Generator) -> Self {
        Self {
            file: Random::random(generator),
            offset: Random::random(generator),
            stable: Stable::random(generator),
            data: generator.bytes(700),
        }
    }
}

impl Random for DirPath {
    fn random(generator: &mut Generator) -> Self {
        Self(generator.bytes(30))
    }
}

impl Random for HostName {
    fn random(generator: &mut Generator) -> Self {
        Self(generator.bytes(30))
    }
}

impl Random for MntResults {
    fn random(generator: &mut Generator) -> Self {
        match bool::random(generator) {
            true => Self::Failed(MountStatus::random(generator)),
            false => {
                let flavors = generator.up_to(16);
                Self::Done(Mounted {
                    handle: Random::random(generator),
                    flavors: (0..flavors).map(|_| Random::random(generator)).collect(),
                })
            }
        }
    }
}

impl Random for Text {
    fn random(generator: &mut Generator) -> Self {
        Self(generator.bytes(50))
    }
}

impl Random for Credential {
    fn random(generator: &mut Generator) -> Self {
        let gids = generator.up_to(16);
        match generator.up_to(3) {
            0 => Self::None,
            1 => Self::Tls,
            2 => Self::Sys(AuthSys {
                stamp: Random::random(generator),
                machine_name: generator.bytes(255),
                uid: Random::random(generator),
                gid: Random::random(generator),
                gids: (0..gids).map(|_| Random::random(generator)).collect(),
            }),
            _ => Self::Other(OpaqueAuth {
                flavor: *generator.one_of(&[2, 3, 6, 390_003]),
                body: generator.bytes(400),
            }),
        }
    }
}

impl Random for Reply {
    fn random(generator: &mut Generator) -> Self {
        let xid = Random::random(generator);
        let (low, high) = (Random::random(generator), Random::random(generator));
        let accepted = [
            Accepted::Success,
            Accepted::ProgramUnavailable,
            Accepted::ProgramMismatch { low, high },
            Accepted::ProcedureUnavailable,
            Accepted::GarbageArguments,
            Accepted::SystemError,
        ];
        let auth_status = AuthStatus::random(generator);
        let denied = [
            Denied::RpcMismatch { low, high },
            Denied::AuthError(auth_status),
        ];
        let body = match bool::random(generator) {
            true => ReplyBody::Denied(*generator.one_of(&denied)),
            false => ReplyBody::Accepted {
                verifier: Credential::random(generator).encode(),
                status: *generator.one_of(&accepted),
            },
        };
        Self { xid, body }
    }
}
