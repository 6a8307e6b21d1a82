//! What a signature says about the body, and the signatures inside of a signed `aws-chunked` body.

use ring::{digest, hmac};

use super::encoding::{hex, unhex};
use crate::error::{Code, S3Error};

/// What is known of a body before it arrives.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing: no signature, an old one, a presigned URL, or `UNSIGNED-PAYLOAD`.
    Unsigned,
    /// SHA-256 of the body.
    Sha256([u8; 32]),
    /// The body is `aws-chunked`.
    Chunked {
        /// Checks each chunk; `None` if chunks are not signed.
        signer: Option<ChunkSigner>,
        /// Whether trailers follow the last chunk.
        trailer: bool,
    },
}

/// The chain of signatures of a body: each covers the one before, the first that of the head
/// (S3 API, "Transferring payload in multiple chunks").
#[derive(Clone, Debug)]
pub struct ChunkSigner {
    key: hmac::Key,
    /// Time and scope, each with a line feed behind.
    context: String,
    previous: String,
}

impl ChunkSigner {
    /// `time` and `scope` as in the string to sign of the head; `signature` is that of the head.
    #[must_use]
    pub fn new(key: hmac::Key, time: &str, scope: &str, signature: &str) -> Self {
        Self {
            key,
            context: format!("{time}\n{scope}\n"),
            previous: signature.to_owned(),
        }
    }

    /// Checks the signature of a chunk with this SHA-256.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`.
    pub fn check_chunk(&mut self, sha256: &digest::Digest, signature: &str) -> Result<(), S3Error> {
        let empty = hex(digest::digest(&digest::SHA256, b"").as_ref());
        let message = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}{}\n{empty}\n{}",
            self.context,
            self.previous,
            hex(sha256.as_ref())
        );
        self.check(&message, signature)
    }

    /// Checks the signature of the trailers, given as `name:value` lines, each with a line feed.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`.
    pub fn check_trailer(&mut self, lines: &str, signature: &str) -> Result<(), S3Error> {
        let message = format!(
            "AWS4-HMAC-SHA256-TRAILER\n{}{}\n{}",
            self.context,
            self.previous,
            hex(digest::digest(&digest::SHA256, lines.as_bytes()).as_ref())
        );
        self.check(&message, signature)
    }

    fn check(&mut self, message: &str, signature: &str) -> Result<(), S3Error> {
        let given = unhex(signature).unwrap_or_default();
        hmac::verify(&self.key, message.as_bytes(), &given)
            .map_err(|_| S3Error::new(Code::SignatureDoesNotMatch))?;
        signature.clone_into(&mut self.previous);
        Ok(())
    }
}
