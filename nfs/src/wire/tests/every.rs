//! Every message of every program.

use std::fmt::Debug;

use bytes::Bytes;

use super::{Generator, Random};
use crate::wire::WireError;
use crate::wire::mount::{DirPath, ExportNode, MntResults, MountBody};
use crate::wire::nfs3::{Arguments, Procedure, Results};
use crate::wire::portmap::{Mapping, Rpcb, Text};
use crate::wire::rpc::Call;
use crate::wire::rpc::credential::{Credential, OpaqueAuth};
use crate::wire::rpc::reply::Reply;
use crate::wire::xdr::{List, Reader, Writer, Xdr};

/// Messages of each kind.
const ROUNDS: u64 = 25;

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::datagram();
    write(&mut writer);
    let bytes = writer.bytes();
    let written = Bytes::from(writer.finish().concat());
    assert_eq!(written.len(), bytes);
    written
}

/// A message is read as it was written, no part of it is one, and four bytes of it that say something else
/// make no message that is longer.
fn holds<T, W, R>(message: &T, write: W, read: R)
where
    T: Debug + PartialEq,
    W: Fn(&T, &mut Writer),
    R: Fn(Reader) -> Result<T, WireError>,
{
    let bytes = written(|writer| write(message, writer));
    assert_eq!(read(Reader::new(bytes.clone())).as_ref(), Ok(message));
    for end in 0..bytes.len() {
        let part = read(Reader::new(bytes.slice(..end)));
        assert!(
            matches!(part, Err(WireError::Short(_))),
            "{end} bytes of {message:?} are {part:?}"
        );
    }
    for at in (0..bytes.len()).step_by(4) {
        for count in [u32::MAX, 0x7fff_ffff, 0x0010_0801, 0] {
            let mut hostile = bytes.to_vec();
            hostile[at..at + 4].copy_from_slice(&count.to_be_bytes());
            if let Ok(heard) = read(Reader::new(hostile.into())) {
                let again = written(|writer| write(&heard, writer));
                assert!(again.len() <= bytes.len(), "{heard:?}");
            }
        }
    }
}

fn item_holds<T: Xdr + Random + Debug + PartialEq>(generator: &mut Generator) {
    for _ in 0..ROUNDS {
        let item = T::random(generator);
        holds(&item, T::write, |mut reader| T::read(&mut reader, "item"));
    }
}

#[test]
fn arguments_of_nfs() {
    let mut generator = Generator(1);
    for procedure in Procedure::ALL {
        for _ in 0..ROUNDS {
            let arguments = Arguments::random(*procedure, &mut generator);
            assert_eq!(arguments.procedure(), *procedure);
            holds(&arguments, Arguments::write, |reader| {
                Arguments::decode(*procedure, reader)
            });
        }
    }
}

#[test]
fn results_of_nfs() {
    let mut generator = Generator(2);
    for procedure in Procedure::ALL {
        for _ in 0..ROUNDS {
            let results = Results::random(*procedure, &mut generator);
            assert_eq!(results.procedure(), *procedure);
            holds(&results, Results::write, |reader| {
                Results::decode(*procedure, reader)
            });
        }
    }
}

#[test]
fn messages_of_mount() {
    let mut generator = Generator(3);
    item_holds::<DirPath>(&mut generator);
    item_holds::<MntResults>(&mut generator);
    item_holds::<List<MountBody>>(&mut generator);
    item_holds::<List<ExportNode>>(&mut generator);
}

#[test]
fn messages_of_portmap() {
    let mut generator = Generator(4);
    item_holds::<Mapping>(&mut generator);
    item_holds::<List<Mapping>>(&mut generator);
    item_holds::<Rpcb>(&mut generator);
    item_holds::<List<Rpcb>>(&mut generator);
    item_holds::<Text>(&mut generator);
}

#[test]
fn replies() {
    item_holds::<Reply>(&mut Generator(5));
}

#[test]
fn calls() {
    let mut generator = Generator(6);
    for _ in 0..ROUNDS {
        let call = Call {
            xid: Random::random(&mut generator),
            program: Random::random(&mut generator),
            version: Random::random(&mut generator),
            procedure: Random::random(&mut generator),
            credential: Credential::random(&mut generator),
            verifier: OpaqueAuth::none(),
            arguments: Reader::new(Bytes::new()),
        };
        let bytes = written(|writer| call.write_head(writer));
        assert_eq!(Call::decode(bytes.clone()), Ok(call));
        for end in 0..bytes.len() {
            assert!(Call::decode(bytes.slice(..end)).is_err());
        }
        for at in (0..bytes.len()).step_by(4) {
            let mut hostile = bytes.to_vec();
            hostile[at..at + 4].copy_from_slice(&[0xff; 4]);
            if let Ok(heard) = Call::decode(hostile.into()) {
                let again = written(|writer| heard.write_head(writer));
                assert!(again.len() <= bytes.len(), "{heard:?}");
            }
        }
    }
}
