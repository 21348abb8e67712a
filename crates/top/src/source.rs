//! Where frames come from: the socket of an agent or of a run, or a recording.

use std::fs::File;
use std::io::{self, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_agent::status::{SOCKET, Snapshot, is_absent, read_snapshot};
use sidelane_host::cpulist::CpuSet;
use sidelane_lanes::status_socket::run_sockets;
use sidelane_rollback::own_threads::keep_off_cpus;

use crate::recording::{Frame, Recording};

/// Time between two frames.
pub const FRAME_EVERY: Duration = Duration::from_millis(100);
/// Time between two attempts to reach a source that is away.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Longest pause in a replay: a longer time between two frames is shortened to this one.
const GAP_MAX_MS: u64 = 3_000;
/// Error text without any source.
const NO_SOURCE: &str =
    "no agent and no `sidelane run` is on this machine; start one with `sidelane agent --config FILE`";

/// Source of frames.
pub enum Source {
    /// Agent or run.
    Live(Live),
    /// Recording.
    Replay(Box<Replay>),
}

/// Thread that asks an agent or a run.
pub struct Live {
    frames: Receiver<Frame>,
    /// Pipe with a byte for each frame.
    wake: PipeReader,
}

impl Live {
    /// Asks an agent or a run once, and starts the thread that goes on.
    ///
    /// # Errors
    /// If there is none, or its socket may not be used.
    pub fn start() -> Result<(Self, Frame)> {
        let began = Instant::now();
        let Some(socket) = find_socket() else { bail!(NO_SOURCE) };
        let status = read_snapshot(&socket)
            .with_context(|| format!("cannot read the status at {}; run `sidelane top` as root", socket.display()))?;
        keep_off_lanes(&status);
        let (sender, frames) = channel();
        let (wake, notify) = pipe().context("cannot open a pipe; check the limit of open files (ulimit -n)")?;
        thread::Builder::new()
            .name("top-source".to_owned())
            .spawn(move || ask_forever(began, &sender, notify))
            .context("cannot start a thread; check the limit of threads (ulimit -u)")?;
        Ok((Self { frames, wake }, Frame { at_ms: 0, status: Some(Box::new(status)), away: None }))
    }

    /// Returns the frames that have come.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        let frames: Vec<Frame> = self.frames.try_iter().collect();
        let mut bytes = vec![0; frames.len()];
        // Each frame comes with a byte, which is written first.
        let _ = self.wake.read_exact(&mut bytes);
        frames
    }
}

impl AsFd for Live {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Returns the socket of the agent, or of the newest run without an agent.
fn find_socket() -> Option<PathBuf> {
    let agent = Path::new(SOCKET).exists().then(|| PathBuf::from(SOCKET));
    agent.or_else(|| run_sockets().into_iter().next())
}

/// Keeps the view off lanes, if there is another CPU: it must not run beside the service.
fn keep_off_lanes(status: &Snapshot) {
    let lanes: CpuSet = status.lanes.iter().map(|lane| lane.cpu).collect();
    // The view goes on anywhere if this fails.
    let _ = keep_off_cpus(&lanes);
}

/// Asks for the status until the view ends.
fn ask_forever(began: Instant, frames: &Sender<Frame>, mut notify: PipeWriter) {
    let mut due = Instant::now();
    loop {
        due = (due + FRAME_EVERY).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let answer = find_socket().map_or_else(|| Err(io::ErrorKind::NotFound.into()), |socket| read_snapshot(&socket));
        let at_ms = began.elapsed().as_millis() as u64;
        let frame = match answer {
            Ok(status) => Frame { at_ms, status: Some(Box::new(status)), away: None },
            Err(error) => {
                due = Instant::now() + RETRY_EVERY;
                let why = if is_absent(&error) { "it has ended".to_owned() } else { error.to_string() };
                Frame { at_ms, status: None, away: Some(why) }
            }
        };
        if notify.write_all(&[0]).and_then(|()| frames.send(frame).map_err(io::Error::other)).is_err() {
            return;
        }
    }
}

/// Replay of a recording at its pace.
pub struct Replay {
    recording: Recording<BufReader<File>>,
    next: Option<Frame>,
    /// Time of the replay at which the clock was set, and that moment.
    at_ms: u64,
    since: Instant,
}

impl Replay {
    /// Opens a recording.
    ///
    /// # Errors
    /// If it cannot be read, or has no frame.
    pub fn open(path: &Path) -> Result<Self> {
        let mut recording = Recording::open(path).with_context(|| {
            format!("cannot open the recording {}; make one with `sidelane top --record FILE`", path.display())
        })?;
        let next = recording.next_frame()?;
        let Some(first) = &next else {
            bail!("cannot replay {}: it has no frame; make one with `sidelane top --record FILE`", path.display())
        };
        Ok(Self { recording, at_ms: first.at_ms, next, since: Instant::now() })
    }

    /// Returns the time until the next frame is due; `None` at the end.
    pub fn time_to_next(&self) -> Option<Duration> {
        let due = Duration::from_millis(self.next.as_ref()?.at_ms.saturating_sub(self.at_ms));
        Some(due.saturating_sub(self.since.elapsed()))
    }

    /// Returns the next frame if it is due.
    pub fn take_frame(&mut self) -> Result<Option<Frame>> {
        if self.time_to_next().is_none_or(|time| time > Duration::ZERO) {
            return Ok(None);
        }
        let Some(frame) = self.next.take() else { return Ok(None) };
        self.next = self.recording.next_frame()?;
        let gap_ms = self.next.as_ref().map_or(0, |next| next.at_ms - frame.at_ms);
        // The clock follows the recording, not the drawing: a slow frame does not delay those after it.
        self.since += Duration::from_millis(frame.at_ms.saturating_sub(self.at_ms));
        self.at_ms = frame.at_ms + gap_ms.saturating_sub(GAP_MAX_MS);
        Ok(Some(frame))
    }

    /// Stops the clock while the picture is paused.
    pub fn go_on_after(&mut self, pause: Duration) {
        self.since += pause;
    }

    /// Returns whether all frames were shown.
    pub fn has_ended(&self) -> bool {
        self.next.is_none()
    }
}
