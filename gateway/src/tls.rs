//! Certificates for listeners. They change without a restart: the files are looked at now and then
//! and on SIGHUP, and a new connection gets what was read last. Files that cannot be used leave the
//! certificate in place as it was.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::error::{Exit, Failure};
use crate::limits::SMALL_FILE_BYTES_MAX;

/// The certificate of one listener, with the files it comes from.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: TlsFiles,
    /// What was in the files when they were last read, whether or not it could be used.
    seen: Mutex<Content>,
    current: Arc<Current>,
}

/// What a look at the files led to.
#[derive(Debug)]
pub(crate) enum Reload {
    Unchanged,
    Replaced,
    /// The former certificate stays in use.
    Refused(Failure),
}

impl Certificates {
    /// # Errors
    /// If a file cannot be read or the key does not belong to the certificate.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, Failure> {
        let content = Content::read(&files);
        let key = content.certified(&files)?;
        Ok(Self {
            files,
            seen: Mutex::new(content),
            current: Arc::new(Current(RwLock::new(Arc::new(key)))),
        })
    }

    /// Reads the files again and takes what is in them if it changed since they were last read.
    pub(crate) fn reload(&self) -> Reload {
        let found = Content::read(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_same(&found) {
            return Reload::Unchanged;
        }
        *seen = found;
        match seen.certified(&self.files) {
            Ok(key) => {
                let mut current = self
                    .current
                    .0
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                *current = Arc::new(key);
                Reload::Replaced
            }
            Err(failure) => Reload::Refused(failure),
        }
    }

    pub(crate) fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Shakes hands with the certificate that is current at that moment.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has cipher suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Answers every handshake with the certificate in place.
struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

/// What is in the files. Times of change are too coarse to tell whether a file was written again.
struct Content {
    certificate: io::Result<Vec<u8>>,
    key: io::Result<Vec<u8>>,
}

impl Content {
    fn read(files: &TlsFiles) -> Self {
        Self {
            certificate: small_file(&files.certificate),
            key: small_file(&files.key),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same = |one: &io::Result<Vec<u8>>, other: &io::Result<Vec<u8>>| match (one, other) {
            (Ok(one), Ok(other)) => one == other,
            (Err(one), Err(other)) => one.kind() == other.kind(),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        same(&self.certificate, &other.certificate) && same(&self.key, &other.key)
    }

    fn certified(&self, files: &TlsFiles) -> Result<CertifiedKey, Failure> {
        let of = |name: &str| format!("{}.{name}", files.table);
        let chain = self
            .chain(&files.certificate)
            .map_err(|failure| failure.of_key(&of("certificate")))?;
        self.key_of(chain, files)
            .map_err(|failure| failure.of_key(&of("key")))
    }

    fn chain(&self, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
        let pem = readable(&self.certificate, path)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| not_usable(path, "is not valid PEM", &error))?;
        if chain.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                format!("{} holds no certificate", path.display()),
            )
            .with_help("it must be PEM with the certificate first and its chain behind it"));
        }
        Ok(chain)
    }

    fn key_of(
        &self,
        chain: Vec<CertificateDer<'static>>,
        files: &TlsFiles,
    ) -> Result<CertifiedKey, Failure> {
        let pem = readable(&self.key, &files.key)?;
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| not_usable(&files.key, "holds no private key in PEM", &error))?;
        let key = any_supported_type(&key).map_err(|error| {
            not_usable(&files.key, "holds a key of an unsupported kind", &error)
        })?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|error| {
            let what = format!(
                "does not fit the certificate {}",
                files.certificate.display()
            );
            not_usable(&files.key, &what, &error)
        })?;
        Ok(certified)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content")
    }
}

fn small_file(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > SMALL_FILE_BYTES_MAX {
        return Err(io::Error::other("the file is too large"));
    }
    fs::read(path)
}

fn readable<'a>(content: &'a io::Result<Vec<u8>>, path: &Path) -> Result<&'a [u8], Failure> {
    content.as_deref().map_err(|error| {
        Failure::from_source(format!("cannot read {}", path.display()), error)
            .with_exit(Exit::Usage)
    })
}

fn not_usable(path: &Path, what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::from_source(format!("{} {what}", path.display()), error).with_exit(Exit::Usage)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A certificate for `localhost`, written to `directory`; its DER form comes back.
    pub(crate) fn write_certificate(directory: &Path) -> (TlsFiles, Vec<u8>) {
        let files = TlsFiles {
            table: "s3.listen.tls",
            certificate: directory.join("certificate.pem"),
            key: directory.join("key.pem"),
        };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&files.certificate, made.cert.pem()).unwrap();
        fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        (files, made.cert.der().to_vec())
    }

    fn shown(certificates: &Certificates) -> Vec<u8> {
        let current = certificates.current.0.read().unwrap();
        current.cert[0].to_vec()
    }

    #[test]
    fn a_changed_certificate_is_taken_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (files, first) = write_certificate(directory.path());
        let certificates = Certificates::load(files.clone()).unwrap();
        assert_eq!(shown(&certificates), first);
        assert!(matches!(certificates.reload(), Reload::Unchanged));

        let (_, second) = write_certificate(directory.path());
        assert!(matches!(certificates.reload(), Reload::Replaced));
        assert_eq!(shown(&certificates), second);
        assert_ne!(first, second);

        for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n", "garbage"] {
            fs::write(&files.certificate, broken).unwrap();
            assert!(
                matches!(certificates.reload(), Reload::Refused(_)),
                "{broken}"
            );
            assert_eq!(shown(&certificates), second);
            // It is told once, not at every look.
            assert!(matches!(certificates.reload(), Reload::Unchanged));
        }
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(certificates.reload(), Reload::Refused(_)));

        let (_, third) = write_certificate(directory.path());
        assert!(matches!(certificates.reload(), Reload::Replaced));
        assert_eq!(shown(&certificates), third);
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (files, _) = write_certificate(one.path());
        let (strange, _) = write_certificate(other.path());
        let mixed = TlsFiles {
            key: strange.key,
            ..files
        };
        let failure = Certificates::load(mixed).unwrap_err().to_string();
        assert!(
            failure.contains("does not fit the certificate"),
            "{failure}"
        );
        let missing = TlsFiles {
            table: "admin.tcp.tls",
            certificate: PathBuf::from("/nowhere/certificate.pem"),
            key: PathBuf::from("/nowhere/key.pem"),
        };
        let failure = Certificates::load(missing).unwrap_err().to_string();
        assert!(failure.contains("/nowhere/certificate.pem"), "{failure}");
    }
}
