//! Calls, replies, and the messages of MOUNT and portmap: what is read is written as something that reads
//! the same.
#![no_main]

use std::fmt::Debug;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portico_nfs::wire::mount::{DirPath, ExportNode, MntResults, MountBody};
use portico_nfs::wire::portmap::{Mapping, Rpcb, UniversalAddress};
use portico_nfs::wire::program::{ALL, find};
use portico_nfs::wire::rpc::reply::Reply;
use portico_nfs::wire::rpc::{Call, Refused};
use portico_nfs::wire::xdr::{List, Reader, Writer, Xdr};

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::datagram();
    write(&mut writer);
    writer.finish().concat().into()
}

fn item<T: Xdr + Debug + PartialEq>(input: &Bytes) {
    let Ok(item) = T::read(&mut Reader::new(input.clone()), "item") else {
        return;
    };
    let bytes = written(|writer| item.write(writer));
    assert!(bytes.len() <= input.len());
    assert_eq!(T::read(&mut Reader::new(bytes), "item"), Ok(item));
}

fuzz_target!(|input: &[u8]| {
    let input = Bytes::copy_from_slice(input);
    match Call::decode(input.clone()) {
        Ok(call) => {
            let _ = find(ALL, call.program, call.version, call.procedure);
            let head = written(|writer| call.write_head(writer));
            let rest = call.arguments.clone().into_rest();
            let again = Bytes::from([&head[..], &rest].concat());
            assert_eq!(Call::decode(again), Ok(call));
        }
        Err(Refused::Answer(reply)) => {
            assert_eq!(input[..4], reply.xid.to_be_bytes());
            let bytes = written(|writer| reply.write(writer));
            let (again, rest) = Reply::decode(bytes).expect("a reply");
            assert_eq!((again, rest.remaining()), (reply, 0));
        }
        Err(Refused::NoCall(_)) => {}
    }
    item::<Reply>(&input);
    item::<DirPath>(&input);
    item::<MntResults>(&input);
    item::<List<MountBody>>(&input);
    item::<List<ExportNode>>(&input);
    item::<List<Mapping>>(&input);
    item::<List<Rpcb>>(&input);
    if let Ok(address) = UniversalAddress::parse(&input) {
        let again = UniversalAddress::parse(address.to_string().as_bytes());
        assert_eq!(again, Ok(address));
    }
});
