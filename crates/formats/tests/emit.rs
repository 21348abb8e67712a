//! Test of event slots between languages. A C program emits events through `abi/slot.h` into a shared file, and Rust in
//! another process reads them at the same time. The reader accepts only whole events, accounts for every event, and
//! does not miss the last one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;

use memmap2::MmapOptions;
use sidelane_formats::{Event, EventSlot, PAYLOAD_WORDS, Poll, SlotReader, view};

mod support;

/// Number of events. Each is overwritten many times while it is read, in less than a second.
const EVENTS: u32 = 200_000;

/// Creates a file with one empty slot.
fn slot_file() -> (PathBuf, File) {
    let name = format!("slot-{}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.expect("the target directory is writable");
    file.set_len(size_of::<EventSlot>() as u64).expect("the file can grow to one slot");
    (path, file)
}

/// Returns the file's slot, mapped until the process ends.
fn map_slot(file: &File) -> &'static EventSlot {
    let memory = Box::leak(Box::new(MmapOptions::new().map_raw_read_only(file).expect("the file can be mapped")));
    // SAFETY: mapped for reading and never unmapped; this process only polls it.
    let slots = unsafe { view::<EventSlot>(memory.as_ptr(), memory.len()) };
    &slots.expect("mappings start on a page")[0]
}

/// Panics unless every field of `event` has the value that `abi/tests/emit.c` computes from its
/// number.
fn assert_event_is_not_torn(event: &Event) {
    let n = event.seq;
    let payload = std::array::from_fn(|i| n as usize * PAYLOAD_WORDS + i).map(|word| word as u64);
    let (kind, tid, pid) = (n + 1, n + 2, n + 3);
    assert_eq!(*event, Event { kind, tid, pid, payload, ..*event });
}

/// Counts of the events that a reader has seen.
#[derive(Debug, Default)]
struct Tally {
    accepted: u32,
    missed: u32,
    torn: u32,
    last_ns: u64,
}

impl Tally {
    fn count(&mut self, poll: Poll) {
        match poll {
            Poll::Event { event, missed } => {
                assert_event_is_not_torn(&event);
                assert!(event.timestamp_ns > self.last_ns);
                self.last_ns = event.timestamp_ns;
                self.accepted += 1;
                self.missed += missed;
                assert_eq!(event.seq, self.accepted + self.missed);
            }
            Poll::Torn => self.torn += 1,
            Poll::Repeated => std::hint::spin_loop(),
        }
    }
}

/// Reads until the emitter has ended, and once more after that. Returns the counts.
fn read_until_end(reader: &mut SlotReader, emitter: &mut Child) -> Tally {
    let mut tally = Tally::default();
    loop {
        let ended = emitter.try_wait().expect("the emitter is our child");
        // There are many polls for one system call, so that the slot is watched nearly all the time.
        for _ in 0..10_000 {
            tally.count(reader.poll());
        }
        if let Some(status) = ended {
            assert!(status.success(), "the emitter: {status}");
            return tally;
        }
    }
}

#[test]
fn rust_reads_what_c_emits() {
    let Some(program) = support::compile_c("emit.c") else {
        return;
    };
    let (path, file) = slot_file();
    let mut reader = SlotReader::from_start(map_slot(&file));
    let mut emitter = program.command().arg(&path).arg(EVENTS.to_string()).spawn().expect("the emitter starts");
    let tally = read_until_end(&mut reader, &mut emitter);
    std::fs::remove_file(path).expect("the slot's file is still there");
    println!("{tally:?}");
    assert_eq!(tally.accepted + tally.missed, EVENTS);
}
