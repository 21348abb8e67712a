//! The programs that run in containers, and the files that they work on.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::experiment::sibling::EmulatedSibling;
use crate::programs::LabBinary;

/// Functions of the generated C file: compiling it takes about 0.1 s.
const FUNCTIONS: usize = 20;
/// Size of the file to compress: compressing it takes about 0.1 s.
const TEXT_BYTES: usize = 6 << 20;
/// Python source of the Spark job.
const SPARK: &str = include_str!("spark.py");

/// Kind of batch work in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel of the lab, by name, which counts its units of work.
    Kernel(&'static str),
    /// GCC compiles one C file.
    Compile,
    /// Zstd compresses one file.
    Compress,
    /// A job of Apache Spark on one thread.
    Spark,
    /// The lab's kernel `loop`, which also stores the time after each unit.
    Stamps,
    /// No work: a process that sleeps.
    Wait,
}

impl Work {
    /// Returns the name of the work in results.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Kernel(name) => name,
            Work::Compile => "compile",
            Work::Compress => "zstd",
            Work::Spark => "spark",
            Work::Stamps => "stamps",
            Work::Wait => "wait",
        }
    }

    /// Returns which program is missing on this machine and how to install it; `None` if the work can run.
    pub fn missing_program(&self) -> Option<&'static str> {
        match self {
            Work::Kernel(_) | Work::Stamps | Work::Wait => None,
            Work::Compile => find_on_path("gcc").is_none().then_some("gcc is missing: `apt-get install gcc`"),
            Work::Compress => find_on_path("zstd").is_none().then_some("zstd is missing: `apt-get install zstd`"),
            Work::Spark => (!has_spark()).then_some("PySpark or Java is missing: `pip install pyspark`, and a JRE"),
        }
    }

    pub(super) fn prepare(&self, work_files: &WorkFiles, container: &str) -> Result<PreparedCommand> {
        let counter = work_files.folder.join(format!("counter-{container}"));
        let _ = fs::remove_file(&counter);
        let file = |name: &str| work_files.folder.join(name).into_os_string();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let kernel = |name: &str| {
            let words = [work_files.lab.path().to_owned(), "batch".into(), name.into(), "--counter".into()];
            let more = work_files.sibling_options.iter().map(OsString::from);
            words.into_iter().chain([counter.clone().into_os_string()]).chain(more).collect::<Vec<_>>()
        };
        let words = match self {
            Work::Kernel(name) => kernel(name),
            Work::Stamps => [kernel("loop"), words(&["--stamps"])].concat(),
            Work::Compile => [words(&["gcc", "-O2", "-c", "-o", "/dev/null"]), vec![file("source.c")]].concat(),
            Work::Compress => [words(&["zstd", "-q", "-6", "-c", "--single-thread"]), vec![file("text")]].concat(),
            Work::Spark => [words(&["python3"]), vec![file("spark.py")]].concat(),
            Work::Wait => words(&["sleep", "infinity"]),
        };
        Ok(PreparedCommand { words, counter: matches!(self, Work::Kernel(_) | Work::Stamps).then_some(counter) })
    }
}

/// Command line that can be started repeatedly.
pub(super) struct PreparedCommand {
    words: Vec<OsString>,
    pub(super) counter: Option<PathBuf>,
}

impl PreparedCommand {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }
}

/// Resources of the work: the lab's binary, and a folder with the files to work on.
pub struct WorkFiles {
    lab: LabBinary,
    sibling_options: Vec<String>,
    folder: PathBuf,
}

impl WorkFiles {
    /// Writes the input files into `folder`. The lab's kernels emulate the slowdown by `sibling` themselves if its
    /// mechanism is `BuiltIn`.
    pub fn make(lab: &LabBinary, sibling: Option<&EmulatedSibling>, folder: &Path) -> Result<Self> {
        let sibling_options = sibling.map(EmulatedSibling::options).unwrap_or_default();
        let work_files = Self { lab: lab.clone(), sibling_options, folder: folder.to_owned() };
        for (name, text) in
            [("source.c", c_source()), ("text", compressible_data()?), ("spark.py", SPARK.to_owned().into_bytes())]
        {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        Ok(work_files)
    }
}

/// Returns a C source file whose functions give the compiler's optimiser some work.
fn c_source() -> Vec<u8> {
    let function = |number: usize| {
        format!(
            "int f{number}(int n, int *a) {{\n  int s = {number};\n  for (int i = 0; i < n; i++)\n    \
             for (int j = i; j < n; j++) s += a[i] * a[j] % (i + j + {number} + 1);\n  \
             switch (s & 7) {{ case 0: s *= 3; break; case 3: s ^= n; break; case 5: s -= a[0]; break; }}\n  \
             return s;\n}}\n"
        )
    };
    (0..FUNCTIONS).map(function).collect::<String>().into_bytes()
}

/// Returns realistic data to compress: the executable of this program, repeated up to [`TEXT_BYTES`].
fn compressible_data() -> Result<Vec<u8>> {
    let own = fs::read("/proc/self/exe").context("cannot read this program's own file")?;
    ensure!(!own.is_empty(), "this program's own file is empty");
    Ok(own.into_iter().cycle().take(TEXT_BYTES).collect())
}

fn has_spark() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import pyspark"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    find_on_path("java").is_some() && python.status().is_ok_and(|status| status.success())
}

/// Returns the file of a program found through `PATH`.
fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_count_their_units_and_other_work_its_runs() {
        let folder = tempfile::tempdir().unwrap();
        let lab = LabBinary::with_path("/lab".into());
        let work_files = WorkFiles::make(&lab, None, folder.path()).unwrap();
        let kernel = Work::Kernel("matrix").prepare(&work_files, "c1").unwrap();
        assert_eq!(kernel.counter, Some(folder.path().join("counter-c1")));
        assert!(kernel.words.starts_with(&["/lab".into(), "batch".into(), "matrix".into()]), "{:?}", kernel.words);
        assert_eq!(Work::Compile.prepare(&work_files, "c1").unwrap().counter, None);
        assert_eq!(fs::read(folder.path().join("text")).unwrap().len(), TEXT_BYTES);
    }
}
