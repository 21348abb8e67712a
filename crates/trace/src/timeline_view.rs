//! Picture of one request: rows for its threads and lanes, the turns of threads on them, and arrows for wakeups and the
//! request's path.

use std::collections::BTreeMap;

use sidelane_report::trace::{Arrow, ArrowKind, Block, Mark, Occupant, RowKind, TimelineView, ViewRow, ViewSpan};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::record::{Kind, Record, Task};
use sidelane_tracker::requests::number_within_service;

use super::excerpt::{Excerpt, RequestPath};
use super::text::{Names, describe_span};

/// Returns the picture of a request. Its arrival is counted from `begin_ns`, the begin of the trace.
pub fn timeline_view(excerpt: &Excerpt, names: &Names, begin_ns: u64) -> TimelineView {
    let timeline = &excerpt.timeline;
    let rows = Rows::from_excerpt(excerpt, names);
    let us = |at_ns: u64| at_ns.wrapping_sub(timeline.arrived_ns) as i64 as f64 / 1e3;
    let spans = timeline.spans.iter().map(|span| ViewSpan {
        from_us: us(span.from_ns),
        to_us: us(span.to_ns),
        cause: span.cause,
        words: describe_span(span, names),
        row: rows.thread_row(span.tid),
    });
    TimelineView {
        number: number_within_service(timeline.request),
        arrived_us: timeline.arrived_ns.saturating_sub(begin_ns) as f64 / 1e3,
        latency_us: timeline.latency_ns() as f64 / 1e3,
        time: timeline.time(),
        spans: spans.collect(),
        arrows: arrows(excerpt, &rows, names, us),
        rows: rows.to_view_rows(excerpt, names, us),
        marks: marks(excerpt, us),
        left_out_count: excerpt.left_out,
    }
}

fn marks(excerpt: &Excerpt, ns_to_us: impl Fn(u64) -> f64) -> Vec<Mark> {
    let timeline = &excerpt.timeline;
    let stages = [
        (timeline.arrived_ns, "arrived"),
        (timeline.started_ns, "taken up"),
        (timeline.finished_ns, "answered"),
        (timeline.ended_ns, "left the machine"),
    ];
    // If the response's departure is not recorded, `ended_ns` equals `finished_ns`, and the last stage is left out.
    let last = usize::from(timeline.ended_ns > timeline.finished_ns);
    stages[..3 + last].iter().map(|(at_ns, words)| Mark { us: ns_to_us(*at_ns), words: (*words).to_owned() }).collect()
}

/// Rows of the picture: threads in the order in which the request came to them, then lanes.
struct Rows {
    threads: Vec<u32>,
    lanes: Vec<u32>,
    processes: Vec<u32>,
}

impl Rows {
    fn from_excerpt(excerpt: &Excerpt, names: &Names) -> Self {
        let mut rows = Self { threads: Vec::new(), lanes: Vec::new(), processes: Vec::new() };
        for span in &excerpt.timeline.spans {
            add_if_wanted(&mut rows.threads, span.tid, span.tid != 0);
            span.cpu.into_iter().for_each(|lane| add_if_wanted(&mut rows.lanes, lane, true));
        }
        for record in &excerpt.records {
            // A record without a thread belongs to an interrupt or the idle thread. It is no reason for a row of the
            // lane.
            add_if_wanted(&mut rows.lanes, record.cpu, record.kind == Kind::Switched);
            for task in [record.task, record.other] {
                add_if_wanted(&mut rows.processes, task.pid, rows.threads.contains(&task.tid));
            }
        }
        // A waker of the service that a span names has a row, too: a pool's acceptor, for example.
        for waker in excerpt.timeline.spans.iter().filter(|span| span.cause == Cause::HandOver) {
            let is_known = waker.by_tid != 0 && names.name(waker.by_tid).is_some();
            add_if_wanted(&mut rows.threads, waker.by_tid, is_known && rows.processes.contains(&waker.by_pid));
        }
        rows.lanes.sort_unstable();
        rows
    }

    fn thread_row(&self, tid: u32) -> Option<usize> {
        self.threads.iter().position(|known| *known == tid)
    }

    fn lane_row(&self, cpu: u32) -> Option<usize> {
        self.lanes.iter().position(|known| *known == cpu).map(|at| self.threads.len() + at)
    }

    fn occupant(&self, task: Task) -> Occupant {
        match task {
            task if self.threads.contains(&task.tid) => Occupant::Request,
            task if self.processes.contains(&task.pid) => Occupant::Service,
            _ => Occupant::Other,
        }
    }

    fn to_view_rows(&self, excerpt: &Excerpt, names: &Names, ns_to_us: impl Fn(u64) -> f64 + Copy) -> Vec<ViewRow> {
        let mut blocks = Blocks::from_excerpt(excerpt);
        let thread = |tid: &u32| ViewRow {
            of: RowKind::Thread,
            name: names.name(*tid).unwrap_or("thread").to_owned(),
            detail: format!("thread {tid}"),
            blocks: Vec::new(),
        };
        let mut tracks: Vec<ViewRow> = self.threads.iter().map(thread).collect();
        let lane = |cpu: &u32| ViewRow {
            of: RowKind::Lane,
            name: format!("lane {cpu}"),
            detail: String::new(),
            blocks: vec![],
        };
        tracks.extend(self.lanes.iter().map(lane));
        for turn in blocks.take_turns() {
            let block = |words| Block {
                from_us: ns_to_us(turn.from_ns),
                to_us: ns_to_us(turn.to_ns),
                who: self.occupant(turn.task),
                words,
            };
            if let Some(row) = self.thread_row(turn.task.tid) {
                tracks[row].blocks.push(block(format!("on lane {}", turn.cpu)));
            }
            if let Some(row) = self.lane_row(turn.cpu) {
                tracks[row].blocks.push(block(names.name_and_number(turn.task.tid)));
            }
        }
        for record in excerpt.records.iter().filter(|record| matches!(record.kind, Kind::Interrupt | Kind::Softirq)) {
            if let Some(row) = self.lane_row(record.cpu) {
                tracks[row].blocks.push(interrupt_block(record, ns_to_us));
            }
        }
        tracks.iter_mut().for_each(|track| track.blocks.sort_by(|one, other| one.from_us.total_cmp(&other.from_us)));
        tracks
    }
}

fn add_if_wanted(numbers: &mut Vec<u32>, number: u32, is_wanted: bool) {
    if is_wanted && !numbers.contains(&number) {
        numbers.push(number);
    }
}

fn interrupt_block(record: &Record, ns_to_us: impl Fn(u64) -> f64) -> Block {
    let what = if record.kind == Kind::Softirq { "softirq" } else { "interrupt" };
    Block {
        from_us: ns_to_us(record.at_ns.saturating_sub(record.value)),
        to_us: ns_to_us(record.at_ns),
        who: Occupant::Interrupt,
        words: format!("{what} {}", record.detail),
    }
}

/// An interval in which a thread had a lane.
struct Turn {
    task: Task,
    cpu: u32,
    from_ns: u64,
    to_ns: u64,
}

/// Turns of threads on lanes, from context switches. A turn whose begin was not recorded begins with the excerpt.
struct Blocks {
    turns: Vec<Turn>,
}

impl Blocks {
    fn from_excerpt(excerpt: &Excerpt) -> Self {
        let begin_ns = excerpt.records.first().map_or(excerpt.timeline.arrived_ns, |record| record.at_ns);
        let end_ns = excerpt.records.last().map_or(excerpt.timeline.ended_ns, |record| record.at_ns);
        let mut running: BTreeMap<u32, (Task, u64)> = BTreeMap::new();
        let mut turns = Vec::new();
        for record in excerpt.records.iter().filter(|record| record.kind == Kind::Switched) {
            let since = running.remove(&record.cpu).filter(|(task, _)| task.tid == record.task.tid);
            let from_ns = since.map_or(begin_ns, |(_, from_ns)| from_ns);
            // Only the first context switch of a lane may end a turn that began before the excerpt. The begins of later
            // turns are recorded.
            if since.is_some() || !turns.iter().any(|turn: &Turn| turn.cpu == record.cpu) {
                turns.push(Turn { task: record.task, cpu: record.cpu, from_ns, to_ns: record.at_ns });
            }
            running.insert(record.cpu, (record.other, record.at_ns));
        }
        turns.extend(running.into_iter().map(|(cpu, (task, from_ns))| Turn { task, cpu, from_ns, to_ns: end_ns }));
        turns.retain(|turn| turn.task.tid != 0 && turn.from_ns < turn.to_ns);
        Self { turns }
    }

    fn take_turns(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.turns)
    }
}

/// Returns the arrows of the picture: wakeups of the request's threads, and the request's path from lane to lane.
fn arrows(excerpt: &Excerpt, rows: &Rows, names: &Names, ns_to_us: impl Fn(u64) -> f64 + Copy) -> Vec<Arrow> {
    let mut arrows = wakeup_arrows(excerpt, rows, names, ns_to_us);
    arrows.extend(path_arrows(excerpt, rows, ns_to_us));
    arrows
}

fn wakeup_arrows(excerpt: &Excerpt, rows: &Rows, names: &Names, ns_to_us: impl Fn(u64) -> f64) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for (index, woken) in excerpt.records.iter().enumerate().filter(|(_, record)| record.kind == Kind::Woken) {
        let starts = |record: &&Record| record.kind == Kind::Switched && record.other.tid == woken.other.tid;
        let Some(started) = excerpt.records[index..].iter().find(starts) else { continue };
        let (Some(from_row), Some(to_row)) = (rows.lane_row(woken.cpu), rows.lane_row(started.cpu)) else { continue };
        let waker = if woken.task.tid == 0 {
            "an interrupt or the kernel".to_owned()
        } else {
            names.name_and_number(woken.task.tid)
        };
        arrows.push(Arrow {
            kind: ArrowKind::Wake,
            from_us: ns_to_us(woken.at_ns),
            from_row,
            to_us: ns_to_us(started.at_ns),
            to_row,
            words: format!("{waker} woke {}", names.name_and_number(woken.other.tid)),
        });
    }
    arrows
}

/// Returns arrows from each recorded stage of the request to the next, such as from its arrival to its reception by a
/// thread.
fn path_arrows(excerpt: &Excerpt, rows: &Rows, ns_to_us: impl Fn(u64) -> f64) -> Vec<Arrow> {
    let way = RequestPath::from_timeline(&excerpt.timeline);
    let timeline = &excerpt.timeline;
    let stage = |record: &&Record| {
        let in_time = (timeline.arrived_ns..=timeline.ended_ns).contains(&record.at_ns);
        let words = stage_name(record.kind)?;
        let lane = rows.lane_row(record.cpu)?;
        let is_first = record.kind == Kind::Segment && record.at_ns == timeline.arrived_ns;
        let is_its = is_first || record.request == timeline.request || record.socket == timeline.socket;
        (in_time && is_its && (record.task.tid == 0 || way.threads.contains(&record.task.tid))).then_some((
            record.at_ns,
            lane,
            words,
        ))
    };
    let stages: Vec<(u64, usize, &str)> = excerpt.records.iter().filter_map(|record| stage(&record)).collect();
    let pairs = stages.windows(2).filter(|pair| pair[0].0 < pair[1].0);
    pairs
        .map(|pair| Arrow {
            kind: ArrowKind::Flow,
            from_us: ns_to_us(pair[0].0),
            from_row: pair[0].1,
            to_us: ns_to_us(pair[1].0),
            to_row: pair[1].1,
            words: format!("{} → {}", pair[0].2, pair[1].2),
        })
        .collect()
}

fn stage_name(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Segment => "segment arrives",
        Kind::DataReady => "data at the socket",
        Kind::RequestStarted => "taken up",
        Kind::Sent => "given to the socket",
        Kind::Transmitted => "left for the device",
        Kind::Retransmitted => "sent again",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn run_queue_delay_shows_the_program_on_the_lane() {
        let sample = sample::build_sample();
        let excerpt = &sample.behind;
        let drawn = timeline_view(excerpt, &sample.names, sample.begin_ns);
        let names: Vec<&str> = drawn.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["server", "lane 0", "lane 1"]);
        let waits = drawn.spans.iter().find(|span| span.cause == Cause::RunQueue).unwrap();
        assert!(waits.words.contains("behind stress-ng"), "{waits:?}");
        let stranger = drawn.rows[2].blocks.iter().find(|block| block.who == Occupant::Other).unwrap();
        assert!(stranger.from_us <= waits.from_us && stranger.to_us >= waits.to_us, "{stranger:?} {waits:?}");
        let wake = drawn.arrows.iter().find(|arrow| arrow.kind == ArrowKind::Wake).unwrap();
        assert_eq!((wake.from_row, wake.to_row), (1, 2));
        assert_eq!((wake.from_us, wake.to_us), (waits.from_us, waits.to_us));
    }

    #[test]
    fn spans_and_parts_sum_to_the_latency() {
        let sample = sample::build_sample();
        for excerpt in &sample.excerpts {
            let drawn = timeline_view(excerpt, &sample.names, sample.begin_ns);
            let near = |sum: f64| assert!((sum - drawn.latency_us).abs() < 1e-3, "{sum} {drawn:?}");
            near(drawn.spans.iter().map(|span| span.to_us - span.from_us).sum());
            near(drawn.time.iter().map(|part| part.ns as f64 / 1e3).sum());
        }
    }

    #[test]
    fn path_of_a_request_goes_from_stage_to_stage() {
        let sample = sample::build_sample();
        let drawn = timeline_view(&sample.behind, &sample.names, sample.begin_ns);
        let flow: Vec<&str> =
            drawn.arrows.iter().filter(|arrow| arrow.kind == ArrowKind::Flow).map(|a| &*a.words).collect();
        assert_eq!(flow[0], "segment arrives → data at the socket");
        assert_eq!(*flow.last().unwrap(), "given to the socket → left for the device");
    }
}
