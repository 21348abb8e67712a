//! How an emulation is found, asked and ended: over its standard streams.

use std::io::{BufRead, Write, stdin, stdout};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::Result;

use crate::signals::{EndingSignals, end_with_parent};

/// What makes CPUs other than they are, for as long as it lives.
pub trait Emulation: Send + 'static {
    /// The file descriptor by which other processes find its memory.
    fn fd(&self) -> i32;
    /// Does what a line of standard input says, and answers with a line.
    fn answer(&mut self, line: &str) -> Result<String>;
    /// What it came to.
    fn result(&self) -> String;
}

/// Starts one, prints `ready pid=N fd=N` and answers standard input, until a POSIX signal or its parent's death ends
/// it. Then prints the result.
pub fn run<T: Emulation>(start: impl FnOnce() -> Result<T>) -> Result<()> {
    let signals = EndingSignals::block()?;
    end_with_parent()?;
    let emulation = Arc::new(Mutex::new(start()?));
    println!("ready pid={} fd={}", std::process::id(), emulation.lock().expect("nobody panics here").fd());
    let asked = Arc::clone(&emulation);
    thread::spawn(move || answer_all(&asked));
    signals.wait(None);
    eprintln!("{}", emulation.lock().expect("nobody panics here").result());
    Ok(())
}

/// Returns when standard input ends; the emulation goes on.
fn answer_all(emulation: &Mutex<impl Emulation>) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let answer = emulation.lock().expect("nobody panics here").answer(line.trim());
        println!("{}", answer.unwrap_or_else(|error| format!("error: {error:#}")));
        let _ = stdout().flush();
    }
}
