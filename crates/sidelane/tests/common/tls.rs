//! Certificates from openssl, and clients that speak TLS.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

/// Host for which certificates are issued.
pub const HOST: &str = "proxy.test";

/// Certificate that certifies itself, and its key, as PEM files.
#[derive(Clone)]
pub struct Certificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    /// Issues a certificate for [`HOST`], as files with this name; `None` without openssl.
    pub fn issue(dir: &Path, name: &str) -> Option<Self> {
        let paths = Self { cert: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) };
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-days", "3650", "-subj", &format!("/CN={name}"), "-addext"]);
        command.args([&format!("subjectAltName=DNS:{HOST}"), "-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-out").arg(&paths.cert).arg("-keyout").arg(&paths.key).stderr(Stdio::null());
        let Ok(status) = command.status() else {
            sidelane_testing::skip("needs openssl: apt-get install openssl");
            return None;
        };
        assert!(status.success(), "openssl issues a certificate");
        Some(paths)
    }

    /// Returns the certificate as it is sent to clients.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.cert).expect("a certificate")
    }

    /// Returns the settings of clients that trust this certificate, for these versions of TLS.
    pub fn client_config(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).expect("known versions");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Connects a client that trusts this certificate.
    pub fn connect(&self, address: SocketAddr) -> TlsClient {
        connect(&self.client_config(rustls::ALL_VERSIONS), address)
    }
}

/// Client with TLS. Reading its last byte does the handshake first.
pub type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Connects a client with these settings. A client with settings that were used before may resume its session.
pub fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> TlsClient {
    let socket = TcpStream::connect(address).expect("the proxy listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    wrap(config, socket)
}

/// Makes a client with these settings on a connection.
pub fn wrap(config: &Arc<ClientConfig>, socket: TcpStream) -> TlsClient {
    let name = ServerName::try_from(HOST).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).expect("a session"), socket)
}
