//! Who asks: signatures as pure functions of message, secret and time.

use std::sync::Arc;

use portico_backend::catalog::Credential;

use crate::error::S3Error;
use crate::wire::RequestHead;

/// Finds the credential of an access key id.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Credential>>;

/// Who sent a request.
#[derive(Clone, Debug)]
pub enum Identity {
    Anonymous,
    User(Arc<Credential>),
}

/// What the signature says about the body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing: no signature, an old one, a presigned URL, or `UNSIGNED-PAYLOAD`.
    Unsigned,
    /// SHA-256 of the body as sent.
    Sha256([u8; 32]),
}

/// A request whose signature is right, or which has none.
#[derive(Clone, Debug)]
pub struct Verified {
    pub identity: Identity,
    pub payload: Payload,
}

/// Checks signatures for one region. Shared by all connections.
#[derive(Debug)]
pub struct Verifier {
    region: String,
    signature_v2: bool,
}

impl Verifier {
    /// `signature_v2` switches the old signatures on.
    #[must_use]
    pub fn new(region: &str, signature_v2: bool) -> Self {
        Self {
            region: region.to_owned(),
            signature_v2,
        }
    }

    /// Checks the signature in headers or query. A request without any is anonymous.
    ///
    /// # Errors
    /// `AccessDenied`, `InvalidAccessKeyId`, `SignatureDoesNotMatch`, `RequestTimeTooSkewed`,
    /// `AuthorizationHeaderMalformed`, ... as S3 answers.
    pub fn verify(
        &self,
        head: &RequestHead<'_>,
        now_ms: u64,
        lookup: Lookup<'_>,
    ) -> Result<Verified, S3Error> {
        let _unused = (head, now_ms, lookup, &self.region, self.signature_v2);
        todo!()
    }
}
