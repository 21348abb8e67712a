//! How an emulation is found, asked and ended: over its standard streams.

use std::io::{BufRead, Write, stdin, stdout};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Error, Result, bail};

use crate::signals::{EndingSignals, end_with_parent};

/// An emulation that changes CPUs while it lives.
pub trait Emulation: Send + 'static {
    /// How CPUs are, as the line `on HOW` says it.
    type How: FromStr<Err: Into<Error>>;
    /// Its name.
    const HOW: &str;

    /// The file descriptor by which other processes find its memory.
    fn fd(&self) -> i32;
    /// CPUs are so from now on.
    fn begin(&mut self, how: Self::How) -> Result<()>;
    /// CPUs are as they are from now on.
    fn end(&mut self);
    /// Returns its result so far, as JSON.
    fn report(&self) -> serde_json::Result<String>;
    /// Returns its result, for people.
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
        let answer = answer(&mut *emulation.lock().expect("nobody panics here"), line.trim());
        println!("{}", answer.unwrap_or_else(|error| format!("error: {error:#}")));
        let _ = stdout().flush();
    }
}

/// Does what a line of standard input says, and answers with a line.
fn answer<T: Emulation>(emulation: &mut T, line: &str) -> Result<String> {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("on", how) => {
            emulation.begin(how.parse().map_err(Into::into)?)?;
            Ok("on".to_owned())
        }
        ("off", "") => {
            emulation.end();
            Ok("off".to_owned())
        }
        ("report", "") => emulation.report().context("cannot write the report"),
        _ => bail!("`{line}` is not understood: write `on {}`, `off` or `report`", T::HOW),
    }
}
