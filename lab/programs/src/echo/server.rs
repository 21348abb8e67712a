//! `sidelane-lab echo-server`: a service in one of three designs that records when it worked on which request.

use std::io::BufRead;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::journal::Journal;
use super::{event_loop, pool, threads};
use crate::{numbers, scheduling};

/// Options of `sidelane-lab echo-server`.
#[derive(Debug, clap::Args)]
pub struct EchoServerArgs {
    /// Design of the service
    #[arg(long, value_enum)]
    design: Design,
    /// File for its record, written for each line of standard input
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    ip: std::net::IpAddr,
    /// TCP port; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Threads that work (pool only)
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Work in a request, on average, in microseconds; exponentially spread
    #[arg(long, default_value_t = 30.0, value_name = "US", value_parser = numbers::non_negative)]
    service_us: f64,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
    /// Run in SCHED_FIFO at this priority, so that nothing comes between a system call and the
    /// look at the clock after it
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(i32).range(1..=99))]
    fifo: Option<i32>,
}

/// Thread design of the service.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Design {
    /// One thread, many connections
    EventLoop,
    /// A thread for each connection
    ThreadPerConnection,
    /// One thread receives, several work and answer
    Pool,
}

/// Prints `ready pid=N port=N` and serves until its standard input ends.
pub fn run(args: &EchoServerArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    if let Some(priority) = args.fifo {
        scheduling::run_as_fifo(priority)?;
    }
    let listener = TcpListener::bind((args.ip, args.port)).context("cannot listen; is the port taken?")?;
    let port = listener.local_addr()?.port();
    let journal = Arc::new(Journal::new(args.service_us));
    let (design, workers, serving) = (args.design, usize::from(args.workers), Arc::clone(&journal));
    thread::spawn(move || match design {
        Design::EventLoop => event_loop::run(&listener, &serving),
        Design::ThreadPerConnection => threads::run(&listener, &serving),
        Design::Pool => pool::run(&listener, &serving, workers),
    });
    println!("ready pid={} port={port}", std::process::id());
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("logged {}", journal.write(&args.log)?);
    }
    Ok(())
}
