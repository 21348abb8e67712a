//! The server's program, its index and its queries: built once from sources in this binary, and kept.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Returns path and text of a file of `lab/lucene`.
macro_rules! source {
    ($path:literal) => {
        ($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lucene/", $path)))
    };
}

const SOURCES: [(&str, &str); 10] = [
    source!("pom.xml"),
    source!("src/main/java/dev/sidelane/lab/lucene/Main.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Documents.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Searches.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/QueryList.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Client.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Coordinator.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Worker.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Classes.java"),
    source!("src/main/java/dev/sidelane/lab/lucene/Live.java"),
];
const QUERIES: &str = "1000";

/// Files that a Lucene server needs: program, index and queries.
pub struct Lucene {
    pub(super) jar: PathBuf,
    pub(super) index: PathBuf,
    pub(super) queries: PathBuf,
}

impl Lucene {
    /// Builds the files that are missing or outdated in `cache`.
    pub fn prepare(cache: &Path) -> Result<Self> {
        let home = cache.join("lucene");
        let whole = Lucene {
            jar: home.join("target/lucene-server.jar"),
            index: home.join("index"),
            queries: home.join("queries.txt"),
        };
        let is_current =
            SOURCES.iter().all(|(path, text)| fs::read(home.join(path)).is_ok_and(|is| is == text.as_bytes()));
        if is_current && whole.queries.is_file() {
            return Ok(whole);
        }
        write_sources(&home)?;
        run_and_read_stdout(Command::new("mvn").args(["-q", "-B", "package"]).current_dir(&home))
            .context("the server cannot be built: it needs a JDK (17) and Maven: apt-get install maven")?;
        run_and_read_stdout(&mut whole.java_command(&["index".as_ref(), whole.index.as_os_str()]))?;
        let queries = run_and_read_stdout(&mut whole.java_command(&[
            "queries".as_ref(),
            whole.index.as_os_str(),
            QUERIES.as_ref(),
        ]))?;
        fs::write(&whole.queries, queries).with_context(|| format!("cannot write {}", whole.queries.display()))?;
        Ok(whole)
    }

    /// Returns a command of the server's program.
    fn java_command(&self, arguments: &[&OsStr]) -> Command {
        let mut java = Command::new("java");
        java.arg("-jar").arg(&self.jar).args(arguments);
        java
    }
}

fn write_sources(home: &Path) -> Result<()> {
    for (path, text) in SOURCES {
        let file = home.join(path);
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Runs a command, and returns its standard output.
fn run_and_read_stdout(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
    Ok(output.stdout)
}
