//! The file in which a process emits its requests: found among its open files, mapped, and read
//! without making it wait.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sidelane_signal::{
    EMIT_EVENTS, EMIT_MAGIC, EMIT_NAME, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitThread, Emitted, view,
};

const RING_BYTES: usize = size_of::<EmitThread>() + EMIT_EVENTS * size_of::<EmitEvent>();
const FILE_BYTES: usize = size_of::<EmitHead>() + EMIT_THREADS * RING_BYTES;

/// One process's file.
pub(super) struct EmitFile {
    start: NonNull<u8>,
    /// How far each ring was read.
    read: Vec<u64>,
    lost: u64,
    head_lost: u64,
}

// SAFETY: the mapping belongs to this value alone, holds atomics and is only read.
unsafe impl Send for EmitFile {}

impl EmitFile {
    /// What the process emits from now on; `None` if it does not.
    pub(super) fn find(pid: u32) -> Option<Self> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        files.map(|file| file.path()).filter(|path| is_named(path)).find_map(|path| Self::open(&path, pid))
    }

    fn open(path: &PathBuf, pid: u32) -> Option<Self> {
        let file = File::open(path).ok()?;
        // A file that could shrink could make the reader crash.
        let large = file.metadata().ok()?.len() >= FILE_BYTES as u64;
        if !large || !cannot_shrink(&file) {
            return None;
        }
        let mut opened = Self { start: map(&file).ok()?, read: vec![], lost: 0, head_lost: 0 };
        opened.is_of(pid).then_some(())?;
        opened.read = opened.threads().map(|thread| thread.written.load(Ordering::Acquire)).collect();
        opened.head_lost = opened.head().lost.load(Ordering::Relaxed);
        Some(opened)
    }

    fn is_of(&self, pid: u32) -> bool {
        let head = self.head();
        let sizes = [&head.version, &head.pid, &head.threads, &head.events];
        let wanted = [EMIT_VERSION, pid, EMIT_THREADS as u32, EMIT_EVENTS as u32];
        head.magic.load(Ordering::Acquire) == EMIT_MAGIC && sizes.map(|size| size.load(Ordering::Relaxed)) == wanted
    }

    /// Reads every event since the last call, in the order of each ring.
    pub(super) fn fetch(&mut self, mut each: impl FnMut(Emitted)) {
        let mut read = std::mem::take(&mut self.read);
        for (ring, read) in read.iter_mut().enumerate() {
            let written = self.thread(ring).written.load(Ordering::Acquire);
            let oldest = written.saturating_sub(EMIT_EVENTS as u64).max(*read);
            self.lost += oldest - *read;
            for seq in oldest + 1..=written {
                let place = ((seq - 1) % EMIT_EVENTS as u64) as usize;
                match self.events(ring)[place].read(seq) {
                    Some(event) => each(event),
                    None => self.lost += 1,
                }
            }
            *read = written.max(*read);
        }
        self.read = read;
    }

    /// Events that were overwritten before they were read, or found no ring, since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        let head_lost = self.head().lost.load(Ordering::Relaxed);
        let lost = std::mem::take(&mut self.lost) + head_lost.saturating_sub(self.head_lost);
        self.head_lost = head_lost;
        lost
    }

    /// Requests that were received and not taken up.
    pub(super) fn queue_len(&self) -> u64 {
        let sum = |count: fn(&EmitThread) -> u64| self.threads().map(count).fold(0, u64::wrapping_add);
        let started = sum(|thread| thread.started.load(Ordering::Relaxed));
        sum(|thread| thread.received.load(Ordering::Relaxed)).saturating_sub(started)
    }

    fn threads(&self) -> impl Iterator<Item = &EmitThread> {
        (0..EMIT_THREADS).map(|ring| self.thread(ring))
    }

    fn head(&self) -> &EmitHead {
        &self.at::<EmitHead>(0, 1)[0]
    }

    fn thread(&self, ring: usize) -> &EmitThread {
        &self.at::<EmitThread>(size_of::<EmitHead>() + ring * RING_BYTES, 1)[0]
    }

    fn events(&self, ring: usize) -> &[EmitEvent] {
        let start = size_of::<EmitHead>() + ring * RING_BYTES + size_of::<EmitThread>();
        self.at(start, EMIT_EVENTS)
    }

    fn at<W: sidelane_signal::Shared>(&self, offset: usize, count: usize) -> &[W] {
        let length = count * size_of::<W>();
        assert!(offset + length <= FILE_BYTES, "inside the file");
        // SAFETY: within the mapping (just checked), which lives as long as self; the file cannot
        // shrink (its seal was checked), and this process only loads from it, atomically.
        let words = unsafe { view::<W>(self.start.as_ptr().add(offset), length) };
        words.expect("the format is aligned")
    }
}

impl Drop for EmitFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; no reference outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), FILE_BYTES) };
    }
}

fn is_named(path: &Path) -> bool {
    let wanted = format!("/memfd:{EMIT_NAME}");
    fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(&wanted))
}

fn cannot_shrink(file: &File) -> bool {
    // SAFETY: plain system call on an open file.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn map(file: &File) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let start = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    Ok(NonNull::new(start.cast()).expect("mmap returns no null pointer"))
}
