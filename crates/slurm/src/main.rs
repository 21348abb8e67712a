//! Entry point of the `sidelane-slurm` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use clap::Parser;
use sidelane_slurm::follow::follow;
use sidelane_slurm::node::Node;

/// Lend the batch lanes of this machine to Slurm, as one of its nodes
///
/// Example: sidelane-slurm web1-lanes
///
/// `sidelane agent` has to run on this machine, with `[lanes]` in its file. The node is resumed while a lane is lent. It
/// is drained while none is, and its jobs are requeued while services need all lanes. Run it as root or SlurmUser.
#[derive(Parser)]
#[command(name = "sidelane-slurm", version)]
struct Options {
    /// NodeName of the lanes in slurm.conf
    node: String,
}

fn main() -> ! {
    let options = Options::parse();
    follow(Node::new(options.node))
}
