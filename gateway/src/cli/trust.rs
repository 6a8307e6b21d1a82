//! Whom a command trusts: the certificates of `--ca-file`, whether they signed the server's or are
//! the server's own.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::error::{Exit, Failure};

/// What a TLS client needs that trusts the certificates in `ca_file` and nothing else.
///
/// # Errors
/// `Exit::Usage` if the file cannot be read or holds no certificate.
pub(super) fn client_config(ca_file: &Path) -> Result<ClientConfig, Failure> {
    let cannot = |error: &(dyn std::error::Error + 'static)| {
        Failure::from_source(format!("cannot use {}", ca_file.display()), error)
            .with_exit(Exit::Usage)
    };
    let mut trusted = Vec::new();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file).map_err(|error| cannot(&error))? {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots
            .add(certificate.clone())
            .map_err(|error| cannot(&error))?;
        trusted.push(certificate);
    }
    if trusted.is_empty() {
        let what = format!("{} holds no certificate in PEM", ca_file.display());
        return Err(Failure::new(Exit::Usage, what));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| cannot(&error))?;
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| cannot(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust {
            chain,
            trusted,
            provider,
        }))
        .with_no_client_auth();
    Ok(config)
}

/// A chain to one of the certificates, or one of them itself. The latter is more than the usual
/// check allows for one that calls itself an authority (`CA:TRUE`), and that is what `openssl req
/// -x509` makes unless told otherwise.
#[derive(Debug)]
struct Trust {
    chain: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chain
                .verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        match verified {
            // Its dates were checked before (webpki looks at them first); its name was not.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.trusted.iter().any(|one| one == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
