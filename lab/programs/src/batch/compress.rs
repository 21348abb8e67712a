//! A real batch job: `zstd -19` over real English text, one process for each chunk.
//!
//! Unlike the other kernels it starts processes, uses pipes and waits for children. It reveals a gate that misses child
//! processes, and a tracker that misses forks.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;

/// English dictionary that is compressed, from Debian's package dict-gcide.
const TEXT: &str = "/usr/share/dictd/gcide.dict.dz";
/// Size of a chunk, which takes about 20 ms of work: process starts then take little of the time.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Returns a function that compresses one chunk of text with zstd.
pub fn chunk_compressor() -> Result<impl FnMut()> {
    let chunk = read_chunk()?;
    compress(&chunk)?;
    // Panics only if zstd fails after it has just worked, as at a shutdown of the machine.
    Ok(move || compress(&chunk).expect("zstd worked a moment ago"))
}

fn read_chunk() -> Result<Vec<u8>> {
    let file = File::open(TEXT).with_context(|| format!("cannot read {TEXT}: `apt-get install dict-gcide`"))?;
    let mut text = Vec::new();
    GzDecoder::new(file).take(CHUNK_BYTES).read_to_end(&mut text).with_context(|| format!("{TEXT} is damaged"))?;
    Ok(text)
}

fn compress(chunk: &[u8]) -> Result<()> {
    let mut command = Command::new("zstd");
    command.args(["-19", "-q", "-c"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().context("cannot run zstd: `apt-get install zstd`")?;
    child.stdin.take().context("zstd has no standard input")?.write_all(chunk).context("zstd does not read")?;
    let status = child.wait().context("cannot wait for zstd")?;
    ensure!(status.success(), "zstd failed: {status}");
    Ok(())
}
