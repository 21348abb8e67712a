//! What is wrong with the file: where, what, and what to do.

use std::fmt;

use thiserror::Error;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1 on; `None` if it is about the file as a whole.
    pub line: Option<usize>,
    /// The key, with its tables.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do.
    pub advice: String,
}

/// All problems of a file, by line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Problems {
    /// The file, as the user named it.
    pub file: String,
    /// At least one.
    pub all: Vec<Problem>,
}

impl Problems {
    /// Those of a file, in the order of its lines.
    pub fn new(file: &str, mut all: Vec<Problem>) -> Self {
        all.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        Self { file: file.to_owned(), all }
    }

    /// The file could not be read at all.
    pub fn unreadable(file: &str, why: &std::io::Error) -> Self {
        let advice = "name a file that can be read; `sidelane agent example` prints one".to_owned();
        let problem = Problem { line: None, key: "file".to_owned(), problem: format!("cannot be read: {why}"), advice };
        Self::new(file, vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Problem { line, key, problem, advice }) in self.all.iter().enumerate() {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{}{line}: `{key}` {problem}; {advice}", self.file)?;
        }
        Ok(())
    }
}
