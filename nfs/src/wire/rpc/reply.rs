//! What a call is answered (RFC 5531 section 9).

use bytes::Bytes;

use super::REPLY;
use super::credential::OpaqueAuth;
use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr, codes};

/// The head of an answer. After `Accepted::Success` the results follow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    pub xid: u32,
    pub body: ReplyBody,
}

/// `reply_body`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReplyBody {
    Accepted {
        verifier: OpaqueAuth,
        status: Accepted,
    },
    Denied(Denied),
}

/// `accept_stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accepted {
    /// `SUCCESS`: what the procedure says follows.
    Success,
    /// `PROG_UNAVAIL`.
    ProgramUnavailable,
    /// `PROG_MISMATCH`: the lowest and highest version there is.
    ProgramMismatch { low: u32, high: u32 },
    /// `PROC_UNAVAIL`.
    ProcedureUnavailable,
    /// `GARBAGE_ARGS`: a `WireError` of the arguments.
    GarbageArguments,
    /// `SYSTEM_ERR`.
    SystemError,
}

/// `rejected_reply`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Denied {
    /// `RPC_MISMATCH`: the lowest and highest version of RPC there is.
    RpcMismatch { low: u32, high: u32 },
    /// `AUTH_ERROR`.
    AuthError(AuthStatus),
}

codes! {
    /// `auth_stat` without `AUTH_OK`, which no error is.
    pub enum AuthStatus {
        BadCredential = 1 "AUTH_BADCRED",
        RejectedCredential = 2 "AUTH_REJECTEDCRED",
        BadVerifier = 3 "AUTH_BADVERF",
        RejectedVerifier = 4 "AUTH_REJECTEDVERF",
        /// Another flavor is needed; also a port that an export does not take.
        TooWeak = 5 "AUTH_TOOWEAK",
        InvalidResponse = 6 "AUTH_INVALIDRESP",
        Failed = 7 "AUTH_FAILED",
        GssCredentialProblem = 13 "RPCSEC_GSS_CREDPROBLEM",
        GssContextProblem = 14 "RPCSEC_GSS_CTXPROBLEM",
    }
}

impl Reply {
    /// An accepted one with an empty verifier.
    #[must_use]
    pub fn accepted(xid: u32, status: Accepted) -> Self {
        let verifier = OpaqueAuth::none();
        let body = ReplyBody::Accepted { verifier, status };
        Self { xid, body }
    }

    #[must_use]
    pub fn denied(xid: u32, denied: Denied) -> Self {
        let body = ReplyBody::Denied(denied);
        Self { xid, body }
    }

    /// The answer to the probe of a client that would like TLS, which begins behind it.
    #[must_use]
    pub fn starttls(xid: u32) -> Self {
        let (verifier, status) = (OpaqueAuth::starttls(), Accepted::Success);
        let body = ReplyBody::Accepted { verifier, status };
        Self { xid, body }
    }

    /// A reply and what follows it, as a client reads it.
    ///
    /// # Errors
    /// `Short`, `Field`, `Length`.
    pub fn decode(record: Bytes) -> Result<(Self, Reader), WireError> {
        let mut reader = Reader::new(record);
        let reply = Self::read(&mut reader, "reply")?;
        Ok((reply, reader))
    }
}

impl Xdr for Reply {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        let xid = reader.u32("xid")?;
        if reader.u32("mtype")? != REPLY {
            return Err(WireError::Field("mtype"));
        }
        let body = match reader.u32("reply_stat")? {
            MSG_ACCEPTED => ReplyBody::Accepted {
                verifier: OpaqueAuth::read(reader, "verf")?,
                status: Accepted::read(reader, field)?,
            },
            MSG_DENIED => ReplyBody::Denied(Denied::read(reader, field)?),
            _ => return Err(WireError::Field("reply_stat")),
        };
        Ok(Self { xid, body })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.xid);
        writer.u32(REPLY);
        match &self.body {
            ReplyBody::Accepted { verifier, status } => {
                writer.u32(MSG_ACCEPTED);
                verifier.write(writer);
                status.write(writer);
            }
            ReplyBody::Denied(denied) => {
                writer.u32(MSG_DENIED);
                denied.write(writer);
            }
        }
    }
}

impl Xdr for Accepted {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        Ok(match reader.u32("accept_stat")? {
            0 => Self::Success,
            1 => Self::ProgramUnavailable,
            2 => Self::ProgramMismatch {
                low: reader.u32("low")?,
                high: reader.u32("high")?,
            },
            3 => Self::ProcedureUnavailable,
            4 => Self::GarbageArguments,
            5 => Self::SystemError,
            _ => return Err(WireError::Field("accept_stat")),
        })
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Success => writer.u32(0),
            Self::ProgramUnavailable => writer.u32(1),
            Self::ProgramMismatch { low, high } => {
                writer.u32(2);
                writer.u32(*low);
                writer.u32(*high);
            }
            Self::ProcedureUnavailable => writer.u32(3),
            Self::GarbageArguments => writer.u32(4),
            Self::SystemError => writer.u32(5),
        }
    }
}

impl Xdr for Denied {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        Ok(match reader.u32("reject_stat")? {
            0 => Self::RpcMismatch {
                low: reader.u32("low")?,
                high: reader.u32("high")?,
            },
            1 => Self::AuthError(AuthStatus::read(reader, "auth_stat")?),
            _ => return Err(WireError::Field("reject_stat")),
        })
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::RpcMismatch { low, high } => {
                writer.u32(0);
                writer.u32(*low);
                writer.u32(*high);
            }
            Self::AuthError(status) => {
                writer.u32(1);
                status.write(writer);
            }
        }
    }
}

/// `reply_stat`.
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
