//! What a run came to, for people and for programs.

use std::fmt;

use super::session::Outcome;
use super::topology::Lanes;

/// The figures of one run. Everything was measured in that run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The machine in one line.
    pub machine: String,
    /// `smt` or `declared`.
    pub pair: &'static str,
    /// How long batch ran beside the service.
    pub wall_s: f64,
    /// Time batch ran on the batch lanes.
    pub batch_cpu_s: f64,
    /// Time the service ran on the request lanes.
    pub lc_cpu_s: f64,
    /// Batch's part in the request lanes' idle time.
    pub batch_share_of_idle_percent: Option<f64>,
    /// Time batch ran beside the service, of the service's time.
    pub overlap_percent: Option<f64>,
    /// From the service's start to batch off.
    pub reaction_off_ns: (Option<u64>, Option<u64>),
    /// From the service's stop to batch back.
    pub reaction_on_ns: (Option<u64>, Option<u64>),
    /// Context switches to the service.
    pub lc_switches: u64,
    /// Wake-ups that a request lane sent to a holder, and paid for.
    pub lc_summons: u64,
    /// Holds begun.
    pub holds: u64,
    /// Of them, those that lasted until batch was sent away.
    pub evictions: u64,
    /// The kernel program's time in a context switch, sampled.
    pub cost_per_switch_ns: Option<f64>,
    /// CPU time of this process without the holders' naps.
    pub own_cpu_s: f64,
    /// Time the holders napped.
    pub napped_s: f64,
    /// What was degraded or went wrong.
    pub notes: Vec<String>,
}

impl Summary {
    /// The figures of `outcome`.
    pub fn new(outcome: &Outcome, machine: String, lanes: &Lanes, pair: &'static str) -> Self {
        let books = &outcome.books;
        let p50_p99 =
            |histogram: &super::histogram::Histogram| (histogram.percentile_ns(50.0), histogram.percentile_ns(99.0));
        let napped_s = seconds(outcome.holders.napped_ns);
        Self {
            machine,
            pair,
            wall_s: seconds(books.at_ns),
            batch_cpu_s: seconds(books.batch_ns(lanes)),
            lc_cpu_s: seconds(books.lc_ns(lanes)),
            batch_share_of_idle_percent: books.batch_share_of_idle_percent(lanes),
            overlap_percent: books.overlap_percent(lanes),
            reaction_off_ns: p50_p99(books.reaction_off()),
            reaction_on_ns: p50_p99(books.reaction_on()),
            lc_switches: books.sum(|lane| lane.lc_switches),
            lc_summons: books.sum(|lane| lane.lc_summons),
            holds: outcome.holders.holds,
            evictions: outcome.holders.evictions,
            cost_per_switch_ns: books.cost_per_switch_ns(),
            own_cpu_s: (own_cpu_s() - napped_s).max(0.0),
            napped_s,
            notes: outcome.notes.clone(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = if self.pair == "smt" { "SMT siblings" } else { "declared pair: no shared core" };
        writeln!(f, "sidelane: {:.1} s on {} ({lanes})", self.wall_s, self.machine)?;
        writeln!(
            f,
            "  batch      {:.2} s of CPU, {} of the request lanes' idle time",
            self.batch_cpu_s,
            percent(self.batch_share_of_idle_percent)
        )?;
        writeln!(
            f,
            "  service    {:.2} s of CPU in {} turns; batch overlapped {} of it",
            self.lc_cpu_s,
            self.lc_switches,
            percent(self.overlap_percent)
        )?;
        writeln!(
            f,
            "  reaction   batch off p50 {} p99 {}, back on p50 {} p99 {}",
            micros(self.reaction_off_ns.0),
            micros(self.reaction_off_ns.1),
            micros(self.reaction_on_ns.0),
            micros(self.reaction_on_ns.1)
        )?;
        writeln!(
            f,
            "  cost       {} a context switch (sampled), {} wake-ups paid by the service; \
             sidelane itself {:.2} s of CPU, napping {:.2} s in {} holds ({} evictions)",
            self.cost_per_switch_ns.map_or("none seen".to_owned(), |ns| format!("{ns:.0} ns")),
            self.lc_summons,
            self.own_cpu_s,
            self.napped_s,
            self.holds,
            self.evictions
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  note       {note}"))
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn percent(value: Option<f64>) -> String {
    value.map_or("n/a".to_owned(), |value| format!("{value:.2} %"))
}

fn micros(value_ns: Option<u64>) -> String {
    value_ns.map_or("n/a".to_owned(), |ns| format!("{:.1} µs", ns as f64 / 1e3))
}

fn own_cpu_s() -> f64 {
    // SAFETY: rusage is plain data that getrusage fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |value: libc::timeval| value.tv_sec as f64 + value.tv_usec as f64 / 1e6;
    time(usage.ru_utime) + time(usage.ru_stime)
}
