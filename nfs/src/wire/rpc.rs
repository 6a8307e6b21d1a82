//! Remote procedure calls (RFC 5531): the head of every call and reply.
//!
//! [`credential`] says who calls, [`reply`] what a call is answered.

pub mod credential;
pub mod reply;

use bytes::Bytes;

use self::credential::{Credential, OpaqueAuth};
use self::reply::{AuthStatus, Denied, Reply};
use super::WireError;
use super::xdr::{Reader, Writer, Xdr};

/// A call with its arguments, which are not looked at yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The client's number for it, the same in a retransmission.
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credential: Credential,
    /// Empty with every flavor that is understood.
    pub verifier: OpaqueAuth,
    pub arguments: Reader,
}

/// Why there is no call in a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// It is not known whom to answer, or this is no call: close the connection, drop the datagram.
    NoCall(WireError),
    /// To be answered thus.
    Answer(Reply),
}

impl Call {
    /// # Errors
    /// See `Refused`. Another version of RPC is `RPC_MISMATCH`, a malformed credential `AUTH_BADCRED`, and a
    /// malformed verifier `AUTH_BADVERF`.
    pub fn decode(record: Bytes) -> Result<Self, Refused> {
        let mut reader = Reader::new(record);
        let xid = reader.u32("xid").map_err(Refused::NoCall)?;
        let kind = reader.u32("mtype").map_err(Refused::NoCall)?;
        if kind != CALL {
            return Err(Refused::NoCall(WireError::Field("mtype")));
        }
        let version = reader.u32("rpcvers").map_err(Refused::NoCall)?;
        if version != RPC_VERSION {
            let (low, high) = (RPC_VERSION, RPC_VERSION);
            let denied = Denied::RpcMismatch { low, high };
            return Err(Refused::Answer(Reply::denied(xid, denied)));
        }
        let [program, version, procedure] =
            three(&mut reader, ["prog", "vers", "proc"]).map_err(Refused::NoCall)?;
        let denied = |status| Refused::Answer(Reply::denied(xid, Denied::AuthError(status)));
        let credential = OpaqueAuth::read(&mut reader, "cred")
            .and_then(Credential::decode)
            .map_err(|_| denied(AuthStatus::BadCredential))?;
        let verifier =
            OpaqueAuth::read(&mut reader, "verf").map_err(|_| denied(AuthStatus::BadVerifier))?;
        Ok(Self {
            xid,
            program,
            version,
            procedure,
            credential,
            verifier,
            arguments: reader,
        })
    }

    /// The head of it, as a client sends it; arguments follow. Those that were read are not written.
    pub fn write_head(&self, writer: &mut Writer) {
        writer.u32(self.xid);
        writer.u32(CALL);
        writer.u32(RPC_VERSION);
        writer.u32(self.program);
        writer.u32(self.version);
        writer.u32(self.procedure);
        self.credential.encode().write(writer);
        self.verifier.write(writer);
    }
}

fn three(reader: &mut Reader, fields: [&'static str; 3]) -> Result<[u32; 3], WireError> {
    let [a, b, c] = fields;
    Ok([reader.u32(a)?, reader.u32(b)?, reader.u32(c)?])
}

/// `msg_type` (section 9).
const CALL: u32 = 0;
const REPLY: u32 = 1;

const RPC_VERSION: u32 = 2;

#[cfg(test)]
mod tests;
