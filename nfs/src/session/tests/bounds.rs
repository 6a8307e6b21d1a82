//! What one connection may have under way, and what is read of it before there is a permit.

use bytes::Bytes;

use super::{answer, calls, connection, drain, getattr, nfs_call, poll_granted, read};
use crate::limits::{
    CALLS_MAX, CONNECTION_BYTES_MAX, DATA_BYTES_MAX, READ_AHEAD_BYTES, RECORD_BYTES_MAX,
    REPLY_BYTES,
};
use crate::session::connection::Poll;
use crate::wire::nfs3::Arguments;
use crate::wire::nfs3::data::{Stable, Write};
use crate::wire::nfs3::handle::Handle;

fn write(bytes: u32) -> Vec<u8> {
    let data = vec![b'd'; bytes as usize];
    let write = Write {
        file: Handle::new(b"file"),
        offset: 0,
        stable: Stable::Unstable,
        data: Bytes::from(data),
    };
    nfs_call(1, &Arguments::Write(write))
}

#[test]
fn calls_are_bounded_until_their_replies_are_written() {
    let mut connection = connection();
    let more = u32::try_from(CALLS_MAX).unwrap() + 3;
    for xid in 0..more {
        connection.buffer().extend_from_slice(&getattr(xid));
    }
    let (mut found, next) = calls(&mut connection);
    assert!(matches!(next, Poll::Full), "{next:?}");
    assert_eq!(found.len(), CALLS_MAX);
    let (call, hold) = found.remove(0);
    connection.reply(hold, answer(call.xid, vec![1]));
    // It is answered, but the client has not taken it.
    assert!(matches!(poll_granted(&mut connection), Poll::Full));
    let all = connection.output_bytes();
    connection.written(all - 1);
    assert!(matches!(poll_granted(&mut connection), Poll::Full));
    connection.written(1);
    let (found, next) = calls(&mut connection);
    assert_eq!(found.len(), 1);
    assert!(matches!(next, Poll::Full), "{next:?}");
}

#[test]
fn bytes_are_bounded_by_what_reads_ask_for() {
    let mut connection = connection();
    for xid in 0..20 {
        // Whatever is asked for, no more than so much is read.
        connection.buffer().extend_from_slice(&read(xid, u32::MAX));
    }
    let (found, next) = calls(&mut connection);
    assert!(matches!(next, Poll::Full), "{next:?}");
    let each = DATA_BYTES_MAX as usize;
    assert_eq!(found.len(), CONNECTION_BYTES_MAX.div_ceil(each));
    drop(found);
    assert_eq!(calls(&mut connection).0.len(), CONNECTION_BYTES_MAX / each);
}

#[test]
fn a_long_record_is_read_with_a_permit_for_all_of_it() {
    let stream = write(DATA_BYTES_MAX);
    let mut connection = connection();
    assert!(matches!(connection.poll(), Ok(Poll::Read(4))));
    connection.buffer().extend_from_slice(&stream[..4]);
    let needed = stream.len() - 4 + REPLY_BYTES;
    let Ok(Poll::Permit(bytes)) = connection.poll() else {
        panic!("a permit comes first");
    };
    assert_eq!(bytes, needed);
    // It is asked for until it is there.
    assert!(matches!(connection.poll(), Ok(Poll::Permit(_))));
    connection.grant(bytes, bytes);
    let Ok(Poll::Read(wanted)) = connection.poll() else {
        panic!("now it is read");
    };
    assert_eq!(wanted, stream.len() - 4);
    connection.buffer().extend_from_slice(&stream[4..]);
    // No second permit.
    let Ok(Poll::Call(call, hold)) = connection.poll() else {
        panic!("a call");
    };
    connection.reply(hold, answer(call.xid, Vec::new()));
    drain(&mut connection, usize::MAX);
    assert_eq!(connection.calls(), 0);
}

#[test]
fn a_record_in_fragments_is_as_long_as_it_may_be() {
    let stream = write(DATA_BYTES_MAX);
    let mut connection = connection();
    let mut fragments = vec![0, 0, 0, 8];
    fragments.extend_from_slice(&stream[4..12]);
    let last = u32::try_from(stream.len() - 12).unwrap();
    fragments.extend_from_slice(&(1 << 31 | last).to_be_bytes());
    fragments.extend_from_slice(&stream[12..]);
    connection.buffer().extend_from_slice(&fragments[..4]);
    let Ok(Poll::Permit(bytes)) = connection.poll() else {
        panic!("a permit comes first");
    };
    assert_eq!(bytes, RECORD_BYTES_MAX as usize + REPLY_BYTES);
    connection.grant(bytes, bytes);
    connection.buffer().extend_from_slice(&fragments[4..]);
    assert!(matches!(connection.poll(), Ok(Poll::Call(..))));
}

#[test]
fn no_more_is_read_ahead_than_a_short_record() {
    let mark = |length: usize| (1 << 31 | u32::try_from(length).unwrap()).to_be_bytes();
    let mut short = connection();
    short.buffer().extend_from_slice(&mark(READ_AHEAD_BYTES));
    assert!(matches!(short.poll(), Ok(Poll::Read(READ_AHEAD_BYTES))));
    let mut long = connection();
    long.buffer().extend_from_slice(&mark(READ_AHEAD_BYTES + 1));
    assert!(matches!(long.poll(), Ok(Poll::Permit(_))));
}

#[test]
fn a_permit_that_is_too_small_is_given_back() {
    let mut connection = connection();
    connection.buffer().extend_from_slice(&read(1, 4_096));
    let Ok(Poll::Permit(bytes)) = connection.poll() else {
        panic!("a permit comes first");
    };
    assert_eq!(bytes, read(1, 4_096).len() - 4 + REPLY_BYTES + 4_096);
    connection.grant(bytes - 1, bytes - 1);
    assert!(matches!(connection.poll(), Ok(Poll::Permit(_))));
    connection.grant(bytes, bytes);
    assert!(matches!(connection.poll(), Ok(Poll::Call(..))));
}
