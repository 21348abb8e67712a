//! Lines of Hurry-up's pipe (Nishtala et al., §III-C). A service writes a line `THREAD;REQUEST;MILLISECONDS` when a
//! thread begins a request. It writes the same line with another time when the thread ends it.
//!
//! Problem. The writer is a foreign program. It may have errors, it may be killed in the middle of a line and
//! restarted, and its wall clock may be set.
//!
//! Approach. [`StatsLines`] takes bytes in pieces of any size. Other lines are counted and skipped. [`StatsClock`]
//! converts the time of a line to the reader's clock. The result is not before the last read, since that read emptied
//! the pipe, and not in the future.

/// Longest valid line in bytes, without its end of line.
pub const STATS_LINE_MAX: usize = 128;

/// Line of the pipe. Start and end of a request look alike: the first line of a request is its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsLine {
    /// Number of the thread that works on the request.
    pub thread: u32,
    /// Number of the request: a hash of its name (64-bit FNV-1a), since names have any length. Among 512 requests under
    /// way, two have the same number with a probability of 2⁻⁴⁷.
    pub request: u64,
    /// Time in milliseconds of the writer's wall clock.
    pub at_ms: u64,
}

impl StatsLine {
    /// Parses the line in `text`, which has no end of line. The name of a request may contain semicolons.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let first = text.iter().position(|byte| *byte == b';')?;
        let last = text.iter().rposition(|byte| *byte == b';')?;
        let name = text.get(first + 1..last).filter(|name| !name.is_empty())?;
        let thread = u32::try_from(parse_number(&text[..first])?).ok()?;
        Some(Self { thread, request: hash(name), at_ms: parse_number(&text[last + 1..])? })
    }
}

/// Parses a number of decimal digits, at least one.
fn parse_number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}

fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Parser that splits bytes, in pieces of any size, into lines.
#[derive(Clone, Debug)]
pub struct StatsLines {
    /// Present incomplete line.
    begun: [u8; STATS_LINE_MAX],
    len: usize,
    /// Whether the present line is too long, so that its rest is skipped.
    skips: bool,
    malformed: u64,
}

impl Default for StatsLines {
    fn default() -> Self {
        Self::new()
    }
}

impl StatsLines {
    /// Creates a parser in its state before the first byte.
    pub const fn new() -> Self {
        Self { begun: [0; STATS_LINE_MAX], len: 0, skips: false, malformed: 0 }
    }

    /// Returns the number of lines that were skipped because they are malformed.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Adds further bytes, and calls `tell` with each complete line.
    pub fn add_bytes(&mut self, bytes: &[u8], mut on_line: impl FnMut(StatsLine)) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line().into_iter().for_each(&mut on_line),
                _ if self.len == STATS_LINE_MAX => self.skips = true,
                byte => {
                    self.begun[self.len] = *byte;
                    self.len += 1;
                }
            }
        }
    }

    /// Drops an incomplete line after the writer has closed the pipe, and counts it as malformed. Another writer begins
    /// a new line.
    pub fn drop_incomplete_line(&mut self) {
        self.malformed += u64::from(self.len > 0);
        (self.len, self.skips) = (0, false);
    }

    fn end_line(&mut self) -> Option<StatsLine> {
        let line = StatsLine::parse(&self.begun[..self.len]).filter(|_| !self.skips);
        self.malformed += u64::from(line.is_none());
        (self.len, self.skips) = (0, false);
        line
    }
}

/// Converter from the writer's wall clock to the reader's clock, which never goes back.
#[derive(Clone, Copy, Debug)]
pub struct StatsClock {
    /// Time of the last read that emptied the pipe: every line read since was written after it.
    read_at_ns: u64,
    steps: u64,
}

impl StatsClock {
    /// Creates a converter for a pipe that was opened at `now_ns`.
    pub const fn new(now_ns: u64) -> Self {
        Self { read_at_ns: now_ns, steps: 0 }
    }

    /// Records that a read at `now_ns` emptied the pipe: lines that are read later were written later.
    pub fn record_emptied(&mut self, now_ns: u64) {
        self.read_at_ns = now_ns;
    }

    /// Returns the number of lines with impossible times, because the wall clock was set.
    pub fn clock_steps(&self) -> u64 {
        self.steps
    }

    /// Returns the time of a line on the reader's clock, which shows `now_ns` while the wall clock shows `wall_ms`.
    pub fn time_ns(&mut self, line: &StatsLine, now_ns: u64, wall_ms: u64) -> u64 {
        // A clock that counts milliseconds may be up to one millisecond behind.
        const STEP_NS: u64 = 1_000_000;
        let most_ns = now_ns.saturating_sub(self.read_at_ns);
        let age_ns = wall_ms.saturating_sub(line.at_ms).saturating_mul(1_000_000);
        let is_step = line.at_ms > wall_ms || age_ns > most_ns.saturating_add(STEP_NS);
        self.steps += u64::from(is_step);
        now_ns - age_ns.min(most_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const EXAMPLE: &[u8] = b"75;ixI.;1498060927539\n77;1J.D;1498060927953\n78;579[;1498060927954\n\
        79;Xrt@;1498060928003\n80;qc8o;1498060928014\n77;1J.D;1498060928023\n";

    fn parse_pieces(pieces: &[&[u8]]) -> (Vec<StatsLine>, u64) {
        let (mut lines, mut told) = (StatsLines::new(), Vec::new());
        pieces.iter().for_each(|piece| lines.add_bytes(piece, |line| told.push(line)));
        (told, lines.malformed())
    }

    #[test]
    fn the_papers_example_has_six_lines_of_five_requests() {
        let (lines, malformed) = parse_pieces(&[EXAMPLE]);
        assert_eq!((lines.len(), malformed), (6, 0));
        assert!(lines.iter().map(|line| line.thread).eq([75, 77, 78, 79, 80, 77]));
        assert_eq!(lines[1].request, lines[5].request);
        assert_eq!(lines[5].at_ms - lines[1].at_ms, 70, "\"took 70 ms of execution time\"");
        let mut requests: Vec<u64> = lines.iter().map(|line| line.request).collect();
        requests.sort_unstable();
        requests.dedup();
        assert_eq!(requests.len(), 5);
    }

    #[test]
    fn lines_are_read_across_pieces() {
        let whole = parse_pieces(&[EXAMPLE]);
        for size in 1..EXAMPLE.len() {
            assert_eq!(parse_pieces(&EXAMPLE.chunks(size).collect::<Vec<_>>()), whole, "{size}");
        }
    }

    #[test]
    fn malformed_lines_are_counted_and_skipped() {
        let wrong: [&[u8]; 9] = [
            b"",
            b"75",
            b"75;a",
            b"75;;1",
            b";a;1",
            b"75;a;",
            b"-1;a;1",
            b"4294967296;a;1",
            b"75;a;18446744073709551616",
        ];
        let too_long = [b'7'; 2 * STATS_LINE_MAX];
        for wrong in wrong.into_iter().chain([too_long.as_slice()]) {
            let (lines, malformed) = parse_pieces(&[wrong, b"\n", b"75;a;1\r\n"]);
            assert_eq!((lines.len(), malformed), (1, 1), "{wrong:?}");
        }
        assert!(StatsLine::parse(b"1;a;b;2").is_some_and(|line| line.at_ms == 2), "a name may have semicolons");
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let mut state = 1_u64;
        let byte = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b"0123456789;;;\n\n\r\xffab."[(*state >> 33) as usize % 20]
        };
        let bytes: Vec<u8> = (0..100_000).map(|_| byte(&mut state)).collect();
        let (lines, malformed) = parse_pieces(&[&bytes]);
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(lines.len() as u64 + malformed, ends);
    }

    #[test]
    fn unfinished_line_leaves_the_next_writers_line_intact() {
        let (mut lines, mut told) = (StatsLines::new(), Vec::new());
        lines.add_bytes(b"75;ix", |line| told.push(line));
        lines.drop_incomplete_line();
        lines.add_bytes(b"76;a;1\n", |line| told.push(line));
        assert_eq!((told.len(), told[0].thread, lines.malformed()), (1, 76, 1));
    }

    #[test]
    fn line_times_lie_between_the_last_read_and_now() {
        const MS: u64 = 1_000_000;
        let line = StatsLine { thread: 1, request: 1, at_ms: 5_000 };
        let mut clock = StatsClock::new(100 * MS);
        assert_eq!((clock.time_ns(&line, 120 * MS, 5_008), clock.clock_steps()), (112 * MS, 0));
        assert_eq!((clock.time_ns(&line, 120 * MS, 4_000), clock.clock_steps()), (120 * MS, 1), "set back");
        assert_eq!((clock.time_ns(&line, 120 * MS, 9_000), clock.clock_steps()), (100 * MS, 2), "set ahead");
        clock.record_emptied(120 * MS);
        assert_eq!(
            (clock.time_ns(&line, 130 * MS, 5_011), clock.clock_steps()),
            (120 * MS, 2),
            "a millisecond is no step"
        );
    }

    #[test]
    fn fuzzed_lines_are_read_or_counted_at_any_split() {
        sidelane_testing::fuzz("stats", |bytes| {
            let (told, malformed) = parse_pieces(&[bytes]);
            let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(told.len() as u64 + malformed, ends);
            assert_eq!(parse_pieces(&bytes.chunks(3).collect::<Vec<_>>()), (told, malformed));
        });
    }
}
