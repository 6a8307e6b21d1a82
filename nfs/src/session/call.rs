//! Tells the calls that are to be done from what is answered at once (RFC 5531 section 9).

use bytes::Bytes;
use portico_backend::codec::crc32c;

use super::request::Request;
use crate::limits::CHECKSUM_BYTES_MAX;
use crate::wire::WireError;
use crate::wire::program::{Again, Program, find};
use crate::wire::rpc::credential::{Credential, OpaqueAuth};
use crate::wire::rpc::reply::{Accepted, AuthStatus, Denied, Reply};
use crate::wire::rpc::{Call, Refused};

/// A call that is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inbound {
    pub xid: u32,
    pub request: Request,
    pub credential: Credential,
    /// Of the call without its xid: another call of the same xid has another one.
    pub checksum: u32,
    pub again: Again,
}

/// What a record or a datagram asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Heard {
    Call(Box<Inbound>),
    /// Nothing is done.
    Answer(Reply),
    /// TLS begins behind this answer.
    StartTls(Reply),
}

/// Whether a connection has TLS (RFC 9289).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tls {
    /// There is no certificate, or this is a datagram.
    Unavailable,
    /// A client may ask for it.
    Offered,
    Running,
}

/// What is asked for, among programs that are served in one place.
///
/// # Errors
/// It is not known whom to answer: the connection ends, a datagram is dropped.
pub fn hear(record: Bytes, programs: &[&'static Program], tls: Tls) -> Result<Heard, WireError> {
    let checksum = checksum(&record);
    let call = match Call::decode(record) {
        Ok(call) => call,
        Err(Refused::NoCall(error)) => return Err(error),
        Err(Refused::Answer(reply)) => return Ok(Heard::Answer(reply)),
    };
    let xid = call.xid;
    if call.credential == Credential::Tls {
        return Ok(probe(&call, tls));
    }
    if let Err(status) = check_auth(&call) {
        let denied = Denied::AuthError(status);
        return Ok(Heard::Answer(Reply::denied(xid, denied)));
    }
    let accepted = |status| Ok(Heard::Answer(Reply::accepted(xid, status)));
    let (program, row) = match find(programs, call.program, call.version, call.procedure) {
        Ok(found) => found,
        Err(status) => return accepted(status),
    };
    let Ok(request) = Request::decode(program, row, call.arguments) else {
        return accepted(Accepted::GarbageArguments);
    };
    Ok(Heard::Call(Box::new(Inbound {
        xid,
        request,
        credential: call.credential,
        checksum,
        again: row.again,
    })))
}

/// `AUTH_TLS` asks with procedure 0 of any program, once, and before TLS runs (RFC 9289 section 4.1).
fn probe(call: &Call, tls: Tls) -> Heard {
    if tls == Tls::Offered && call.procedure == 0 {
        return Heard::StartTls(Reply::starttls(call.xid));
    }
    let denied = Denied::AuthError(AuthStatus::BadCredential);
    Heard::Answer(Reply::denied(call.xid, denied))
}

/// The verifiers of the flavors that are understood are empty (RFC 5531 section 8.2).
fn check_auth(call: &Call) -> Result<(), AuthStatus> {
    match &call.credential {
        Credential::None | Credential::Sys(_) if call.verifier == OpaqueAuth::none() => Ok(()),
        Credential::None | Credential::Sys(_) => Err(AuthStatus::BadVerifier),
        Credential::Tls | Credential::Other(_) => Err(AuthStatus::BadCredential),
    }
}

/// The data of a long WRITE is not looked at: that it has this length is.
fn checksum(record: &[u8]) -> u32 {
    let call = record.get(4..).unwrap_or_default();
    let length = u64::try_from(call.len()).expect("64 bits fit");
    let head = &call[..call.len().min(CHECKSUM_BYTES_MAX)];
    crc32c(head) ^ crc32c(&length.to_be_bytes())
}
