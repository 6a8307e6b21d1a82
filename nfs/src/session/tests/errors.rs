//! What is answered without doing anything (RFC 5531 section 9, RFC 9289 section 4.1).

use bytes::Bytes;

use super::{Permit, call_of, calls, connection, drain, getattr, record, replies};
use crate::session::call::{Heard, Tls, hear};
use crate::session::connection::{Connection, Poll};
use crate::wire::WireError;
use crate::wire::program::{ALL, MOUNT_3};
use crate::wire::rpc::Call;
use crate::wire::rpc::credential::{AuthSys, Credential, OpaqueAuth};
use crate::wire::rpc::reply::{Accepted, AuthStatus, Denied, Reply};
use crate::wire::xdr::Writer;

fn sys() -> Credential {
    Credential::Sys(AuthSys {
        stamp: 1,
        machine_name: Bytes::from_static(b"client"),
        uid: 1_000,
        gid: 1_000,
        gids: vec![10, 20],
    })
}

fn other(flavor: u32) -> OpaqueAuth {
    let body = Bytes::from_static(b"what");
    OpaqueAuth { flavor, body }
}

#[test]
fn faults_are_answered_by_table() {
    let accepted = |status| Reply::accepted(7, status);
    for (call, reply) in [
        (
            call_of(100_021, 4, 0),
            accepted(Accepted::ProgramUnavailable),
        ),
        (
            call_of(100_003, 2, 0),
            accepted(Accepted::ProgramMismatch { low: 3, high: 3 }),
        ),
        (
            call_of(100_005, 4, 0),
            accepted(Accepted::ProgramMismatch { low: 1, high: 3 }),
        ),
        (
            call_of(100_003, 3, 22),
            accepted(Accepted::ProcedureUnavailable),
        ),
        // Arguments are missing.
        (call_of(100_003, 3, 1), accepted(Accepted::GarbageArguments)),
        (call_of(100_005, 3, 1), accepted(Accepted::GarbageArguments)),
        (call_of(100_000, 2, 3), accepted(Accepted::GarbageArguments)),
        (call_of(100_000, 2, 1), accepted(Accepted::GarbageArguments)),
        (call_of(100_000, 4, 9), accepted(Accepted::GarbageArguments)),
    ] {
        check(&call, reply);
    }
}

#[test]
fn who_calls_is_asked_first() {
    let denied = |status| Reply::denied(7, Denied::AuthError(status));
    let (bad_credential, bad_verifier) = (AuthStatus::BadCredential, AuthStatus::BadVerifier);
    let null = || call_of(100_003, 3, 0);
    for (call, reply) in [
        (
            Call {
                credential: Credential::Other(other(6)),
                ..null()
            },
            denied(bad_credential),
        ),
        (
            Call {
                credential: Credential::Tls,
                ..null()
            },
            denied(bad_credential),
        ),
        (
            Call {
                credential: sys(),
                verifier: other(1),
                ..null()
            },
            denied(bad_verifier),
        ),
        (
            Call {
                verifier: other(0),
                ..null()
            },
            denied(bad_verifier),
        ),
        (
            Call {
                credential: Credential::Other(other(6)),
                ..call_of(100_021, 4, 0)
            },
            denied(bad_credential),
        ),
    ] {
        check(&call, reply);
    }
}

/// The call is answered thus, and the connection goes on.
fn check(call: &Call, reply: Reply) {
    let mut connection = connection();
    connection.buffer().extend_from_slice(&record(call, |_| ()));
    let (found, next) = calls(&mut connection);
    assert!(found.is_empty(), "{call:?} is {found:?}");
    assert!(matches!(next, Poll::Read(4)), "{next:?}");
    let heard = replies(&drain(&mut connection, usize::MAX));
    assert_eq!(heard, [(reply, Bytes::new())], "{call:?}");
    assert_eq!(connection.calls(), 0);
}

#[test]
fn only_the_programs_of_a_place_are_there() {
    let datagram = Bytes::from(record(&call_of(100_003, 3, 0), |_| ()).split_off(4));
    let heard = hear(datagram, &[&MOUNT_3], Tls::Unavailable);
    let reply = Reply::accepted(7, Accepted::ProgramUnavailable);
    assert_eq!(heard, Ok(Heard::Answer(reply)));
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let mut reply = Writer::record();
    crate::wire::xdr::Xdr::write(&Reply::accepted(1, Accepted::Success), &mut reply);
    for (stream, error) in [
        (reply.finish().concat(), WireError::Field("mtype")),
        (b"\x80\0\0\x02ab".to_vec(), WireError::Short("xid")),
    ] {
        let mut connection = connection();
        connection.buffer().extend_from_slice(&stream);
        assert_eq!(connection.poll().err(), Some(error));
    }
}

#[test]
fn tls_begins_behind_its_answer_and_what_came_before_it_is_forgotten() {
    let probe = Call {
        credential: Credential::Tls,
        ..call_of(100_003, 3, 0)
    };
    let mut connection: Connection<Permit> = Connection::new(ALL, Tls::Offered);
    let stream = connection.buffer();
    stream.extend_from_slice(&record(&probe, |_| ()));
    stream.extend_from_slice(&getattr(9));
    let (found, next) = calls(&mut connection);
    assert!(found.is_empty() && matches!(next, Poll::StartTls));
    let heard = replies(&drain(&mut connection, usize::MAX));
    assert_eq!(heard, [(Reply::starttls(7), Bytes::new())]);
    connection.tls_runs();
    assert!(matches!(calls(&mut connection), (found, Poll::Read(4)) if found.is_empty()));
    // Once is enough.
    connection
        .buffer()
        .extend_from_slice(&record(&probe, |_| ()));
    assert!(matches!(calls(&mut connection), (_, Poll::Read(4))));
    let denied = Denied::AuthError(AuthStatus::BadCredential);
    let heard = replies(&drain(&mut connection, usize::MAX));
    assert_eq!(heard, [(Reply::denied(7, denied), Bytes::new())]);
}

#[test]
fn only_null_asks_for_tls() {
    let probe = Call {
        credential: Credential::Tls,
        ..call_of(100_003, 3, 1)
    };
    let datagram = Bytes::from(record(&probe, |_| ()).split_off(4));
    let denied = Denied::AuthError(AuthStatus::BadCredential);
    let heard = hear(datagram, ALL, Tls::Offered);
    assert_eq!(heard, Ok(Heard::Answer(Reply::denied(7, denied))));
}

#[test]
fn a_call_is_told_from_others_by_its_checksum() {
    let sum = |stream: Vec<u8>| {
        let record = Bytes::from(stream).slice(4..);
        match hear(record, ALL, Tls::Unavailable) {
            Ok(Heard::Call(call)) => call.checksum,
            heard => panic!("{heard:?}"),
        }
    };
    let null = |xid, credential| {
        let call = Call {
            xid,
            credential,
            ..call_of(100_003, 3, 0)
        };
        record(&call, |_| ())
    };
    let first = sum(null(1, sys()));
    assert_eq!(sum(null(2, sys())), first, "the xid is not part of it");
    assert_ne!(sum(null(1, Credential::None)), first);
    assert_ne!(sum(getattr(1)), sum(getattr(2)), "other arguments");
    let longer = |bytes: usize| {
        record(&call_of(100_003, 3, 0), |writer| {
            writer.data(&[vec![0; bytes].into()]);
        })
    };
    // The length of data is part of it.
    assert_ne!(sum(longer(8_000)), sum(longer(8_004)));
}
