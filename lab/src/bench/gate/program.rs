//! A real program: lz4, from its Debian source, compressing text files of this machine.
//!
//! lz4 builds in seconds, and spends its time in C. Compilers put no checks into assembly language. lz4 is linked with
//! its own library, so that the code that takes the time has checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::build::GateBuild;

const PACKAGE: &str = "lz4";
/// Size of the input, which takes 0.1 s at compression level 9.
const INPUT_BYTES: usize = 8 << 20;

/// Unpacked source of the program, and its input file.
pub(super) struct Source {
    dir: PathBuf,
    input: PathBuf,
}

/// Fetches the source into `dir`; returns `None` if it cannot be downloaded.
pub(super) fn fetch(dir: &Path) -> Result<Option<Source>> {
    if !download_source(dir)? {
        return Ok(None);
    }
    let tarball = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let Some(tarball) = tarball.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar.")) else {
        return Ok(None);
    };
    let unpacked = dir.join("source");
    fs::create_dir(&unpacked)?;
    let tar =
        Command::new("tar").arg("-xf").arg(&tarball).arg("--strip-components=1").arg("-C").arg(&unpacked).status();
    ensure!(tar.is_ok_and(|status| status.success()), "cannot unpack {}", tarball.display());
    let input = dir.join("input");
    fs::write(&input, collect_sample_text(&unpacked)?)?;
    Ok(Some(Source { dir: unpacked, input }))
}

/// Downloads the source with apt and separate package lists; returns false if that fails. Most machines have no package
/// lists of sources, and this download does not change the machine's lists.
fn download_source(dir: &Path) -> Result<bool> {
    let Some(archive) = package_archive() else { return Ok(false) };
    fs::write(dir.join("sources.list"), format!("deb-src {archive}\n"))?;
    fs::create_dir_all(dir.join("lists/partial"))?;
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        for (option, path) in [("Etc::sourcelist", "sources.list"), ("State::Lists", "lists"), ("Cache", "cache")] {
            apt.arg("-o").arg(format!("Dir::{option}={}", dir.join(path).display()));
        }
        apt.args(["-o", "Dir::Etc::sourceparts=/dev/null", "-qq"]).args(args).current_dir(dir);
        apt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        apt.status().is_ok_and(|status| status.success())
    };
    Ok(apt(&["update"]) && apt(&["source", "--download-only", PACKAGE]))
}

/// Returns the archive of this machine's packages: address, release and component.
fn package_archive() -> Option<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]);
    let targets = String::from_utf8(apt.output().ok()?.stdout).ok()?;
    targets.lines().find(|target| target.ends_with(" main")).map(str::to_owned)
}

/// Returns real text that is always available: the source files themselves, repeated up to [`INPUT_BYTES`].
fn collect_sample_text(dir: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for part in ["lib", "programs", "doc", "tests"] {
        for file in fs::read_dir(dir.join(part)).into_iter().flatten().flatten() {
            text.extend(fs::read(file.path()).unwrap_or_default());
        }
    }
    ensure!(!text.is_empty(), "{} has no files", dir.display());
    Ok(text.iter().copied().cycle().take(INPUT_BYTES).collect())
}

impl Source {
    /// Builds lz4 as the program `name`.
    pub(super) fn build(&self, name: &str, options: &[&str]) -> Result<PathBuf> {
        let program = self.dir.join(name);
        let files =
            ["lib", "programs"].into_iter().flat_map(|part| fs::read_dir(self.dir.join(part)).into_iter().flatten());
        let files =
            files.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-w", "-DXXH_NAMESPACE=LZ4_"]).arg("-I").arg(self.dir.join("lib")).args(options);
        gcc.args(files.collect::<Vec<_>>()).arg("-o").arg(&program);
        ensure!(gcc.status().context("cannot run gcc")?.success(), "{gcc:?} failed");
        Ok(program)
    }

    /// Runs both programs in turn, and returns how much more user time `checked` takes than `plain`, in percent. Other
    /// programs on the machine do not add to user time.
    pub(super) fn overhead_percent(&self, c_build: &GateBuild, plain: &Path, checked: &Path) -> Result<f64> {
        let ratio = self.measure_user_time_s(c_build, checked)? / self.measure_user_time_s(c_build, plain)?;
        Ok((ratio - 1.0) * 100.0)
    }

    fn measure_user_time_s(&self, c_build: &GateBuild, program: &Path) -> Result<f64> {
        let before_s = children_user_time_s();
        let began = Instant::now();
        let mut command = c_build.command(program);
        let status = command.args(["-9", "-c"]).arg(&self.input).stdout(Stdio::null()).status();
        ensure!(status.is_ok_and(|status| status.success()), "{} failed", program.display());
        let spent_s = children_user_time_s() - before_s;
        Ok(if spent_s > 0.0 { spent_s } else { began.elapsed().as_secs_f64() })
    }
}

/// Returns the user time of all children that have ended, in seconds.
fn children_user_time_s() -> f64 {
    // SAFETY: rusage is plain data that getrusage fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    usage.ru_utime.tv_sec as f64 + usage.ru_utime.tv_usec as f64 / 1e6
}
