//! The cluster's API server, as a pod reaches it: by the environment variables that the kubelet sets, and the mounted
//! token of its service account.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Folder in a pod with the token of its service account and the API server's certificate authority.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Time for a request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Time after which the API server ends a watch: a connection may be lost without a trace.
const WATCH_S: u64 = 300;
/// Largest answer. etcd stores no larger object.
const ANSWER_MAX: usize = 4 << 20;

/// The API server of a pod's cluster.
pub struct ApiServer {
    host: String,
    port: u16,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    /// File with the token, which the kubelet replaces before it expires.
    token: PathBuf,
}

impl ApiServer {
    /// Returns the API server of this pod's cluster, for the service account in a folder.
    ///
    /// # Errors
    /// If this process has no such environment variables or files.
    pub fn of_this_pod(service_account: &Path) -> Result<Self> {
        let read = |name| {
            env::var(name).ok().with_context(|| {
                format!("cannot find the API server: {name} is not set; run sidelane-kube in a pod, or set it")
            })
        };
        let port = read("KUBERNETES_SERVICE_PORT")?;
        let number = port.parse().with_context(|| {
            format!("cannot find the API server: KUBERNETES_SERVICE_PORT is {port:?}; set it to a number")
        })?;
        Self::new(read("KUBERNETES_SERVICE_HOST")?, number, service_account)
    }

    /// Returns the API server at an address, for the service account in a folder.
    ///
    /// # Errors
    /// If the folder has no certificate.
    pub(crate) fn new(host: String, port: u16, account: &Path) -> Result<Self> {
        let authority = account.join("ca.crt");
        let roots = read_roots(&authority).with_context(|| {
            format!(
                "cannot read certificates from {}; mount the token of a service account, or name its folder by \
                 --service-account",
                authority.display()
            )
        })?;
        let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = versions.with_safe_default_protocol_versions().context("cannot speak TLS")?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let server_name = ServerName::try_from(host.clone())
            .with_context(|| format!("cannot find the API server: {host:?} is no name; set KUBERNETES_SERVICE_HOST"))?;
        Ok(Self { host, port, server_name, tls: TlsConnector::from(Arc::new(config)), token: account.join("token") })
    }

    /// Returns the object at a path; `None` if there is none.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        self.ask(Method::GET, path, None).await
    }

    /// Creates an object in the list at a path, and returns what is stored.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let stored = self.ask(Method::POST, path, Some(object)).await?;
        stored.with_context(|| format!("{} has no {path}; it needs Kubernetes 1.34 or later", self.describe()))
    }

    /// Replaces the object at a path by its next version, and returns what is stored.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses: also if another version is stored.
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value> {
        let stored = self.ask(Method::PUT, path, Some(object)).await?;
        stored.with_context(|| format!("{path} is gone from {}", self.describe()))
    }

    /// Deletes the object at a path, if it is there.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn delete(&self, path: &str) -> Result<()> {
        self.ask(Method::DELETE, path, None).await.map(drop)
    }

    /// Waits until an object of the list at a path is no longer at this version, or for five minutes.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub async fn watch(&self, path: &str, name: &str, version: &str) -> Result<()> {
        let path = format!(
            "{path}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}&timeoutSeconds={WATCH_S}"
        );
        let watched = async {
            let mut response = self.send(Method::GET, &path, None).await?;
            if !response.status().is_success() {
                return read_answer(response).await.map(drop);
            }
            // Each event may be a change; the reader compares.
            response.frame().await.transpose()?;
            Ok(())
        };
        match timeout(Duration::from_secs(WATCH_S) + REQUEST_WITHIN, watched).await {
            Ok(watched) => watched.with_context(|| format!("cannot watch {path} at {}", self.describe())),
            Err(_) => Ok(()),
        }
    }

    async fn ask(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Option<Value>> {
        let asked = async { read_answer(self.send(method.clone(), path, object).await?).await };
        let answer = timeout(REQUEST_WITHIN, asked).await;
        let answer = answer.unwrap_or_else(|_| bail!("no answer within {} s", REQUEST_WITHIN.as_secs()));
        answer.with_context(|| format!("cannot {method} {path} at {}", self.describe()))
    }

    async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Response<Incoming>> {
        let token = fs::read_to_string(&self.token)
            .with_context(|| format!("cannot read {}; mount the token of a service account", self.token.display()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.authority())
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(object.map_or_else(Bytes::new, |object| Bytes::from(object.to_string()))))?;
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let stream = self.tls.connect(self.server_name.clone(), socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { connection.await.is_ok() });
        Ok(sender.send_request(request).await?)
    }

    fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn describe(&self) -> String {
        format!("the API server {}", self.authority())
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        bail!("it has none");
    }
    Ok(roots)
}

/// Reads the object in an answer; `None` if there is none at its path.
async fn read_answer(response: Response<Incoming>) -> Result<Option<Value>> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
    object_of(status, &body)
}

/// Returns the object in an answer; `None` if there is none at its path.
fn object_of(status: StatusCode, body: &[u8]) -> Result<Option<Value>> {
    let object = serde_json::from_slice::<Value>(body);
    if status.is_success() {
        return object.map(Some).with_context(|| format!("the answer to {status} is no JSON"));
    }
    if status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let message = object.ok().and_then(|object| object["message"].as_str().map(str::to_owned)).unwrap_or_default();
    let remedy = match status {
        StatusCode::UNAUTHORIZED => "; mount the token of its service account",
        StatusCode::FORBIDDEN => "; apply packaging/kubernetes/dra, which has the role",
        _ => "",
    };
    bail!("{status}: {message}{remedy}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;
    use std::process::{Command, Stdio};

    use http_body_util::StreamBody;
    use http_body_util::combinators::BoxBody;
    use hyper::body::Frame;
    use hyper::server::conn::http1 as http1_server;
    use hyper::service::service_fn;
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::net::TcpListener;
    use tokio::sync::{Notify, mpsc};
    use tokio_rustls::TlsAcceptor;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    const HOST: &str = "127.0.0.1";

    /// Makes the folder of a service account; `None` without openssl.
    pub(crate) fn account() -> Option<TempDir> {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = (dir.path().join("ca.crt"), dir.path().join("key.pem"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-days", "3650", "-subj", "/CN=test", "-addext", &format!("subjectAltName=IP:{HOST}")]);
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-out").arg(cert).arg("-keyout").arg(key).stderr(Stdio::null());
        let Ok(status) = command.status() else {
            sidelane_testing::skip("needs openssl: apt-get install openssl");
            return None;
        };
        assert!(status.success(), "openssl issues a certificate");
        fs::write(dir.path().join("token"), "first\n").unwrap();
        Some(dir)
    }

    /// Answers requests at the account's certificate, and returns the client of this server.
    pub(crate) async fn serve(
        account: &Path,
        answer: impl Fn(Request<Bytes>) -> (StatusCode, Body) + Clone + Send + 'static,
    ) -> ApiServer {
        let certificate = CertificateDer::from_pem_file(account.join("ca.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(account.join("key.pem")).unwrap();
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = versions.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![certificate], key).unwrap());
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (config, answer) = (Arc::clone(&config), answer.clone());
                tokio::spawn(async move {
                    let stream = TlsAcceptor::from(config).accept(socket).await.unwrap();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = answer.clone();
                        async move {
                            let (head, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            let (status, body) = answer(Request::from_parts(head, body));
                            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
                        }
                    });
                    http1_server::Builder::new().serve_connection(TokioIo::new(stream), service).await.is_ok()
                });
            }
        });
        ApiServer::new(HOST.to_owned(), port, account).unwrap()
    }

    /// Body of an answer.
    pub(crate) type Body = BoxBody<Bytes, Infallible>;

    pub(crate) fn body(object: &Value) -> Body {
        Full::new(Bytes::from(object.to_string())).boxed()
    }

    /// Returns a body with one event, which comes when `happens` is notified.
    pub(crate) fn event(happens: Arc<Notify>) -> Body {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            happens.notified().await;
            let _ = sender.send(Ok(Frame::data(Bytes::from_static(b"{}\n")))).await;
            // The API server goes on with the watch.
            sender.closed().await;
        });
        StreamBody::new(ReceiverStream::new(receiver)).boxed()
    }

    #[tokio::test]
    async fn objects_are_read_with_the_token_of_the_moment() {
        let Some(account) = account() else { return };
        let api = serve(account.path(), |request| {
            let token = request.headers()[AUTHORIZATION].to_str().unwrap();
            (StatusCode::OK, body(&json!({"path": request.uri().path(), "token": token})))
        })
        .await;
        let first = api.get("/api/v1/nodes/one").await.unwrap();
        assert_eq!(first, Some(json!({"path": "/api/v1/nodes/one", "token": "Bearer first"})));
        fs::write(account.path().join("token"), "second").unwrap();
        assert_eq!(api.get("/x").await.unwrap().unwrap()["token"], "Bearer second");
        fs::remove_file(account.path().join("token")).unwrap();
        let refused = format!("{:#}", api.get("/x").await.unwrap_err());
        assert!(refused.contains("mount the token of a service account"), "{refused}");
    }

    #[tokio::test]
    async fn a_refusal_says_why_and_what_to_do() {
        let Some(account) = account() else { return };
        let api = serve(account.path(), |request| match *request.method() {
            Method::DELETE => (StatusCode::NOT_FOUND, body(&json!({}))),
            Method::PUT => (StatusCode::CONFLICT, body(&json!({"message": "the object has been modified"}))),
            _ => (StatusCode::FORBIDDEN, body(&json!({"message": "cannot create slices"}))),
        })
        .await;
        api.delete("/x").await.unwrap();
        let refused = format!("{:#}", api.create("/x", &json!({})).await.unwrap_err());
        assert!(refused.starts_with("cannot POST /x at the API server 127.0.0.1:"), "{refused}");
        assert!(refused.ends_with("cannot create slices; apply packaging/kubernetes/dra, which has the role"));
        let refused = format!("{:#}", api.replace("/x", &json!({})).await.unwrap_err());
        assert!(refused.ends_with("409 Conflict: the object has been modified"), "{refused}");
    }

    #[tokio::test]
    async fn watch_ends_at_an_event() {
        let Some(account) = account() else { return };
        let happens = Arc::new(Notify::new());
        let notified = Arc::clone(&happens);
        let api = serve(account.path(), move |request| {
            let query = "watch=1&fieldSelector=metadata.name%3Dmine&resourceVersion=7&timeoutSeconds=300";
            assert_eq!(request.uri().query(), Some(query));
            (StatusCode::OK, event(Arc::clone(&notified)))
        })
        .await;
        let mut watching = std::pin::pin!(api.watch("/slices", "mine", "7"));
        let too_early = timeout(Duration::from_millis(300), &mut watching).await;
        assert!(too_early.is_err(), "{too_early:?}");
        happens.notify_one();
        watching.await.unwrap();
    }

    #[tokio::test]
    async fn only_the_cluster_s_certificate_is_trusted() {
        let (Some(account), Some(other)) = (account(), account()) else { return };
        let api = serve(account.path(), |_| (StatusCode::OK, body(&json!({})))).await;
        let stranger = ApiServer::new(HOST.to_owned(), api.port, other.path()).unwrap();
        let refused = format!("{:#}", stranger.get("/x").await.unwrap_err());
        assert!(refused.contains("invalid peer certificate"), "{refused}");
        fs::write(other.path().join("ca.crt"), "").unwrap();
        let refused = ApiServer::new(HOST.to_owned(), api.port, other.path()).err().unwrap();
        assert!(format!("{refused:#}").contains("cannot read certificates from"));
    }

    #[test]
    fn answers_are_objects_none_or_refusals() {
        assert_eq!(object_of(StatusCode::OK, b"{\"a\":1}").unwrap(), Some(json!({"a": 1})));
        assert_eq!(object_of(StatusCode::NOT_FOUND, b"").unwrap(), None);
        assert!(object_of(StatusCode::OK, b"<html>").unwrap_err().to_string().contains("is no JSON"));
        let refused = object_of(StatusCode::SERVICE_UNAVAILABLE, b"<html>").unwrap_err();
        assert_eq!(refused.to_string(), "503 Service Unavailable: ");
    }
}
