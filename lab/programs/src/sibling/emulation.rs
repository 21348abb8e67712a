//! The control of an emulation over its standard streams, through which other programs find, query and end it.

use std::io::{BufRead, Write, stdin, stdout};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Error, Result, bail};

use crate::signals::{EndingSignals, end_with_parent};

/// Emulation that changes how CPUs behave while it runs.
pub trait Emulation: Send + 'static {
    /// Type of the emulation's parameter, which the line `on PARAMETER` of standard input gives.
    type How: FromStr<Err: Into<Error>>;
    /// Name of the parameter in messages.
    const HOW: &str;

    /// Returns the file descriptor by which other processes map the emulation's memory.
    fn memory_fd(&self) -> i32;
    /// Starts the emulation with this parameter.
    fn begin(&mut self, parameter: Self::How) -> Result<()>;
    /// Ends the emulation: the CPUs behave normally again.
    fn end(&mut self);
    /// Returns the counts so far, as JSON.
    fn report_json(&self) -> serde_json::Result<String>;
    /// Returns the counts as text for people.
    fn report_text(&self) -> String;
}

/// Starts an emulation, prints `ready pid=N fd=N` and answers standard input, until a POSIX signal or its parent's
/// death ends it. Then prints the result.
pub fn run<T: Emulation>(start: impl FnOnce() -> Result<T>) -> Result<()> {
    let signals = EndingSignals::block()?;
    end_with_parent()?;
    let emulation = Arc::new(Mutex::new(start()?));
    println!(
        "ready pid={} fd={}",
        std::process::id(),
        emulation.lock().expect("no thread panics while it holds the lock").memory_fd()
    );
    let asked = Arc::clone(&emulation);
    thread::spawn(move || answer_input_lines(&asked));
    signals.wait(None);
    eprintln!("{}", emulation.lock().expect("no thread panics while it holds the lock").report_text());
    Ok(())
}

/// Answers each line of standard input until it ends; the emulation goes on.
fn answer_input_lines(emulation: &Mutex<impl Emulation>) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let answer =
            execute_line(&mut *emulation.lock().expect("no thread panics while it holds the lock"), line.trim());
        println!("{}", answer.unwrap_or_else(|error| format!("error: {error:#}")));
        let _ = stdout().flush();
    }
}

/// Carries out one line of standard input, and returns the line that answers it.
fn execute_line<T: Emulation>(emulation: &mut T, line: &str) -> Result<String> {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("on", how) => {
            emulation.begin(how.parse().map_err(Into::into)?)?;
            Ok("on".to_owned())
        }
        ("off", "") => {
            emulation.end();
            Ok("off".to_owned())
        }
        ("report", "") => emulation.report_json().context("cannot write the report"),
        _ => bail!("`{line}` is not understood: write `on {}`, `off` or `report`", T::HOW),
    }
}
