//! Who calls: credentials and verifiers (RFC 5531 section 8.2 and appendix A, RFC 9289 section 4.1).

use bytes::Bytes;

use crate::wire::WireError;
use crate::wire::xdr::{Reader, Writer, Xdr};

/// A credential or verifier as it lies on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpaqueAuth {
    pub flavor: u32,
    /// `AUTH_BYTES_MAX` at most.
    pub body: Bytes,
}

/// What a call is done as.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credential {
    /// `AUTH_NONE`. Whatever its body is, it is undefined.
    None,
    /// `AUTH_SYS`.
    Sys(AuthSys),
    /// `AUTH_TLS`: asks whether TLS may begin, only with procedure 0. It is answered with the verifier
    /// `OpaqueAuth::starttls`, or denied with `AUTH_BADCRED`.
    Tls,
    /// A flavor that is not understood here.
    Other(OpaqueAuth),
}

/// `authsys_parms` (RFC 5531 appendix A).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthSys {
    pub stamp: u32,
    /// `MACHINE_NAME_BYTES_MAX` at most.
    pub machine_name: Bytes,
    pub uid: u32,
    pub gid: u32,
    /// `GIDS_MAX` at most, without `gid`.
    pub gids: Vec<u32>,
}

impl OpaqueAuth {
    #[must_use]
    pub fn none() -> Self {
        Self {
            flavor: AUTH_NONE,
            body: Bytes::new(),
        }
    }

    /// The verifier that answers `AUTH_TLS`: TLS begins behind this reply (RFC 9289 section 4.1).
    #[must_use]
    pub fn starttls() -> Self {
        Self {
            flavor: AUTH_NONE,
            body: Bytes::from_static(b"STARTTLS"),
        }
    }
}

impl Xdr for OpaqueAuth {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        Ok(Self {
            flavor: reader.u32(field)?,
            body: reader.opaque(field, AUTH_BYTES_MAX)?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.flavor);
        writer.opaque(&self.body);
    }
}

impl Credential {
    /// # Errors
    /// What is wrong in the body.
    pub fn decode(auth: OpaqueAuth) -> Result<Self, WireError> {
        match auth.flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => {
                let mut reader = Reader::new(auth.body);
                let sys = AuthSys::read(&mut reader, "cred")?;
                match reader.remaining() {
                    0 => Ok(Self::Sys(sys)),
                    _ => Err(WireError::Field("cred")),
                }
            }
            AUTH_TLS if auth.body.is_empty() => Ok(Self::Tls),
            AUTH_TLS => Err(WireError::Field("cred")),
            _ => Ok(Self::Other(auth)),
        }
    }

    #[must_use]
    pub fn encode(&self) -> OpaqueAuth {
        match self {
            Self::None => OpaqueAuth::none(),
            Self::Sys(sys) => {
                let mut writer = Writer::datagram();
                sys.write(&mut writer);
                OpaqueAuth {
                    flavor: AUTH_SYS,
                    body: writer.finish().concat().into(),
                }
            }
            Self::Tls => OpaqueAuth {
                flavor: AUTH_TLS,
                body: Bytes::new(),
            },
            Self::Other(auth) => auth.clone(),
        }
    }
}

impl Xdr for AuthSys {
    fn read(reader: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        let stamp = reader.u32("stamp")?;
        let machine_name = reader.opaque("machinename", MACHINE_NAME_BYTES_MAX)?;
        let (uid, gid) = (reader.u32("uid")?, reader.u32("gid")?);
        let count = reader.count("gids", GIDS_MAX)?;
        let gids = (0..count).map(|_| reader.u32("gids"));
        Ok(Self {
            stamp,
            machine_name,
            uid,
            gid,
            gids: gids.collect::<Result<_, _>>()?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.stamp);
        writer.opaque(&self.machine_name);
        writer.u32(self.uid);
        writer.u32(self.gid);
        writer.count(self.gids.len());
        for gid in &self.gids {
            writer.u32(*gid);
        }
    }
}

/// `auth_flavor`: those that are named here.
pub const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;
pub const AUTH_TLS: u32 = 7;

/// RFC 5531 section 8.2.
pub const AUTH_BYTES_MAX: u32 = 400;

/// RFC 5531 appendix A, as the next one.
pub const MACHINE_NAME_BYTES_MAX: u32 = 255;

pub const GIDS_MAX: u32 = 16;
