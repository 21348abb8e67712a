//! Text of a trace's report for the terminal, about ten lines. The first line has the finding and the advice. The next
//! lines have the causes, the causes that could not be found, and the cost of tracing. Empty and zero values have no
//! line.

use std::collections::BTreeMap;

use sidelane_report::Unit;
use sidelane_report::grid::{display_width, fold};
use sidelane_timeline::advice::general_advice;
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::Finding;

use super::report::{TraceReport, UnansweredCounts, human_count, human_ns};
use super::slow_threshold::SlowThreshold;

/// The most causes with lines of their own. One line sums up the other causes.
const CAUSES_MAX: usize = 3;
/// Share of the lost time, in percent, below which a cause has no line of its own.
const SHARE_MIN_PERCENT: f64 = 5.0;
/// Share of the lost time, in percent, below which a cause is not mentioned. Time without explanation is always
/// mentioned.
const WORD_MIN_PERCENT: f64 = 1.0;
/// Indentation of the lines below a cause's first line.
const INDENT: &str = "        ";

/// Returns the whole text of the report, in lines of at most `width` characters.
pub fn render_report(report: &TraceReport, width: usize) -> String {
    let mut lines = vec![Line::from_text(headline(report))];
    lines.extend(cause_lines(report));
    let rest = [undetectable_causes_text(report), missing_text(report), cost_text(report)];
    lines.extend(rest.into_iter().flatten().map(Line::from_text));
    lines.extend(report.notes.iter().map(|note| Line::from_text(format!("Note: {note}"))));
    lines.iter().map(|line| line.folded(width)).collect()
}

/// A line of the report before folding: it may be longer than the terminal is wide.
struct Line {
    /// Text at the begin of the line, such as an indentation.
    begin: String,
    text: String,
}

impl Line {
    fn from_text(text: String) -> Self {
        Self { begin: String::new(), text }
    }

    /// Returns the line, folded to `width`. Further lines are indented to the begin of the text, or a little more.
    fn folded(&self, width: usize) -> String {
        let indent = " ".repeat(if self.begin.is_empty() { 2 } else { display_width(&self.begin) });
        let lines = fold(&self.text, width.saturating_sub(indent.len()));
        let begin = |number| if number == 0 { &self.begin } else { &indent };
        lines.iter().enumerate().map(|(number, line)| format!("{}{line}\n", begin(number))).collect()
    }
}

/// Returns the finding and the advice, in one or two sentences. The sentences also say whether clients gave up
/// requests, and whether requests wait that are slower than all finished ones.
pub fn headline(report: &TraceReport) -> String {
    let (waits, longest) = (report.counts.oldest_open_ns, report.latency.max_ns.max(report.diagnosis.slo_ns));
    let waits = (report.counts.open > 0 && waits > longest).then(|| format!("{}.", no_response_text(report)));
    let sentences = [
        Some(finding_text(report)),
        has_slow_abandoned_requests(report).then(|| format!("{}.", abandoned_text(report))),
        waits,
    ];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns whether clients gave up requests after a wait that was longer than the objective allows. Without an
/// objective, returns whether clients gave up any.
fn has_slow_abandoned_requests(report: &TraceReport) -> bool {
    let UnansweredCounts { abandoned, abandoned_slow, .. } = &report.cut;
    *abandoned_slow > 0 || (report.threshold == SlowThreshold::P99 && abandoned.histogram.count() > 0)
}

fn abandoned_text(report: &TraceReport) -> String {
    let UnansweredCounts { abandoned, abandoned_slow, .. } = &report.cut;
    let count = abandoned.histogram.count();
    let half = human_ns(abandoned.percentile_ns(50.0).unwrap_or(0));
    let after = match count {
        1 => half,
        _ => format!("{half} at the median and {} at most", human_ns(abandoned.max_ns)),
    };
    let slow = match *abandoned_slow {
        0 => String::new(),
        _ if count == 1 => ", which is beyond the objective".to_owned(),
        1 => "; 1 of these waits is beyond the objective".to_owned(),
        slow => format!("; {} of these waits are beyond the objective", human_count(slow)),
    };
    let were = if count == 1 { "was" } else { "were" };
    format!(
        "{} {were} abandoned by the client without a response, after {after}{slow}",
        count_with_noun(count, "request")
    )
}

fn no_response_text(report: &TraceReport) -> String {
    let counts = &report.counts;
    format!(
        "{} had no response at the end, the oldest after {}",
        count_with_noun(counts.open, "request"),
        human_ns(counts.oldest_open_ns)
    )
}

fn count_with_noun(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", human_count(count), if count == 1 { "" } else { "s" })
}

fn finding_text(report: &TraceReport) -> String {
    let diagnosis = &report.diagnosis;
    let traced = Unit::S.human(report.wall_s);
    if diagnosis.requests == 0 && report.cut.abandoned.histogram.count() > 0 {
        return format!("No request of {} was seen from its beginning to a response in {traced}.", report.service);
    }
    if diagnosis.requests == 0 {
        return format!(
            "No request of {} was seen from its beginning to its end in {traced}. Check that requests arrive: sidelane \
             requests --service {}",
            report.service, report.service
        );
    }
    let (requests, service) = (human_count(diagnosis.requests), &report.service);
    if diagnosis.slow == 0 {
        let longest = human_ns(report.latency.max_ns);
        return format!(
            "None of {requests} requests of {service} was slow in {traced}: the longest took {longest}, {}.",
            limit_text(report)
        );
    }
    let slow = format!(
        "{}{} of {requests} requests of {service} took longer than {}.",
        tracer_warning(report),
        human_count(diagnosis.slow),
        limit_text(report)
    );
    match diagnosis.findings.first() {
        Some(first) if first.cause == Cause::NotExplained => {
            format!("{slow} Most of their lost time is not explained. What to do: {}", first.advice)
        }
        Some(first) => format!(
            "{slow} Largest cause: {}, {} of their lost time. What to do: {}",
            first.cause.name(),
            format_percent(first.share_percent),
            first.advice
        ),
        None => slow,
    }
}

/// Part of the slow requests' lost time from which the tracer's own share is mentioned, 0 to 1.
const TRACER_SHARE_MIN: f64 = 0.01;

/// Returns the first sentence of the report if the tracer itself delayed the service; otherwise an empty text.
fn tracer_warning(report: &TraceReport) -> String {
    let (diagnosis, tracer) = (&report.diagnosis, &report.diagnosis.tracer);
    let share = tracer.share(diagnosis.tail_ns);
    if share <= TRACER_SHARE_MIN {
        return String::new();
    }
    let alone = match tracer.made_slow {
        0 => String::new(),
        slow => format!(", {} of them slow only because of it and left out of the causes", human_count(slow)),
    };
    format!(
        "sidelane itself delayed {} of {} requests by up to {}{alone}: {} of the lost time of slow requests. What to \
         do: {} ",
        human_count(tracer.delayed),
        human_count(diagnosis.requests),
        human_ns(tracer.longest_ns),
        format_percent(share * 100.0),
        general_advice(Cause::Tracer),
    )
}

/// Returns the cost of the tracer to the requests, as text.
fn tracer_delay_text(report: &TraceReport) -> String {
    let (requests, tracer) = (human_count(report.diagnosis.requests), &report.diagnosis.tracer);
    match tracer.delayed {
        0 => format!("this trace delayed none of {requests} requests"),
        delayed => {
            let (delayed, longest) = (human_count(delayed), human_ns(tracer.longest_ns));
            format!("this trace delayed {delayed} of {requests} requests, by {longest} at most")
        }
    }
}

fn limit_text(report: &TraceReport) -> String {
    let limit = human_ns(report.diagnosis.slo_ns).replace(".0 ", " ");
    match report.threshold {
        SlowThreshold::P99 => format!("{limit} (the p99 of this trace; --slo sets another limit)"),
        threshold => format!("{limit} ({})", threshold.name()),
    }
}

/// Returns a line for each of the largest causes, the advice for all but the first, and one line for the others.
fn cause_lines(report: &TraceReport) -> Vec<Line> {
    let findings = &report.diagnosis.findings;
    let large = |finding: &&Finding| finding.share_percent >= SHARE_MIN_PERCENT;
    let shown = findings.iter().take(CAUSES_MAX).take_while(large).count();
    let mut lines = Vec::new();
    for (place, finding) in findings[..shown].iter().enumerate() {
        lines.push(Line {
            begin: format!("{:>6}  ", format_percent(finding.share_percent)),
            text: cause_text(report, finding),
        });
        if place > 0 && !finding.advice.is_empty() {
            lines.push(Line { begin: INDENT.to_owned(), text: format!("What to do: {}", finding.advice) });
        }
    }
    let share = |finding: &Finding| format!("{} {}", finding.cause.name(), format_percent(finding.share_percent));
    let rest =
        findings[shown..].iter().filter(|f| f.share_percent >= WORD_MIN_PERCENT || f.cause == Cause::NotExplained);
    let rest: Vec<String> = rest.map(share).collect();
    if !rest.is_empty() {
        lines.push(Line { begin: "   and  ".to_owned(), text: rest.join(", ") });
    }
    lines
}

fn format_percent(percent: f64) -> String {
    if percent < 1.0 { "< 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Returns the text of one cause: its name, the number of requests, the evidence, and the clearest example.
fn cause_text(report: &TraceReport, finding: &Finding) -> String {
    let requests = match finding.requests {
        0 => None,
        1 => Some("made 1 request slow".to_owned()),
        many => Some(format!("made {} requests slow", human_count(many))),
    };
    // The first sentence of the evidence has the number of requests. The next sentences name the thread or object.
    let seen = finding.evidence.get(1).or(finding.evidence.first()).cloned();
    let parts = [requests, seen, clearest_example(report, finding)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", finding.cause.name(), parts.join("; "))
}

fn clearest_example(report: &TraceReport, finding: &Finding) -> Option<String> {
    let number = *finding.examples.first()?;
    let request = report.requests.iter().find(|request| request.number == number);
    let times = request.map_or_else(String::new, |request| {
        let of_it = request.time.iter().find(|part| part.cause == finding.cause).map_or(0, |part| part.ns);
        format!(", {} of {}", human_ns(of_it), Unit::Us.human(request.latency_us))
    });
    Some(format!("clearest: request {number}{times}"))
}

/// Returns the causes that could not be found, joined if the reason is the same.
fn undetectable_causes_text(report: &TraceReport) -> Option<String> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for missing in &report.diagnosis.cannot_tell {
        reasons.entry(&missing.why).or_default().push(missing.cause.name());
    }
    let reasons: Vec<String> =
        reasons.into_iter().map(|(why, causes)| format!("{} ({why})", causes.join(", "))).collect();
    (!reasons.is_empty()).then(|| format!("Not known here: {}", reasons.join("; ")))
}

/// Returns the numbers of missing records and requests, as text.
fn missing_text(report: &TraceReport) -> Option<String> {
    let (counts, broken) = (&report.counts, report.diagnosis.incomplete);
    let part = |count: u64, words: &dyn Fn() -> String| (count > 0).then(words);
    let parts = [
        part(counts.lost, &|| format!("{} of the records were lost", human_count(counts.lost))),
        part(counts.left_out, &|| {
            format!(
                "{} runs of the kernel program were left out, and have no record",
                count_with_noun(counts.left_out, "run")
            )
        }),
        part(broken, &|| {
            format!(
                "{} could not be rebuilt from beginning to end and are not counted",
                count_with_noun(broken, "request")
            )
        }),
        part(counts.open, &|| no_response_text(report)),
        part(if has_slow_abandoned_requests(report) { 0 } else { report.cut.abandoned.histogram.count() }, &|| {
            abandoned_text(report)
        }),
        part(report.cut.closed_by_service, &|| {
            format!(
                "{} had no response before the service closed the connection",
                count_with_noun(report.cut.closed_by_service, "request")
            )
        }),
        part(report.cut.one_way, &|| format!("{} wanted no response", count_with_noun(report.cut.one_way, "message"))),
        part(counts.unanswered, &|| {
            format!("{} ended without a response", count_with_noun(counts.unanswered, "request"))
        }),
        part(counts.given_up, &|| {
            format!("{} had no record for a minute and were given up", count_with_noun(counts.given_up, "request"))
        }),
        part(counts.unknown, &|| {
            format!("{} to requests that began before the trace", count_with_noun(counts.unknown, "response"))
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Missing: {}", parts.join("; ")))
}

/// Returns the cost of tracing as text: records, CPU time and delayed requests; `None` without records.
fn cost_text(report: &TraceReport) -> Option<String> {
    let records = report.counts.records;
    if records == 0 {
        return None;
    }
    let a_request = records as f64 / report.diagnosis.requests.max(1) as f64;
    let cpu = report.cpu_percent.map(|percent| format!(", {percent:.0} % of one CPU in sidelane itself"));
    Some(format!(
        "Traced for {}: {} records, {a_request:.0} a request{}; {}",
        Unit::S.human(report.wall_s),
        human_count(records),
        cpu.unwrap_or_default(),
        tracer_delay_text(report)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use sidelane_timeline::diagnosis::TracerCost;
    use sidelane_timeline::ending::{Ending, UnansweredRequest};

    use super::super::report::Counts;
    use super::*;

    /// The text of the invented trace's report on a terminal of 120 columns.
    const WHOLE: &str = "\
76 of 300 requests of port:8080 took longer than 2 ms (objective). Largest cause: response in the send buffer, 42 % of
  their lost time. What to do: set TCP_NODELAY on the service's sockets
  42 %  response in the send buffer: made 8 requests slow; one acknowledgement came 40 ms later; clearest: request 279,
        40.3 ms of 40.4 ms
  26 %  wait for a CPU: made 36 requests slow; stress-ng (900) had the CPU; clearest: request 238, 10.0 ms of 10.3 ms
        What to do: give the service CPUs of its own, or run batch with sidelane run
  24 %  garbage collection: made 20 requests slow; 11 young collections; clearest: request 234, 13.8 ms of 14.1 ms
        What to do: give the heap more room, or put a backup server beside it
   and  lock 8 %
Not known here: disk (this kernel records no disk events)
Missing: 12 of the records were lost; 3 requests could not be rebuilt from beginning to end and are not counted
Traced for 15.1 s: 3,136 records, 10 a request, 4 % of one CPU in sidelane itself; this trace delayed none of 300
  requests
";

    #[test]
    fn summary_of_a_trace_has_about_ten_lines() {
        assert_eq!(render_report(&sample::report(), 120), WHOLE);
    }

    #[test]
    fn clients_that_gave_up_are_in_the_first_line() {
        let mut report = sample::report();
        let abandoned =
            |waited_ns| UnansweredRequest { request: 1, arrived_ns: 0, ended_ns: waited_ns, ending: Ending::Abandoned };
        report.cut.add(&abandoned(1_000_000), Some(2_000_000));
        assert!(!headline(&report).contains("abandoned"), "sooner than the objective: {}", headline(&report));
        assert!(
            render_report(&report, 1_000).contains("1 request was abandoned by the client without a response, after 1")
        );
        report.cut.add(&abandoned(50_000_000), Some(2_000_000));
        let said = "2 requests were abandoned by the client without a response, after ";
        let first = headline(&report);
        assert!(
            first.contains(said) && first.ends_with("50.0 ms at most; 1 of these waits is beyond the objective."),
            "{first}"
        );
        report.diagnosis.requests = 0;
        assert!(!headline(&report).contains("Check that requests arrive"), "{}", headline(&report));
    }

    #[test]
    fn tracer_overhead_over_1_percent_comes_first() {
        let mut report = sample::report();
        let tail_ns = report.diagnosis.tail_ns;
        let cost = |tail_ns| TracerCost { delayed: 9, longest_ns: 3_000_000, made_slow: 7, tail_ns };
        report.diagnosis.tracer = cost(tail_ns / 200);
        assert!(headline(&report).starts_with("76 of 300 requests"), "{}", headline(&report));
        assert!(render_report(&report, 400).contains("this trace delayed 9 of 300 requests, by 3.0 ms at most"));
        report.diagnosis.tracer = cost(tail_ns);
        let first = "sidelane itself delayed 9 of 300 requests by up to 3.0 ms, 7 of them slow only because of it and \
                     left out of the causes: 50 % of the lost time of slow requests. What to do: ";
        let said = headline(&report);
        assert!(said.starts_with(first) && said.contains(" 76 of 300 requests of port:8080 took longer"), "{said}");
    }

    #[test]
    fn empty_sections_have_no_line() {
        let mut report = sample::report();
        report.diagnosis.cannot_tell.clear();
        report.counts = Counts::default();
        report.diagnosis.incomplete = 0;
        report.diagnosis.findings.truncate(1);
        assert_eq!(render_report(&report, 400).lines().count(), 2, "{}", render_report(&report, 400));
    }

    #[test]
    fn summary_says_if_there_were_no_or_no_slow_requests() {
        let mut report = sample::report();
        report.diagnosis.slow = 0;
        report.diagnosis.findings.clear();
        assert!(
            headline(&report).starts_with("None of 300 requests of port:8080 was slow in 15.1 s: the longest took ")
        );
        report.diagnosis.requests = 0;
        assert!(headline(&report).ends_with("sidelane requests --service port:8080"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 120] {
            let text = render_report(&sample::report(), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
    }
}
