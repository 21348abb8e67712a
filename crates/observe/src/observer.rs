//! The observer: a thread that only reads signals (SHIM thesis, Figure 3.2).
//!
//! It has a lane to itself. Its loop allocates nothing, takes no lock and makes no system call for signals in memory.
//! Samples go into an [`Analysis`], and into a log if one is written. Between samples the observer hands over analyses
//! and samples through rings with one writer and one reader each.
//!
//! There are two loops. A single tag in memory is not sampled at the highest rate but *watched*. A read that gives the
//! same value as the read before is only counted, which takes a cycle or two, and the analysis gets runs of equal
//! values. All other observations use the loop of Figure 3.2.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::analysis::Analysis;
use super::handover::BufferSender;
use super::log::LogFeed;
use super::period::SampleTimer;
use super::sample::{Layout, Sample};
use sidelane_channels::lane::LaneThread;
use sidelane_channels::{ChannelEnd, Reader, Width, Word};
use sidelane_host::tsc::{current_lane, read_cycles, read_cycles_after_loads};

/// Number of samples between two checks whether the observer has to pause or end.
const SAMPLES_A_TURN: u32 = 256;
/// Number of samples between two checks for pause or end, if a sample may take milliseconds.
const SLOW_SAMPLES_A_TURN: u32 = 1;
/// Number of reads timed together when a word is watched: timing costs as much as 50 reads.
pub const READS_A_BLOCK: u64 = 1024;
/// Number of unrolled reads in the loop's code.
const UNROLLED: u64 = 8;
const BLOCKS_A_TURN: u32 = 16;

/// Commands to the running observer.
#[derive(Debug, Default)]
pub struct Controls(AtomicU32);

const OBSERVE: u32 = 0;
const PAUSE: u32 = 1;
const END: u32 = 2;

impl Controls {
    /// Makes the observer sleep until [`Controls::resume`].
    pub fn pause(&self) {
        self.0.store(PAUSE, Ordering::Release);
    }

    /// Makes the observer continue. `observer` is its thread, which may sleep.
    pub fn resume(&self, observer: &std::thread::Thread) {
        self.0.store(OBSERVE, Ordering::Release);
        observer.unpark();
    }

    /// Ends the observer in any state.
    pub fn end(&self, observer: &std::thread::Thread) {
        self.0.store(END, Ordering::Release);
        observer.unpark();
    }
}

/// Reason why an observer stopped.
#[derive(Debug)]
pub enum ObserverEnd {
    /// Command of the coordinator to end.
    Asked,
    /// Move to another lane, because the observer's own lane went offline.
    LaneGone,
    /// Channel that can no longer be read.
    Gone {
        /// Index of the signal: counters, then tags.
        signal: usize,
        /// Reason why the channel cannot be read.
        why: ChannelEnd,
    },
}

/// Observer thread's data: the signals to read, and the receivers of samples.
pub struct Observer {
    /// Readers of the counters, read between the two readings of the clock.
    pub counters: Vec<Reader>,
    /// Readers of the tags, read after the second reading of the clock.
    pub tags: Vec<Reader>,
    /// Reader of the thread on the observed lane; `None` if it is not tracked.
    pub thread: Option<LaneThread>,
    /// Timer that waits between samples.
    pub pace: SampleTimer,
    /// Handover of analyses to the coordinator.
    pub handover: BufferSender<Analysis>,
    /// Handover of samples to the log; `None` without a log.
    pub log: Option<LogFeed>,
    /// Commands from the coordinator.
    pub controls: Arc<Controls>,
    /// Lane of the observer.
    pub lane: u32,
}

impl Observer {
    /// Reads until a command ends the observer or a channel cannot be read. Returns the analysis that has not been
    /// handed over.
    pub fn run(mut self, mut analysis: Box<Analysis>) -> (Box<Analysis>, ObserverEnd) {
        let end = match self.single_watched_word() {
            Some(word) => self.watch_word(&word, &mut analysis),
            None => self.run_sampling(&mut analysis),
        };
        if let Some(log) = &mut self.log {
            log.end();
        }
        (analysis, end)
    }

    fn single_watched_word(&self) -> Option<Word> {
        let plain = self.counters.is_empty() && self.thread.is_none() && self.log.is_none() && self.pace.has_no_wait();
        match self.tags.as_slice() {
            [Reader::Word(word)] if plain => Some(word.clone()),
            _ => None,
        }
    }

    /// Returns why the loop has to end, or `None` to go on. Sleeps while the observer is paused. When its lane goes
    /// offline, the kernel moves the thread to another lane, where it would disturb other programs.
    #[inline(always)]
    fn check_for_end(&mut self, analysis: &mut Box<Analysis>) -> Option<ObserverEnd> {
        match self.controls.0.load(Ordering::Acquire) {
            OBSERVE if current_lane() != self.lane => Some(ObserverEnd::LaneGone),
            OBSERVE => self.check_for_truncated_word(),
            _ => self.wait_for_orders(analysis),
        }
    }

    /// Returns the end of the observation if the watched word's file was truncated. The word then reads as zero, which
    /// is not the target's value.
    #[inline(always)]
    fn check_for_truncated_word(&self) -> Option<ObserverEnd> {
        let is_lost = |reader: &Reader| matches!(reader, Reader::Word(word) if word.is_page_lost());
        let signal = self.counters.iter().chain(&self.tags).position(is_lost)?;
        let why = io::Error::other("its file was truncated by its owner");
        Some(ObserverEnd::Gone { signal, why: ChannelEnd::Error(why) })
    }

    #[cold]
    fn wait_for_orders(&mut self, analysis: &mut Box<Analysis>) -> Option<ObserverEnd> {
        analysis.mark_gap();
        if let Some(log) = &mut self.log {
            log.mark_gap();
        }
        loop {
            match self.controls.0.load(Ordering::Acquire) {
                OBSERVE => return None,
                PAUSE => std::thread::park(),
                _ => return Some(ObserverEnd::Asked),
            }
        }
    }

    fn run_sampling(&mut self, analysis: &mut Box<Analysis>) -> ObserverEnd {
        let layout = Layout { counters: self.counters.len(), tags: self.tags.len() };
        let turn = if self.pace.has_no_wait() { SAMPLES_A_TURN } else { SLOW_SAMPLES_A_TURN };
        let mut sample = Sample::default();
        loop {
            if let Some(end) = self.check_for_end(analysis) {
                return end;
            }
            for _ in 0..turn {
                self.pace.wait();
                if let Err((signal, why)) = self.read_sample(&mut sample) {
                    return ObserverEnd::Gone { signal, why };
                }
                analysis.record(&sample);
                if let Some(log) = &mut self.log {
                    log.write(&sample, layout);
                }
            }
            self.handover.try_exchange(analysis);
        }
    }

    /// Reads one sample: lines 4 to 16 of the SHIM thesis's Figure 3.2. First each word is fetched into this lane's
    /// cache. Reading the words then takes the same time in each sample, and few samples are skewed.
    #[inline(always)]
    fn read_sample(&mut self, sample: &mut Sample) -> Result<(), (usize, ChannelEnd)> {
        for counter in &self.counters {
            if let Reader::Word(word) = counter {
                std::hint::black_box(word.read());
            }
        }
        sample.start = read_cycles_after_loads();
        for (number, counter) in self.counters.iter_mut().enumerate() {
            sample.values[number] = read_signal(counter).map_err(|why| (number, why))?;
        }
        sample.end = if self.counters.is_empty() { sample.start } else { read_cycles_after_loads() };
        sample.thread = self.thread.as_ref().map_or(0, LaneThread::read_tid);
        for (number, tag) in self.tags.iter_mut().enumerate() {
            let number = self.counters.len() + number;
            sample.values[number] = read_signal(tag).map_err(|why| (number, why))?;
        }
        Ok(())
    }

    fn watch_word(&mut self, word: &Word, analysis: &mut Box<Analysis>) -> ObserverEnd {
        match word.width() {
            // The most common width has a separate loop, compiled without a check of the width.
            Width::U64 => self.watch_reads(|| word.read_u64(), analysis),
            _ => self.watch_reads(|| word.read(), analysis),
        }
    }

    fn watch_reads(&mut self, read: impl Fn() -> u64, analysis: &mut Box<Analysis>) -> ObserverEnd {
        let mut run = Run { value: read(), reads: 0 };
        let mut end = read_cycles();
        loop {
            if let Some(end) = self.check_for_end(analysis) {
                return end;
            }
            for _ in 0..BLOCKS_A_TURN {
                read_block(&read, &mut run, analysis);
                let began = std::mem::replace(&mut end, read_cycles());
                analysis.record_block(READS_A_BLOCK, began, end, run.value);
            }
            analysis.record_run(run.value, std::mem::take(&mut run.reads));
            if self.handover.try_exchange(analysis) {
                end = read_cycles();
            }
        }
    }
}

#[inline(always)]
fn read_signal(reader: &mut Reader) -> Result<u64, ChannelEnd> {
    match reader {
        Reader::Word(word) => Ok(word.read()),
        Reader::Pmc(counter) => Ok(counter.read()),
        Reader::Call(call) => call.read(),
    }
}

/// Run of reads with the same value.
struct Run {
    value: u64,
    reads: u64,
}

/// Reads a word many times and counts runs of equal values.
#[inline(always)]
fn read_block(read: &impl Fn() -> u64, run: &mut Run, analysis: &mut Analysis) {
    for _ in 0..READS_A_BLOCK / UNROLLED {
        for place in 0..UNROLLED {
            let value = read();
            if value != run.value {
                analysis.record_run(run.value, run.reads.wrapping_add(place));
                // The new value counts from the read with index `place` on. `UNROLLED` is added after the inner loop,
                // so `place` is subtracted here.
                *run = Run { value, reads: 0_u64.wrapping_sub(place) };
            }
        }
        run.reads = run.reads.wrapping_add(UNROLLED);
    }
}
