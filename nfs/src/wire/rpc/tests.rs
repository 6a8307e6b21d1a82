//! Calls and replies byte by byte.

use super::credential::AuthSys;
use super::reply::Accepted;
use super::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn call(words_of: &[u32]) -> Result<Call, Refused> {
    Call::decode(words(words_of).into())
}

fn denied(status: AuthStatus) -> Result<Call, Refused> {
    let denied = Denied::AuthError(status);
    Err(Refused::Answer(Reply::denied(9, denied)))
}

fn written(reply: &Reply) -> Vec<u8> {
    let mut writer = Writer::datagram();
    reply.write(&mut writer);
    writer.finish().concat()
}

/// GETATTR as Linux sends it: AUTH_SYS of root on `nfs-guest`, and the handle behind it.
#[test]
fn a_call_lies_where_the_standard_says() {
    let mut bytes = words(&[0x1d2e_3f40, 0, 2, 100_003, 3, 1, 1, 40, 0x0055_aa00, 9]);
    bytes.extend(b"nfs-guest\0\0\0");
    bytes.extend(words(&[0, 7, 2, 7, 27, 0, 0, 4, 0xcafe_babe]));
    let call = Call::decode(bytes.into()).unwrap();
    assert_eq!((call.xid, call.program), (0x1d2e_3f40, 100_003));
    assert_eq!((call.version, call.procedure), (3, 1));
    let sys = AuthSys {
        stamp: 0x0055_aa00,
        machine_name: Bytes::from_static(b"nfs-guest"),
        uid: 0,
        gid: 7,
        gids: vec![7, 27],
    };
    assert_eq!(call.credential, Credential::Sys(sys));
    assert_eq!(call.verifier, OpaqueAuth::none());
    assert_eq!(call.arguments.into_rest()[..], words(&[4, 0xcafe_babe]));
}

#[test]
fn the_probe_for_tls_is_known_and_answered() {
    let probe = call(&[9, 0, 2, 100_003, 3, 0, 7, 0, 0, 0]).unwrap();
    assert_eq!(probe.credential, Credential::Tls);
    let expected = [&words(&[9, 1, 0, 0, 8])[..], b"STARTTLS", &words(&[0])].concat();
    assert_eq!(written(&Reply::starttls(9)), expected);
    // Its credential has no body.
    let with_body = call(&[9, 0, 2, 100_003, 3, 0, 7, 4, 1, 0, 0]);
    assert_eq!(with_body, denied(AuthStatus::BadCredential));
}

#[test]
fn what_can_be_answered_is() {
    let (low, high) = (2, 2);
    let mismatch = Reply::denied(9, Denied::RpcMismatch { low, high });
    assert_eq!(written(&mismatch), words(&[9, 1, 1, 0, 2, 2]));
    assert_eq!(call(&[9, 0, 3]), Err(Refused::Answer(mismatch)));

    let credential = denied(AuthStatus::BadCredential);
    let head = [9, 0, 2, 100_003, 3, 1];
    for malformed in [
        // Longer than it may be; 17 groups; a name of 256 bytes; more than it says.
        &[5, 404][..],
        &[1, 88, 0, 0, 0, 0, 17],
        &[1, 8, 0, 256],
        &[1, 24, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut bytes = [&head[..], malformed].concat();
        bytes.resize(130, 0);
        assert_eq!(call(&bytes), credential, "{malformed:?}");
    }
    assert_eq!(call(&head), credential);
    let verifier = call(&[&head[..], &[0, 0, 0, 404]].concat());
    assert_eq!(verifier, denied(AuthStatus::BadVerifier));
}

#[test]
fn what_is_no_call_is_not_answered() {
    let no_call = |error| Err(Refused::NoCall(error));
    assert_eq!(call(&[9, 1, 0]), no_call(WireError::Field("mtype")));
    assert_eq!(call(&[]), no_call(WireError::Short("xid")));
    assert_eq!(call(&[9, 0, 2, 1]), no_call(WireError::Short("vers")));
}

#[test]
fn a_credential_of_another_flavor_is_kept() {
    let call = call(&[9, 0, 2, 100_003, 3, 1, 6, 4, 0x0102_0304, 0, 0]).unwrap();
    let gss = OpaqueAuth {
        flavor: 6,
        body: Bytes::from_static(&[1, 2, 3, 4]),
    };
    assert_eq!(call.credential, Credential::Other(gss));
}

#[test]
fn replies_lie_where_the_standard_says() {
    let (low, high) = (3, 3);
    for (status, expected) in [
        (Accepted::Success, &[0][..]),
        (Accepted::ProgramUnavailable, &[1]),
        (Accepted::ProgramMismatch { low, high }, &[2, 3, 3]),
        (Accepted::ProcedureUnavailable, &[3]),
        (Accepted::GarbageArguments, &[4]),
        (Accepted::SystemError, &[5]),
    ] {
        let expected = words(&[&[9, 1, 0, 0, 0], expected].concat());
        assert_eq!(written(&Reply::accepted(9, status)), expected);
    }
    let weak = Reply::denied(9, Denied::AuthError(AuthStatus::TooWeak));
    assert_eq!(written(&weak), words(&[9, 1, 1, 1, 5]));
}
