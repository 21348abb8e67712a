//! Watchdog that ends the test program if a parser does not come to the end of an input.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::save_input;

/// Time between two checks. No parser needs a thousandth of it for some kilobytes, however busy the machine is.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Input that is being read, and the number of inputs so far.
#[derive(Default)]
struct CurrentInput {
    input: Vec<u8>,
    count: u64,
}

/// Watchdog of a parser, until it is dropped.
pub struct Watchdog(Arc<Mutex<CurrentInput>>);

impl Watchdog {
    /// Starts the watchdog. It puts an input that does not end into the corpus in this directory.
    pub fn start(corpus: PathBuf) -> Self {
        let now = Arc::default();
        let watched = Arc::downgrade(&now);
        thread::spawn(move || abort_on_endless_input(&watched, &corpus));
        Self(now)
    }

    /// Records that the parser begins to read `input`.
    pub fn begin_input(&self, input: &[u8]) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.count += 1;
        now.input.clear();
        now.input.extend_from_slice(input);
    }
}

fn abort_on_endless_input(watched: &Weak<Mutex<CurrentInput>>, corpus: &Path) {
    let mut seen = 0;
    loop {
        thread::sleep(LOOK_EVERY);
        let Some(now) = watched.upgrade() else { return };
        let now = now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.count == seen {
            eprintln!("a parser has not come to the end of an input within {LOOK_EVERY:?}");
            save_input(corpus, &now.input);
            process::abort();
        }
        seen = now.count;
    }
}
