//! The live view: lanes, services, batch and decisions in a terminal, from an agent, a run, or a recording.
//!
//! [`View`] is the state, changed by frames and keys alone. `draw` makes a picture of it, and `run` joins both with a
//! source of frames and the terminal.
//!
//! # Invariants
//!
//! - A picture depends on the state alone (`src/draw/tests.rs`: `same_state_is_the_same_picture`).
//! - Without colours, characters tell uses apart (`src/draw/tests.rs`: `characters_tell_uses_apart_without_colours`).
//! - Any recording is drawn or refused (`src/recording.rs`: `fuzzed_recordings_are_drawn_or_refused`).
//! - The terminal is restored at the end (`crates/sidelane/tests/top.rs`:
//!   `terminal_is_restored_after_a_key_and_after_a_signal`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod draw;
mod recording;
mod screen;
mod source;
mod view;

use std::fs::{self, File, OpenOptions};
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags};
use sidelane_host::posix_signals::{PosixSignals, wait_for_any};

use recording::{Frame, write_frame};
use screen::Screen;
use source::{Live, Replay, Source};
use view::{Connection, View};

/// Time for which a message is shown.
const MESSAGE_TIME: Duration = Duration::from_secs(5);
/// Longest wait: a size or a message may have changed.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Options of `sidelane top`.
#[derive(Clone, Debug, Default)]
pub struct TopOptions {
    /// Path of the recording to replay; `None` for a live view.
    pub replay: Option<PathBuf>,
    /// Path of the recording to write.
    pub record: Option<PathBuf>,
}

/// Shows the view until a key or a POSIX signal ends it.
///
/// # Errors
/// If there is no terminal, no source, or a wrong recording.
pub fn run(options: TopOptions) -> Result<u8> {
    Screen::check_terminal()?;
    // Signals are blocked before any thread is started, so that no other thread receives one.
    let signals = PosixSignals::listen()
        .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
    let mut top = Top::start(options)?;
    let mut screen = Screen::open()?;
    top.show(&mut screen, &signals).map(|()| 0)
}

/// View with its source and its recorder.
struct Top {
    view: View,
    source: Source,
    recorder: Option<(PathBuf, File)>,
    message_since: Option<Instant>,
    paused_since: Option<Instant>,
}

impl Top {
    fn start(options: TopOptions) -> Result<Self> {
        let (message_since, paused_since) = (None, None);
        if let Some(path) = options.replay {
            let (view, source) = (View::new(&path.display().to_string(), true), Replay::open(&path)?);
            let source = Source::Replay(Box::new(source));
            return Ok(Self { view, source, recorder: None, message_since, paused_since });
        }
        // The status has names of programs, so only its owner may read a recording.
        let create = |path: PathBuf| {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
            let file =
                file.with_context(|| format!("cannot write {}; name a file in a folder that exists", path.display()))?;
            anyhow::Ok((path, file))
        };
        let (live, first) = Live::start()?;
        let recorder = options.record.map(create).transpose()?;
        let mut top =
            Self { view: View::new("agent", false), source: Source::Live(live), recorder, message_since, paused_since };
        top.take(first);
        Ok(top)
    }

    fn show(&mut self, screen: &mut Screen, signals: &PosixSignals) -> Result<()> {
        let mut is_old = true;
        loop {
            is_old |= self.update()? || screen.has_changed_size();
            if is_old {
                screen.draw(&self.view)?;
                is_old = false;
            }
            if self.wait(signals)? {
                return Ok(());
            }
            while event::poll(Duration::ZERO).context("cannot read keys; check that the terminal still exists")? {
                match event::read().context("cannot read keys; check that the terminal still exists")? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        if self.handle_key(key, screen) {
                            return Ok(());
                        }
                        is_old = true;
                    }
                    Event::Resize(..) => is_old = true,
                    _ => {}
                }
            }
        }
    }

    /// Waits for a frame, a key or a signal. Returns whether a signal asks for the end.
    fn wait(&self, signals: &PosixSignals) -> Result<bool> {
        let (stdin, time) = (stdin(), self.time_to_next());
        let mut fds = vec![stdin.as_fd(), signals.as_fd()];
        if let Source::Live(live) = &self.source {
            fds.push(live.as_fd());
        }
        let mut fds: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        wait_for_any(&mut fds, time.min(WAIT_MAX)).context("cannot wait for keys")?;
        let has_hung_up = fds[0].revents().contains(PollFlags::HUP);
        let caught = signals.wait(Duration::ZERO).context("cannot read a POSIX signal")?;
        Ok(has_hung_up || caught.is_some_and(|caught| caught.asks_to_end()))
    }

    fn time_to_next(&self) -> Duration {
        match &self.source {
            Source::Replay(replay) if !self.view.is_paused => replay.time_to_next().unwrap_or(WAIT_MAX),
            Source::Replay(_) | Source::Live(_) => WAIT_MAX,
        }
    }

    /// Takes the frames that have come. Returns whether the picture is another one now.
    fn update(&mut self) -> Result<bool> {
        let mut has_changed = false;
        if self.message_since.is_some_and(|since| since.elapsed() >= MESSAGE_TIME) {
            (self.message_since, self.view.message, has_changed) = (None, None, true);
        }
        let frames = match &mut self.source {
            Source::Live(live) => live.take_frames(),
            Source::Replay(_) if self.view.is_paused => Vec::new(),
            Source::Replay(replay) => {
                let mut frames = Vec::new();
                while let Some(frame) = replay.take_frame()? {
                    frames.push(frame);
                }
                frames
            }
        };
        has_changed |= !frames.is_empty() && !self.view.is_paused;
        frames.into_iter().for_each(|frame| self.take(frame));
        if let Source::Replay(replay) = &self.source
            && replay.has_ended()
            && self.view.connection != Connection::Ended
        {
            (self.view.connection, has_changed) = (Connection::Ended, true);
        }
        Ok(has_changed)
    }

    fn take(&mut self, frame: Frame) {
        if let Some((path, file)) = &mut self.recorder
            && let Err(error) = write_frame(file, &frame)
        {
            let message = format!("cannot write {}: {error}; the recording has ended", path.display());
            self.recorder = None;
            self.tell(message);
        }
        self.view.push(frame);
    }

    fn tell(&mut self, message: String) {
        (self.view.message, self.message_since) = (Some(message), Some(Instant::now()));
    }

    /// Handles a key. Returns whether it ends the view.
    fn handle_key(&mut self, key: KeyEvent, screen: &mut Screen) -> bool {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Esc if self.view.shows_help => self.view.shows_help = false,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('?') => self.view.shows_help = !self.view.shows_help,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('p') => self.toggle_pause(),
            KeyCode::Char('t') => {
                let path = trace_path();
                match self.view.to_trace().write(&path) {
                    Ok(()) => self.tell(format!("{} is written; open it at ui.perfetto.dev", path.display())),
                    Err(error) => self.tell(error.to_string()),
                }
            }
            KeyCode::Char('y') => {
                let copied = config_text(&self.view).and_then(|text| screen.copy(&text));
                match copied {
                    Ok(()) => self.tell(format!("{} is copied", self.view.status.agent.config)),
                    Err(error) => self.tell(format!("cannot copy {}: {error}", self.view.status.agent.config)),
                }
            }
            _ => {}
        }
        false
    }

    fn toggle_pause(&mut self) {
        self.view.is_paused = !self.view.is_paused;
        match self.paused_since.take() {
            None => self.paused_since = Some(Instant::now()),
            Some(since) => {
                if let Source::Replay(replay) = &mut self.source {
                    replay.go_on_after(since.elapsed());
                }
            }
        }
    }
}

/// Returns the path of a new trace, in the current directory.
fn trace_path() -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    PathBuf::from(format!("sidelane-top-{seconds}.perfetto-trace"))
}

/// Returns the text of the agent's file, or the command of a run.
fn config_text(view: &View) -> io::Result<String> {
    let agent = &view.status.agent;
    match agent.run {
        Some(_) => Ok(agent.config.clone()),
        None => fs::read_to_string(Path::new(&format!("/proc/{}/cwd", agent.pid)).join(&agent.config)),
    }
}
