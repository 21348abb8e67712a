//! Spans of a request that lie end to end, without gap or overlap.

use crate::cause::Cause;
use crate::timeline::Span;

/// The most spans of a timeline. A timeline with more spans is shortened by merging spans.
const SPANS_MAX: usize = 1024;
/// Number of parts of a timeline with too many spans. In each part, equal spans become one.
const PARTS: u64 = 64;
/// The most spans of one part. Further spans are merged by cause and thread.
const SPANS_OF_PART: usize = SPANS_MAX / PARTS as usize;

/// Builder of a request's spans, which lie end to end from one moment on.
#[derive(Debug)]
pub struct SpanBuilder {
    at_ns: u64,
    /// Whether lost records may belong to some of the time.
    pub is_missing: bool,
    spans: Vec<Span>,
}

fn are_equal_except_times(one: &Span, other: &Span) -> bool {
    let by = |span: &Span| (span.by_tid, span.by_pid, span.detail, span.behind, span.wait);
    let key = |span: &Span| (span.cause, span.tid, span.cpu, by(span));
    key(one) == key(other)
}

impl SpanBuilder {
    pub fn new(at_ns: u64) -> SpanBuilder {
        SpanBuilder { at_ns, is_missing: false, spans: Vec::new() }
    }

    /// Returns the time at which the next span begins, in nanoseconds.
    pub fn next_begin_ns(&self) -> u64 {
        self.at_ns
    }

    /// Adds a span with the properties of `like`, from the end of the last span until `to_ns`. Adds nothing if `to_ns`
    /// is not after that end.
    pub fn add_span_until(&mut self, to_ns: u64, like: Span) {
        if to_ns <= self.at_ns {
            return;
        }
        let span = Span { from_ns: self.at_ns, to_ns, ..like };
        self.at_ns = to_ns;
        match self.spans.last_mut() {
            Some(last) if are_equal_except_times(last, &span) => last.to_ns = to_ns,
            _ => self.spans.push(span),
        }
    }

    /// Returns the spans up to `to_ns`. Time without a span is not explained.
    pub fn finish(mut self, to_ns: u64) -> Vec<Span> {
        self.add_span_until(to_ns, unexplained_span());
        if self.spans.len() > SPANS_MAX { merge_spans(&self.spans) } else { self.spans }
    }
}

/// Returns a span without cause, thread and details.
pub fn unexplained_span() -> Span {
    Span {
        from_ns: 0,
        to_ns: 0,
        cause: Cause::NotExplained,
        tid: 0,
        cpu: None,
        by_tid: 0,
        by_pid: 0,
        detail: 0,
        behind: 0,
        wait: None,
    }
}

/// Merges too many spans into about `SPANS_MAX` spans, which cover the same time. In each of `PARTS` equal parts of
/// that time, each cause keeps its total time, but the order of the spans is lost.
fn merge_spans(spans: &[Span]) -> Vec<Span> {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Vec::new() };
    let part_ns = (last.to_ns - first.from_ns).div_ceil(PARTS).max(1);
    let mut tiling = SpanBuilder::new(first.from_ns);
    let mut part: Vec<Span> = Vec::new();
    for span in spans {
        if (span.from_ns - first.from_ns) / part_ns != (tiling.at_ns - first.from_ns) / part_ns {
            append_part(&mut part, &mut tiling);
        }
        add_to_part(&mut part, span);
    }
    append_part(&mut part, &mut tiling);
    tiling.spans
}

/// Adds a span to a part of a timeline. If the part has too many spans, those of one cause and thread become one span,
/// with the details that they share.
fn add_to_part(part: &mut Vec<Span>, span: &Span) {
    let is_full = part.len() >= SPANS_OF_PART;
    let place = part.iter().position(|other| are_equal_except_times(other, span));
    let similar = || part.iter().position(|other| (other.cause, other.tid) == (span.cause, span.tid));
    match place.or_else(|| if is_full { similar() } else { None }) {
        Some(place) => {
            let length_ns = span.length_ns();
            part[place] = Span { to_ns: part[place].to_ns + length_ns, ..common_details(&part[place], span) };
        }
        None => part.push(*span),
    }
}

/// Returns a span with the details that both spans share.
fn common_details(one: &Span, other: &Span) -> Span {
    let by_is_same = (one.by_tid, one.by_pid) == (other.by_tid, other.by_pid);
    let (by_tid, by_pid) = if by_is_same { (one.by_tid, one.by_pid) } else { (0, 0) };
    Span {
        cpu: one.cpu.filter(|_| one.cpu == other.cpu),
        by_tid,
        by_pid,
        detail: if one.detail == other.detail { one.detail } else { 0 },
        behind: if one.behind == other.behind { one.behind } else { 0 },
        wait: one.wait.filter(|_| one.wait == other.wait),
        ..*one
    }
}

/// Adds the merged spans of a part to `tiling`, one after the other.
fn append_part(part: &mut Vec<Span>, tiling: &mut SpanBuilder) {
    for span in part.drain(..) {
        tiling.add_span_until(tiling.at_ns + span.length_ns(), span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Wait;

    fn span_of_cause(cause: Cause) -> Span {
        Span { cause, ..unexplained_span() }
    }

    #[test]
    fn spans_lie_end_to_end_and_equal_neighbours_merge() {
        let mut tiling = SpanBuilder::new(10);
        tiling.add_span_until(20, span_of_cause(Cause::OnCpu));
        tiling.add_span_until(15, span_of_cause(Cause::Disk));
        tiling.add_span_until(30, span_of_cause(Cause::OnCpu));
        tiling.add_span_until(40, span_of_cause(Cause::Disk));
        let spans = tiling.finish(50);
        let parts: Vec<_> = spans.iter().map(|span| (span.from_ns, span.to_ns, span.cause)).collect();
        assert_eq!(parts, [(10, 30, Cause::OnCpu), (30, 40, Cause::Disk), (40, 50, Cause::NotExplained)]);
    }

    #[test]
    fn merging_of_many_spans_keeps_the_time_of_each_cause() {
        const BEGIN_NS: u64 = 7_000_000;
        let mut tiling = SpanBuilder::new(BEGIN_NS);
        for at_ns in (0..100_000).map(|index| BEGIN_NS + index * 10) {
            tiling.add_span_until(at_ns + 3, span_of_cause(Cause::OnCpu));
            tiling.add_span_until(at_ns + 10, span_of_cause(Cause::RunQueue));
        }
        let spans = tiling.finish(BEGIN_NS + 1_000_000);
        assert!(spans.len() <= SPANS_MAX);
        let on_cpu_ns: u64 = spans.iter().filter(|span| span.cause == Cause::OnCpu).map(Span::length_ns).sum();
        assert_eq!(on_cpu_ns, 300_000);
        assert!(spans.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert_eq!((spans[0].from_ns, spans[spans.len() - 1].to_ns), (BEGIN_NS, BEGIN_NS + 1_000_000));
        assert_eq!(spans.len(), 2 * PARTS as usize, "both causes in each part");
    }

    /// Returns the time of each disk in a timeline that waits for `disks` disks, one after the other.
    fn times_of_disks(disks: u64) -> Vec<(u64, u64)> {
        let mut tiling = SpanBuilder::new(0);
        for index in 0..10_000 {
            tiling.add_span_until(index * 10 + 3, span_of_cause(Cause::OnCpu));
            tiling.add_span_until(
                index * 10 + 10,
                Span { detail: index % disks + 1, by_tid: 9, ..span_of_cause(Cause::Disk) },
            );
        }
        let mut times = std::collections::BTreeMap::<u64, u64>::new();
        for span in tiling.finish(100_000).iter().filter(|span| span.cause == Cause::Disk) {
            assert_eq!(span.by_tid, 9);
            *times.entry(span.detail).or_default() += span.length_ns();
        }
        times.into_iter().collect()
    }

    #[test]
    fn merged_span_has_only_details_that_both_share() {
        let wait = Some(Wait { timeout_ms: 5, ..Wait::default() });
        let one = Span { cpu: Some(3), by_tid: 5, by_pid: 4, detail: 9, behind: 8, wait, ..span_of_cause(Cause::Lock) };
        assert_eq!(common_details(&one, &one), one);
        for (other, expected) in [
            (Span { cpu: Some(2), ..one }, Span { cpu: None, ..one }),
            (Span { by_tid: 6, ..one }, Span { by_tid: 0, by_pid: 0, ..one }),
            (Span { by_pid: 6, ..one }, Span { by_tid: 0, by_pid: 0, ..one }),
            (Span { detail: 1, ..one }, Span { detail: 0, ..one }),
            (Span { behind: 1, ..one }, Span { behind: 0, ..one }),
            (Span { wait: None, ..one }, Span { wait: None, ..one }),
        ] {
            assert_eq!(common_details(&one, &other), expected);
        }
    }

    #[test]
    fn merging_of_spans_keeps_the_time_of_each_detail() {
        assert_eq!(times_of_disks(2), [(1, 35_000), (2, 35_000)]);
        let of_many = times_of_disks(10_000);
        let (unknown, known): (Vec<_>, Vec<_>) = of_many.into_iter().partition(|(disk, _)| *disk == 0);
        assert!(known.iter().all(|(_, time_ns)| *time_ns == 7), "{known:?}");
        let known_ns: u64 = known.iter().map(|(_, time_ns)| time_ns).sum();
        assert_eq!(unknown[0].1 + known_ns, 70_000);
    }
}
