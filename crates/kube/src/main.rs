//! Entry point of the `sidelane-kube` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use sidelane_kube::device_plugin::LanePlugin;
use sidelane_kube::offer::{self, Offer};
use sidelane_kube::pods::PodReporter;
use sidelane_kube::registration;
use sidelane_report::terminal::{Level, eprint_with_level};
use tokio::sync::watch;

/// Offer the batch lanes of this node to Kubernetes, as the resource sidelane.dev/lane
///
/// Example: sidelane-kube
///
/// `sidelane agent` has to run on this node, with `kubernetes` and `[lanes]` in its file. A lane is a device that is
/// healthy while the agent offers it. Pods that have lanes are batch for the agent.
#[derive(Parser)]
#[command(name = "sidelane-kube", version)]
struct Options {
    /// Folder of the kubelet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    /// Socket of the container runtime, which has the annotations of pods
    #[arg(long, value_name = "SOCKET", default_value = "/run/containerd/containerd.sock")]
    runtime: PathBuf,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(never) => match never {},
        Err(error) => {
            eprint_with_level(Level::Error, &format!("sidelane-kube: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<std::convert::Infallible> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the event loop; check the limit of open files (ulimit -n)")?.block_on(async {
        let pods = Arc::new(PodReporter::new(&options.kubelet_dir, options.runtime));
        let (sender, offer) = watch::channel(Offer::default());
        tokio::spawn(offer::follow(sender));
        tokio::spawn(Arc::clone(&pods).run());
        let dir = registration::plugin_dir(&options.kubelet_dir);
        Ok(registration::run(&dir, LanePlugin::new(offer, pods)).await)
    })
}
