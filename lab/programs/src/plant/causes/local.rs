//! Causes in another process of this machine, which answers late, reads late or holds a lock.

use std::fs::File;
use std::io::{PipeWriter, Read, Write, pipe};
use std::mem::replace;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::clock::{now_ns, sleep_until};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::scheduling;

/// Process that is asked at a Unix socket, with a new connection for each question.
pub struct SlowUnixSocket {
    address: SocketAddr,
    process: HelperProcess,
}

impl SlowUnixSocket {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let address = SocketAddr::from_abstract_name(format!("sidelane-plant-{}", std::process::id()))?;
        let (its_address, cpu, length_ns) = (address.clone(), args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            // Listens in the new process, since the kernel attributes a Unix socket to the process that listened.
            let door = UnixListener::bind_addr(&its_address).context("cannot listen at a Unix socket")?;
            let mut is_known = false;
            Ok(move || {
                if !replace(&mut is_known, true) {
                    return Ok(());
                }
                let (mut client, _) = door.accept()?;
                client.read_exact(&mut [0])?;
                sleep_until(now_ns() + length_ns)?;
                Ok(client.write_all(&[1])?)
            })
        };
        let mut process = HelperProcess::start(prepare, || ())?;
        process.disturb_and_wait().context("no process listens at the Unix socket")?;
        Ok(Self { address, process })
    }
}

impl PlantedCause for SlowUnixSocket {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.request_disturbance()?;
        let mut connection = UnixStream::connect_addr(&self.address)?;
        connection.write_all(&[1])?;
        connection.read_exact(&mut [0]).context("the process at the Unix socket is gone")
    }
}

/// Size of a write that fills any pipe of default size.
const FULL_BYTES: usize = 68 << 10;

/// Pipe that another process reads late.
pub struct LateReadPipe {
    end: PipeWriter,
    process: HelperProcess,
}

impl LateReadPipe {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let ((mut read, end), cpu, length_ns) =
            (pipe().context("cannot make a pipe")?, args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            Ok(move || {
                sleep_until(now_ns() + length_ns)?;
                Ok(read.read_exact(&mut [0; FULL_BYTES])?)
            })
        };
        Ok(Self { end, process: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for LateReadPipe {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.request_disturbance()?;
        self.end.write_all(&[1; FULL_BYTES]).context("the process that reads from the pipe is gone")
    }
}

/// File that another process has locked.
pub struct LockedFile {
    file: File,
    process: HelperProcess,
}

impl LockedFile {
    /// Makes the file and starts the process that locks it. The file is already unlinked when this returns.
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let path = args.dir.join(format!("sidelane-plant-{}", std::process::id()));
        // Opens the file twice: a lock belongs to an open file, and a forked process would share it.
        let files = File::create(&path).and_then(|file| Ok((file, File::open(&path)?)));
        let _ = std::fs::remove_file(&path);
        let (file, its_file) =
            files.with_context(|| format!("cannot make a file in {} (--dir)", args.dir.display()))?;
        let (cpu, length_ns) = (args.other_cpu, args.delay_ns());
        let prepare = move || {
            scheduling::pin_to(cpu)?;
            let mut is_held = false;
            Ok(move || {
                is_held = !is_held;
                if is_held {
                    return Ok(flock(&its_file, FlockOperation::LockExclusive)?);
                }
                sleep_until(now_ns() + length_ns)?;
                Ok(flock(&its_file, FlockOperation::Unlock)?)
            })
        };
        Ok(Self { file, process: HelperProcess::start(prepare, || ())? })
    }
}

impl PlantedCause for LockedFile {
    fn disturb_request(&mut self) -> Result<()> {
        self.process.disturb_and_wait()?;
        self.process.request_disturbance()?;
        flock(&self.file, FlockOperation::LockExclusive)?;
        Ok(flock(&self.file, FlockOperation::Unlock)?)
    }
}
