//! Entry point of the `sidelane-kube` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::env;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use sidelane_host::posix_signals::PosixSignals;
use sidelane_host::topology::Topology;
use sidelane_kube::api_server::{ApiServer, SERVICE_ACCOUNT};
use sidelane_kube::device_plugin::LanePlugin;
use sidelane_kube::dra::{LaneDriver, socket_path};
use sidelane_kube::offer::{self, Offer};
use sidelane_kube::pods::PodReporter;
use sidelane_kube::publisher::Publisher;
use sidelane_kube::registration;
use sidelane_report::terminal::{Level, eprint_with_level};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Environment variable with the name of the node.
const NODE_NAME: &str = "NODE_NAME";

/// Offer the batch lanes of this node to Kubernetes, as the resource sidelane.dev/lane or by claims
///
/// Example: sidelane-kube
///
/// `sidelane agent` has to run on this node, with `kubernetes` and `[lanes]` in its file. A lane is a device that is
/// healthy while the agent offers it. Pods that have lanes are batch for the agent.
#[derive(Parser)]
#[command(name = "sidelane-kube", version)]
struct Options {
    /// Offer lanes by dynamic resource allocation (DRA), in place of a device plugin: Kubernetes 1.34 or later
    ///
    /// Lanes that the agent offers are devices in the ResourceSlice of this node, of the driver sidelane.dev. The
    /// environment variable NODE_NAME is the name of the node.
    #[arg(long)]
    dra: bool,
    /// Folder with the token of a service account and ca.crt, for the API server
    #[arg(long, value_name = "DIR", default_value = SERVICE_ACCOUNT, requires = "dra")]
    service_account: PathBuf,
    /// Folder of the kubelet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    /// Socket of the container runtime, which has the annotations of pods
    #[arg(long, value_name = "SOCKET", default_value = "/run/containerd/containerd.sock")]
    runtime: PathBuf,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint_with_level(Level::Error, &format!("sidelane-kube: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<()> {
    let driver = options.dra.then(|| Driver::of_this_pod(&options.service_account)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the event loop; check the limit of open files (ulimit -n)")?.block_on(async {
        let pods = Arc::new(PodReporter::new(&options.kubelet_dir, options.runtime));
        let (sender, offer) = watch::channel(Offer::default());
        tokio::spawn(offer::follow(sender));
        tokio::spawn(Arc::clone(&pods).run());
        match driver {
            Some(driver) => driver.run(&socket_path(&options.kubelet_dir), offer, pods).await,
            None => {
                let dir = registration::plugin_dir(&options.kubelet_dir);
                match registration::run(&dir, LanePlugin::new(offer, pods)).await {}
            }
        }
    })
}

/// What the driver needs of its pod and of the machine.
struct Driver {
    node: String,
    topology: Topology,
    api: Arc<ApiServer>,
    signals: PosixSignals,
}

impl Driver {
    fn of_this_pod(service_account: &Path) -> Result<Self> {
        let node = env::var(NODE_NAME).ok().with_context(|| {
            format!(
                "cannot know the name of this node: the environment variable {NODE_NAME} is not set; set it by \
                 fieldRef spec.nodeName, as packaging/kubernetes/dra does"
            )
        })?;
        let topology = Topology::read(Path::new("/sys")).context("cannot read the CPUs of this machine")?;
        let api = Arc::new(ApiServer::of_this_pod(service_account)?);
        let signals = PosixSignals::listen().context("cannot open the descriptor for POSIX signals")?;
        Ok(Self { node, topology, api, signals })
    }

    /// Offers lanes until a POSIX signal asks to end, and then withdraws them.
    async fn run(self, socket: &Path, offer: watch::Receiver<Offer>, pods: Arc<PodReporter>) -> Result<()> {
        let (registered, is_registered) = watch::channel(false);
        let driver = LaneDriver::new(self.node.clone(), offer.clone(), pods, Arc::clone(&self.api), registered);
        let publisher = Publisher::new(self.api, self.node, self.topology);
        tokio::select! {
            never = driver.serve(socket) => match never {},
            never = publisher.run(offer, is_registered) => match never {},
            asked = wait_for_end(&self.signals) => asked?,
        }
        let withdrawn = publisher.withdraw().await;
        // A kubelet that finds no socket knows that there is no driver.
        let _ = fs::remove_file(socket);
        withdrawn.context("lanes stay on offer until the kubelet withdraws them, within 30 s")
    }
}

/// Waits until a POSIX signal asks to end.
async fn wait_for_end(signals: &PosixSignals) -> Result<()> {
    let fd = signals.as_fd().try_clone_to_owned().context("cannot duplicate a descriptor")?;
    // SAFETY: an `OwnedFd` is the same open file until it is dropped.
    let fd = unsafe { AsyncFd::register(fd) }.context("cannot wait for POSIX signals")?;
    loop {
        let mut ready = fd.readable().await.context("cannot wait for POSIX signals")?;
        while let Some(caught) = signals.wait(Duration::ZERO).context("cannot read a POSIX signal")? {
            if caught.asks_to_end() {
                return Ok(());
            }
        }
        ready.clear_ready();
    }
}
