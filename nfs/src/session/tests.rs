//! A client that writes calls and reads replies, without a socket.

mod bounds;
mod calls;
mod errors;
mod kept;

use bytes::Bytes;

use super::call::{Inbound, Tls};
use super::connection::{Connection, Hold, Poll};
use crate::limits::RECORD_BYTES_MAX;
use crate::wire::nfs3::Arguments;
use crate::wire::nfs3::data::Read;
use crate::wire::nfs3::handle::Handle;
use crate::wire::nfs3::inquire::GetAttr;
use crate::wire::program::ALL;
use crate::wire::record::{self, Deframer};
use crate::wire::rpc::Call;
use crate::wire::rpc::credential::{Credential, OpaqueAuth};
use crate::wire::rpc::reply::{Accepted, Reply};
use crate::wire::xdr::{Reader, Writer, Xdr};

/// The bytes that a permit was for.
type Permit = usize;

fn connection() -> Connection<Permit> {
    Connection::new(ALL, Tls::Unavailable)
}

/// A call without arguments that can be told what to ask for.
fn call_of(program: u32, version: u32, procedure: u32) -> Call {
    Call {
        xid: 7,
        program,
        version,
        procedure,
        credential: Credential::None,
        verifier: OpaqueAuth::none(),
        arguments: Reader::new(Bytes::new()),
    }
}

fn record(call: &Call, arguments: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::record();
    call.write_head(&mut writer);
    arguments(&mut writer);
    writer.finish().concat()
}

/// A call of NFSv3.
fn nfs_call(xid: u32, arguments: &Arguments) -> Vec<u8> {
    let procedure = arguments.procedure().code();
    let call = Call {
        xid,
        ..call_of(100_003, 3, procedure)
    };
    record(&call, |writer| arguments.write(writer))
}

fn getattr(xid: u32) -> Vec<u8> {
    let object = Handle::new(&xid.to_be_bytes());
    nfs_call(xid, &Arguments::GetAttr(GetAttr { object }))
}

fn read(xid: u32, count: u32) -> Vec<u8> {
    let arguments = Read {
        file: Handle::new(b"file"),
        offset: 0,
        count,
    };
    nfs_call(xid, &Arguments::Read(arguments))
}

/// An answer of success with these bytes as results.
fn answer(xid: u32, results: Vec<u8>) -> Vec<Bytes> {
    let mut writer = Writer::record();
    Reply::accepted(xid, Accepted::Success).write(&mut writer);
    writer.data(&[results.into()]);
    writer.finish()
}

/// Polls until something else than a permit is needed; permits are given at once.
fn poll_granted(connection: &mut Connection<Permit>) -> Poll<Permit> {
    loop {
        match connection.poll().unwrap() {
            Poll::Permit(bytes) => connection.grant(bytes, bytes),
            poll @ (Poll::Call(..) | Poll::Read(_) | Poll::Full | Poll::StartTls) => return poll,
        }
    }
}

/// All calls that the connection has for now, with what it needs next.
fn calls(connection: &mut Connection<Permit>) -> (Vec<(Inbound, Hold<Permit>)>, Poll<Permit>) {
    let mut found = Vec::new();
    loop {
        match poll_granted(connection) {
            Poll::Call(call, hold) => found.push((*call, hold)),
            next @ (Poll::Permit(_) | Poll::Read(_) | Poll::Full | Poll::StartTls) => {
                return (found, next);
            }
        }
    }
}

/// Writes up to `step` bytes at a time.
fn drain(connection: &mut Connection<Permit>, step: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    while connection.output_bytes() > 0 {
        let mut slices = [std::io::IoSlice::new(&[]); 3];
        let count = connection.output(&mut slices);
        let slices = slices[..count].iter().flat_map(|slice| slice.to_vec());
        let bytes: Vec<u8> = slices.collect();
        let written = bytes.len().min(step);
        stream.extend_from_slice(&bytes[..written]);
        connection.written(written);
    }
    stream
}

/// The replies of a stream, each with what follows its head.
fn replies(stream: &[u8]) -> Vec<(Reply, Bytes)> {
    let mut deframer = Deframer::new(RECORD_BYTES_MAX);
    deframer.buffer().extend_from_slice(stream);
    let mut found = Vec::new();
    while let record::Poll::Record(record) = deframer.poll().unwrap() {
        let (reply, rest) = Reply::decode(record).unwrap();
        found.push((reply, rest.into_rest()));
    }
    assert!(deframer.buffer().is_empty(), "the stream ends in a record");
    found
}
