//! A synthetic service that starts and stops making page faults on command.
//!
//! It stands in for a service that a sibling lane slows, on machines without counters for that: page faults are counted
//! everywhere. It spins in turns, with or without a pause between them, and reads commands between two readings of the
//! clock:
//!
//! - `fault`: starts the page faults; the answer is `onset_ns=N`, the time just before the first fault
//! - `rest`: stops them; the answer is `rested_ns=N faults=M kept_off_ns=FROM:TO,FROM:TO`. M is the number of pages
//!   touched since `fault`. The intervals since then are those in which the service made no progress, because the host
//!   or another thread had its CPU

use std::hint::black_box;
use std::io::{Read, Write, stdin, stdout};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result, ensure};
use memmap2::{Advice, MmapMut, UncheckedAdvice};
use rustix::io::Errno;
use rustix::param::page_size;

use crate::clock::{Nanos, now_ns, sleep_until};
use crate::scheduling;

/// Options of `sidelane-lab faults`.
#[derive(Debug, clap::Args)]
pub struct FaultsArgs {
    /// CPU to run on
    #[arg(long)]
    cpu: usize,
    /// Microseconds of work in each turn
    #[arg(long, value_name = "US", default_value_t = 1000)]
    busy_us: u64,
    /// Microseconds of sleep after each turn; without it, it never sleeps
    #[arg(long, value_name = "US", default_value_t = 0)]
    idle_us: u64,
}

/// Prints `ready pid=N port=N` and works until its input ends. The port only names the service for other tools; it
/// answers no request.
pub fn run(args: &FaultsArgs) -> Result<()> {
    scheduling::pin_to(args.cpu)?;
    scheduling::minimize_timer_slack()?;
    rustix::io::ioctl_fionbio(stdin(), true).context("the input cannot be read without waiting")?;
    let mut service = Service::new()?;
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    println!("ready pid={} port={}", std::process::id(), door.local_addr()?.port());
    while service.work_until(now_ns().saturating_add(args.busy_us.saturating_mul(1000)))? {
        if args.idle_us > 0 {
            service.got_on_ns = now_ns().saturating_add(args.idle_us.saturating_mul(1000));
            sleep_until(service.got_on_ns)?;
        }
    }
    Ok(())
}

struct Service {
    pages: Pages,
    faulting: bool,
    /// Bytes of the next command that were read so far.
    line: Vec<u8>,
    /// Last time at which the service is known to have made progress: the last clock reading, or the planned end of a
    /// pause.
    got_on_ns: Nanos,
    /// Intervals since `fault` in which the service made no progress: start and end.
    kept_off: Vec<(Nanos, Nanos)>,
}

/// Shortest interval without progress that is reported. Touching all pages and answering a command take far less time,
/// so neither is reported.
const KEPT_OFF_MIN_NS: Nanos = 100_000;
/// Largest number of reported intervals without progress, since they must fit on one line.
const KEPT_OFF_MOST: usize = 32;

impl Service {
    fn new() -> Result<Self> {
        let (pages, got_on_ns) = (Pages::map()?, now_ns());
        Ok(Self { pages, faulting: false, line: Vec::new(), got_on_ns, kept_off: Vec::new() })
    }

    /// Works until `end_ns`. Returns false at the end of the commands.
    fn work_until(&mut self, end_ns: Nanos) -> Result<bool> {
        while self.record_clock_gap() < end_ns {
            if self.faulting {
                self.pages.fault_all_pages()?;
            }
            if !self.read_command_byte()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn record_clock_gap(&mut self) -> Nanos {
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.got_on_ns) >= KEPT_OFF_MIN_NS && self.kept_off.len() < KEPT_OFF_MOST {
            self.kept_off.push((self.got_on_ns, now_ns));
        }
        self.got_on_ns = now_ns;
        now_ns
    }

    /// Reads one byte of a command if there is any, and carries out a complete command. Returns false at the end of the
    /// input.
    fn read_command_byte(&mut self) -> Result<bool> {
        let mut byte = [0];
        match stdin().lock().read(&mut byte) {
            Ok(0) => return Ok(false),
            Ok(_) if byte == *b"\n" => self.execute_command()?,
            Ok(_) => self.line.push(byte[0]),
            Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {}
            Err(error) => return Err(error).context("the input cannot be read"),
        }
        Ok(true)
    }

    fn execute_command(&mut self) -> Result<()> {
        let command = std::mem::take(&mut self.line);
        match &command[..] {
            b"fault" => {
                let onset_ns = now_ns();
                self.pages.touched = 0;
                self.kept_off.clear();
                self.pages.fault_all_pages()?;
                self.faulting = true;
                println!("onset_ns={onset_ns}");
            }
            b"rest" => {
                self.faulting = false;
                let kept_off: Vec<String> = self.kept_off.iter().map(|(from, to)| format!("{from}:{to}")).collect();
                println!("rested_ns={} faults={} kept_off_ns={}", now_ns(), self.pages.touched, kept_off.join(","));
            }
            _ => ensure!(false, "`{}` is neither `fault` nor `rest`", String::from_utf8_lossy(&command)),
        }
        stdout().flush().context("the answer cannot be written")
    }
}

/// Private memory pages that are given back to the kernel before each use, so that each use is a page fault.
pub struct Pages {
    memory: MmapMut,
    touched: u64,
}

impl Pages {
    /// Maps the pages as anonymous memory.
    pub fn map() -> Result<Self> {
        const PAGES: usize = 8;
        let memory = MmapMut::map_anon(PAGES * page_size()).context("no memory")?;
        memory.advise(Advice::NoHugePage).context("no pages of the usual size")?;
        Ok(Self { memory, touched: 0 })
    }

    /// Maps `bytes` bytes, in huge pages if the kernel has them.
    pub fn map_huge(bytes: usize) -> Result<Self> {
        let memory = MmapMut::map_anon(bytes).context("no memory")?;
        let _ = memory.advise(Advice::HugePage);
        Ok(Self { memory, touched: 0 })
    }

    /// Gives all pages back to the kernel and writes to each, which causes one fault per page.
    pub fn fault_all_pages(&mut self) -> Result<()> {
        // SAFETY: the mapping is private and anonymous, and no reference points into it.
        unsafe { self.memory.unchecked_advise(UncheckedAdvice::DontNeed) }.context("pages cannot be given back")?;
        self.memory.iter_mut().step_by(page_size()).for_each(|byte| *byte = 1);
        black_box(&mut self.memory);
        self.touched += (self.memory.len() / page_size()) as u64;
        Ok(())
    }
}
