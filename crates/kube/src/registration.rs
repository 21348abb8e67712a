//! Serves the device plugin in the kubelet's folder, and registers it with each kubelet that starts there.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use sidelane_report::terminal::eprint_fitted;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::time::sleep;

use crate::api::RegisterRequest;
use crate::api::device_plugin::device_plugin_server::DevicePluginServer;
use crate::api::registration::registration_client::RegistrationClient;
use crate::channel::{connect, serve};
use crate::device_plugin::{LanePlugin, OPTIONS, RESOURCE};
use crate::warnings::Warnings;

/// Version of the kubelet's API of device plugins.
const API_VERSION: &str = "v1beta1";
/// Name of the kubelet's socket.
const KUBELET_SOCKET: &str = "kubelet.sock";
/// Name of the plugin's own socket.
const OWN_SOCKET: &str = "sidelane.sock";
/// Pause before another attempt, while the kubelet does not run.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Size of the buffer of the kernel's events, in bytes.
const EVENTS_LEN: usize = 4 << 10;

/// Registers the plugin in this folder for ever: again each time a kubelet starts.
pub async fn run(dir: &Path, plugin: LanePlugin) -> Infallible {
    let mut warnings = Warnings::default();
    loop {
        if let Err(error) = serve_one_kubelet(dir, &plugin, &mut warnings).await {
            warnings.print(Some(format!("{error:#}")));
            sleep(RETRY_AFTER).await;
        }
    }
}

/// Serves and registers the plugin. Returns when another kubelet starts.
async fn serve_one_kubelet(dir: &Path, plugin: &LanePlugin, warnings: &mut Warnings) -> Result<()> {
    // The watch comes first, so that no start of a kubelet is missed.
    let restarts = KubeletStarts::watch(dir).with_context(|| {
        format!("cannot watch {}; start the kubelet, or name its folder by --kubelet-dir", dir.display())
    })?;
    let own = dir.join(OWN_SOCKET);
    match fs::remove_file(&own) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove the old {}", own.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&own)
        .with_context(|| format!("cannot listen at {}; run sidelane-kube as root", own.display()))?;
    let serving = serve(listener, DevicePluginServer::new(plugin.clone()));
    let registering = async {
        register(&dir.join(KUBELET_SOCKET)).await?;
        warnings.print(None);
        eprint_fitted(&format!("sidelane-kube: {RESOURCE} is registered with the kubelet"));
        restarts.next().await.context("cannot read the kernel's events on the kubelet's folder")
    };
    // The kubelet connects to the plugin while it registers it.
    tokio::select! {
        served = serving => served.map(|never| match never {}),
        registered = registering => registered,
    }
}

async fn register(kubelet: &Path) -> Result<()> {
    let asked = async {
        let request = RegisterRequest {
            version: API_VERSION.to_owned(),
            endpoint: OWN_SOCKET.to_owned(),
            resource_name: RESOURCE.to_owned(),
            options: Some(OPTIONS),
        };
        RegistrationClient::new(connect(kubelet).await?).register(request).await?;
        Ok::<_, anyhow::Error>(())
    };
    let answer = asked.await;
    answer.with_context(|| {
        format!(
            "cannot register {RESOURCE} at {}; check that the kubelet runs (it is tried each second)",
            kubelet.display()
        )
    })
}

/// Starts of kubelets, by the sockets that they make. A kubelet that starts removes the sockets of all plugins.
struct KubeletStarts {
    events: AsyncFd<OwnedFd>,
}

impl KubeletStarts {
    fn watch(dir: &Path) -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&queue, dir, WatchFlags::CREATE | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR)?;
        // SAFETY: an `OwnedFd` is the same open file until it is dropped.
        Ok(Self { events: unsafe { AsyncFd::register(queue) }? })
    }

    /// Waits until a kubelet has made its socket, or the folder is gone.
    async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [MaybeUninit::uninit(); EVENTS_LEN];
            let mut reader = Reader::new(ready.get_inner(), &mut buffer);
            while let Ok(event) = reader.next() {
                let is_kubelet = event.file_name().is_some_and(|name| name.to_bytes() == KUBELET_SOCKET.as_bytes());
                if is_kubelet || event.file_name().is_none() {
                    return Ok(());
                }
            }
            ready.clear_ready();
        }
    }
}

/// Returns the folder of device plugins in a kubelet's folder.
pub fn plugin_dir(kubelet_dir: &Path) -> PathBuf {
    kubelet_dir.join("device-plugins")
}
