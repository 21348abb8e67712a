//! TLS to clients: the certificate and its key, read from files, and read again when they were renewed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use thiserror::Error;

use crate::config::Protocol;

/// Files with the certificate and the key of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the certificates: the proxy's own first, then those that certify it.
    pub cert: PathBuf,
    /// PEM file with the private key of the first certificate.
    pub key: PathBuf,
}

/// Reason why certificate and key cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} {}: {error}; name a PEM file that this user may read", .path.display())]
    Unreadable {
        /// Content that was expected in the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A file has no such content.
    #[error("cannot use the {what} {}: {why}; write it as PEM, {form}", .path.display())]
    Unusable {
        /// Content that was expected in the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the content.
        why: String,
        /// Form that the content must have.
        form: &'static str,
    },
    /// Certificate and key are not a pair.
    #[error(
        "cannot use the private key {} with the certificate {}: they do not belong together; name the key for which \
         the certificate was issued",
        .0.key.display(),
        .0.cert.display()
    )]
    Mismatch(TlsFiles),
    /// The cryptographic library cannot work.
    #[error("cannot set up TLS: {0}; report this as a bug")]
    Library(rustls::Error),
}

const CERTIFICATE: &str = "certificate";
const CERTIFICATE_FORM: &str = "the proxy's own certificate first";
const KEY: &str = "private key";
const KEY_FORM: &str = "not encrypted: RSA of at least 2048 bits, ECDSA P-256 or P-384, or Ed25519";

/// TLS of one proxy. All its connections share the settings, and the secret of session tickets.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    certificate: Arc<PresentCertificate>,
}

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the two do not belong together.
    pub fn open(files: &TlsFiles, protocol: Protocol) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let present = read_certified_key(files, &provider)?;
        let certificate = Arc::new(PresentCertificate(RwLock::new(Arc::new(present))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificate) as _);
        // Tickets need no memory per client, and are valid for all threads of the proxy.
        config.ticketer = ring::Ticketer::new().map_err(TlsError::Library)?;
        if protocol == Protocol::Http {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        Ok(Self { files: files.clone(), config: Arc::new(config), certificate })
    }

    /// Reads certificate and key again, for new connections. On an error, the old ones stay in use.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Self::open`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let renewed = read_certified_key(&self.files, self.config.crypto_provider())?;
        *self.certificate.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(renewed);
        Ok(())
    }

    /// Returns the settings for connections.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Certificate that new connections get. It is read once in each full handshake, and replaced by a reload.
#[derive(Debug)]
struct PresentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for PresentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn read_certified_key(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let unusable = |what, path: &Path, form| {
        let path = path.to_owned();
        move |why: String| TlsError::Unusable { what, path, why, form }
    };
    let not_a_certificate = unusable(CERTIFICATE, &files.cert, CERTIFICATE_FORM);
    let not_a_key = unusable(KEY, &files.key, KEY_FORM);
    let text = read_file(CERTIFICATE, &files.cert)?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = match chain {
        Ok(chain) if !chain.is_empty() => chain,
        Ok(_) => return Err(not_a_certificate("it has no section CERTIFICATE".to_owned())),
        Err(error) => return Err(not_a_certificate(error.to_string())),
    };
    let key = match PrivateKeyDer::from_pem_slice(&read_file(KEY, &files.key)?) {
        Ok(key) => key,
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            return Err(not_a_key("it has no section PRIVATE KEY".to_owned()));
        }
        Err(error) => return Err(not_a_key(error.to_string())),
    };
    let signing = provider.key_provider.load_private_key(key).map_err(|error| not_a_key(error.to_string()))?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::Mismatch(files.clone())),
        Err(error) => Err(not_a_certificate(error.to_string())),
    }
}

fn read_file(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable { what, path: path.to_owned(), error })
}
