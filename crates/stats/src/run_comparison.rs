//! Comparison of stored runs (`--out DIR`): ratios of two variants with their intervals.
//!
//! Runs with the same options, machine and version are rounds of one variant. The first variant is the baseline. Or the
//! user names the baseline's runs: a change of the service itself is in no option.
//!
//! Rounds of two variants are paired in the order of their start: the first with the first. Ratios are computed within
//! a pair, so a load that drifts during the day affects both runs of a pair if the runs were taken in turns. The median
//! of the ratios has an interval from their order, with six pairs or more (see [`crate::interval`]).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use sidelane_report::chart::{RatioLine, Ratios};
use sidelane_report::unit::title_of_key;
use sidelane_report::{Curve, Interval, LatencyHistogram, ResultFile, Row, StoredRun, Timeline, Unit};

use crate::interval::{ROUNDS_MIN, median_interval};
use crate::ranks::median;

/// Keys of the figures that the finding names, the most important first: of latency, and of batch.
const HEADLINES: [&[&str]; 2] = [
    &["latency_p99_ns", "p99_beside_us", "p99_us", "server_p99_ns", "off_p99_ns", "latency_p50_ns", "p50_us"],
    &["batch_share_of_idle_percent", "batch_cpu_per_minute_s", "batch_work_s", "batch_cpu_s"],
];
/// Most lines of a chart of ratios.
const LINES_MAX: usize = 20;
/// Most rows that a terminal shows without `-v`.
const BRIEF_MAX: usize = 12;
/// Most curves of a page, as many as it has colours.
const CURVES_MAX: usize = 8;

/// Reason why runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// The runs are of different verbs.
    #[error(
        "cannot compare {dir} with {first}: one is of `sidelane {verb}`, one of `sidelane {first_verb}`; name runs of one verb"
    )]
    Verbs {
        /// Folder of the run with another verb.
        dir: String,
        /// Its verb.
        verb: String,
        /// Folder of the first run.
        first: String,
        /// Verb of the first run.
        first_verb: String,
    },
    /// A run is named twice.
    #[error("cannot compare {dir} with itself; name each run once")]
    Twice {
        /// Folder of the run.
        dir: String,
    },
    /// The runs have no figure in common.
    #[error("cannot compare {first} with the other runs: they have no figure in common; see sidelane report {first}")]
    NothingInCommon {
        /// Folder of the first run.
        first: String,
    },
}

/// Result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// All ratios, then the medians of each variant.
    pub result: ResultFile,
    /// Rows that a terminal shows: the most important ratios.
    pub brief: Vec<Row>,
}

/// Runs that are rounds of one variant, in the order of their start.
struct Variant<'a> {
    name: String,
    runs: Vec<&'a StoredRun>,
}

/// Compares the variants among `runs` with the first of them; or all of `runs` with `against`, unless that is empty.
///
/// # Errors
/// If the runs are of different verbs, a run is named twice, or no figure is in all runs.
pub fn compare_runs(runs: &[StoredRun], against: &[StoredRun]) -> Result<Comparison, ComparisonError> {
    check_comparable(against.iter().chain(runs))?;
    let variants = if against.is_empty() {
        group_by_description(runs)
    } else {
        name_groups(vec![in_order(against), in_order(runs)])
    };
    let first = variants[0].runs[0];
    let mut result = ResultFile::new(first.head.machine.clone(), Map::new());
    let differences = differences(&variants);
    let mut finding = Vec::new();
    let mut brief = Vec::new();
    for variant in &variants[1..] {
        let ratios = Ratio::all(&variants[0], variant);
        if ratios.is_empty() && !have_common_figure(&variants[0], variant) {
            return Err(ComparisonError::NothingInCommon { first: display(&first.dir) });
        }
        let of_group = |group: usize| ratios.iter().find(|ratio| ratio.rank.0 == group);
        let named: Vec<&Ratio> = (0..HEADLINES.len()).filter_map(of_group).collect();
        let named = if named.is_empty() { ratios.iter().take(1).collect() } else { named };
        finding.extend(named.iter().map(|ratio| ratio.sentence(&variants[0].name, &variant.name)));
        if named.is_empty() {
            finding.push(format!("All figures of {} and {} are the same.", variants[0].name, variant.name));
        }
        let suffix = if variants.len() > 2 { format!(", {}", variant.name) } else { String::new() };
        let rows = || ratios.iter().map(|ratio| ratio.to_row(&suffix));
        brief.extend(rows().take(BRIEF_MAX));
        result.rows.extend(rows());
        result.ratios.push(chart(&variants[0].name, &variant.name, &ratios));
        result.notes.extend(pairing_notes(&variants[0], variant));
    }
    if variants.len() == 1 {
        finding.push(one_variant_text(&variants[0]));
    }
    finding.extend(differences);
    result.rows.extend(variants.iter().flat_map(median_rows));
    if brief.is_empty() {
        brief.clone_from(&result.rows);
    }
    result.settings = settings(&variants, &finding);
    add_pictures(&mut result, &variants);
    Ok(Comparison { result, brief })
}

fn check_comparable<'a>(mut runs: impl Iterator<Item = &'a StoredRun>) -> Result<(), ComparisonError> {
    let Some(first) = runs.next() else { return Ok(()) };
    let mut seen = BTreeSet::from([identity(&first.dir)]);
    for run in runs {
        if run.head.verb != first.head.verb {
            return Err(ComparisonError::Verbs {
                dir: display(&run.dir),
                verb: run.head.verb.clone(),
                first: display(&first.dir),
                first_verb: first.head.verb.clone(),
            });
        }
        if !seen.insert(identity(&run.dir)) {
            return Err(ComparisonError::Twice { dir: display(&run.dir) });
        }
    }
    Ok(())
}

fn identity(dir: &Path) -> std::path::PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

fn display(dir: &Path) -> String {
    dir.display().to_string()
}

/// Returns what distinguishes variants: options, machine and version, each with its name.
fn description(run: &StoredRun) -> Vec<(String, String)> {
    let machine = &run.head.machine;
    let of_machine = [
        ("cpu", machine.cpu.clone()),
        ("online CPUs", machine.lanes.to_string()),
        ("kernel", machine.kernel.clone()),
        ("Sidelane", run.head.version.clone()),
    ];
    // Seeds distinguish rounds of a simulation.
    let options = run.head.options.iter().filter(|(name, _)| *name != "--seed");
    let options = options.map(|(name, value)| (name.clone(), option_text(value)));
    of_machine.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(options).collect()
}

fn option_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(option_text).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}

/// Returns whether a name in a description is one of an option, and not of the machine.
fn is_option(name: &str) -> bool {
    !["cpu", "online CPUs", "kernel", "Sidelane"].contains(&name)
}

fn in_order(runs: &[StoredRun]) -> Vec<&StoredRun> {
    let mut runs: Vec<&StoredRun> = runs.iter().collect();
    runs.sort_by(|one, other| one.head.began.cmp(&other.head.began).then_with(|| one.dir.cmp(&other.dir)));
    runs
}

/// Groups runs by their description. The variant of the run that is named first comes first.
fn group_by_description(runs: &[StoredRun]) -> Vec<Variant<'_>> {
    let mut groups: Vec<Vec<&StoredRun>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| description(group[0]) == description(run)) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    for group in &mut groups {
        group.sort_by(|one, other| one.head.began.cmp(&other.head.began).then_with(|| one.dir.cmp(&other.dir)));
    }
    name_groups(groups)
}

/// Names each group: after the one thing that differs, or else after its folders.
fn name_groups(groups: Vec<Vec<&StoredRun>>) -> Vec<Variant<'_>> {
    let firsts: Vec<&StoredRun> = groups.iter().map(|group| group[0]).collect();
    let differing = differing_names(&firsts);
    let by_folder: Vec<String> = groups.iter().map(|group| folder_name(group)).collect();
    let names: Vec<String> = match &differing[..] {
        [only] => firsts.iter().map(|run| value_text(run, only)).collect(),
        _ if is_distinct(&by_folder) => by_folder,
        _ => firsts.iter().map(|run| display(&run.dir)).collect(),
    };
    groups.into_iter().zip(names).map(|(runs, name)| Variant { name, runs }).collect()
}

fn is_distinct(names: &[String]) -> bool {
    names.iter().collect::<BTreeSet<_>>().len() == names.len() && names.iter().all(|name| !name.is_empty())
}

/// Returns the common beginning of the folders' names, without a number at its end: `before` of before-1 and before-2.
fn folder_name(group: &[&StoredRun]) -> String {
    let name = |run: &StoredRun| run.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = name(group[0]);
    let common = group.iter().fold(first.as_str(), |common, run| {
        let name = name(run);
        let end = common.char_indices().zip(name.chars()).take_while(|((_, one), other)| one == other).last();
        end.map_or("", |((at, letter), _)| &common[..at + letter.len_utf8()])
    });
    common.trim_end_matches(|letter: char| letter.is_ascii_digit() || "-_. ".contains(letter)).to_owned()
}

/// Returns the names of options and facts of the machine that are not the same in all runs.
fn differing_names(runs: &[&StoredRun]) -> Vec<String> {
    let descriptions: Vec<_> = runs.iter().map(|run| description(run)).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in descriptions.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |of: &[(String, String)], name: &str| of.iter().find(|(known, _)| known == name).map(|it| it.1.clone());
    let differs = |name: &&&String| descriptions.iter().any(|of| value(of, name) != value(&descriptions[0], name));
    names.iter().filter(differs).map(|name| (*name).clone()).collect()
}

/// Returns an option, or a fact of the machine, with its value in a run.
fn value_text(run: &StoredRun, name: &str) -> String {
    match description(run).into_iter().find(|(known, _)| known == name) {
        Some((_, value)) if value == "true" => name.to_owned(),
        Some((_, value)) => format!("{name} {value}"),
        None => format!("without {name}"),
    }
}

/// Returns what differs between the variants, and between runs of one variant, in sentences.
fn differences(variants: &[Variant<'_>]) -> Vec<String> {
    let firsts: Vec<&StoredRun> = variants.iter().map(|variant| variant.runs[0]).collect();
    let (options, facts): (Vec<String>, Vec<String>) =
        differing_names(&firsts).into_iter().partition(|name| is_option(name));
    let each = |name: &String| {
        let values: Vec<String> = firsts.iter().map(|run| value_text(run, name)).collect();
        values.join(" and ")
    };
    let list = |names: &[String]| names.iter().map(each).collect::<Vec<_>>().join("; ");
    let mut said = Vec::new();
    if !facts.is_empty() {
        said.push(format!("The machines differ: {}.", list(&facts)));
    }
    if !options.is_empty() {
        said.push(format!("The options differ: {}.", list(&options)));
    }
    for variant in variants {
        let within = differing_names(&variant.runs);
        if !within.is_empty() {
            said.push(format!("The runs of {} differ among each other in {}.", variant.name, within.join(", ")));
        }
    }
    if said.is_empty() && variants.len() > 1 {
        said.push("Options and machine are the same.".to_owned());
    }
    said
}

/// Returns whether a figure of the first row of the baseline is in the runs of the variant, too.
fn have_common_figure(baseline: &Variant<'_>, variant: &Variant<'_>) -> bool {
    let keys = |variant: &Variant<'_>| -> BTreeSet<String> {
        let rows = variant.runs.iter().flat_map(|run| &run.result.rows);
        rows.flat_map(|row| row.keys().map(str::to_owned)).collect()
    };
    !keys(baseline).is_disjoint(&keys(variant))
}

/// Ratio of one figure.
struct Ratio {
    name: String,
    unit: Unit,
    /// Medians of the baseline and of the variant.
    medians: [f64; 2],
    interval: Interval,
    pairs: usize,
    /// Place in the result: the group of headlines with the place in it, unchanged figures after changed ones.
    rank: (usize, usize, bool, Reverse<u64>),
}

impl Ratio {
    /// Returns the ratios of all figures that are in all runs of both variants, the most important first.
    fn all(baseline: &Variant<'_>, variant: &Variant<'_>) -> Vec<Self> {
        let rows = baseline.runs[0].result.rows.iter().enumerate();
        let mut ratios: Vec<Self> = rows
            .flat_map(|(at, row)| row.keys().filter_map(move |key| Self::of(baseline, variant, at, row, key)))
            .collect();
        ratios.sort_by_key(|ratio| ratio.rank);
        ratios
    }

    /// Returns the ratio of the figure `key` in a row; `None` if it has no ratio, or is always the same.
    fn of(baseline: &Variant<'_>, variant: &Variant<'_>, at: usize, row: &Row, key: &str) -> Option<Self> {
        let several = baseline.runs[0].result.rows.len() > 1;
        let value = |run: &StoredRun| {
            let rows = &run.result.rows;
            // A single row may be named after the policy, which may be what differs.
            let row = if several { rows.iter().find(|other| other.setting() == row.setting()) } else { rows.get(at) };
            row.and_then(|row| row.get(key)).filter(|value| value.is_finite() && *value >= 0.0)
        };
        let of = |variant: &Variant<'_>| variant.runs.iter().map(|run| value(run)).collect::<Option<Vec<f64>>>();
        let (before, after) = (of(baseline)?, of(variant)?);
        let place = |keys: &&[&str]| keys.iter().position(|known| *known == key);
        let headline = HEADLINES.iter().enumerate().find_map(|(group, keys)| Some((group, place(keys)?)));
        let is_constant = before.iter().chain(&after).all(|value| *value == before[0]);
        if is_constant && headline.is_none() {
            return None;
        }
        let unit = Unit::from_key(key)?;
        let ratios: Vec<f64> = before
            .iter()
            .zip(&after)
            .filter(|(before, _)| **before > 0.0)
            .map(|(before, after)| after / before)
            .collect();
        let pairs = ratios.len();
        let interval = median_interval(ratios)?;
        let (group, place) = headline.unwrap_or((HEADLINES.len(), 0));
        let change = (interval.measured.max(1e-9).ln().abs() * 1e6) as u64;
        let title = title_of_key(key);
        Some(Self {
            name: if several { format!("{title}, {}", row.setting()) } else { title },
            unit,
            medians: [median(before)?, median(after)?],
            pairs,
            rank: (group, place, !is_changed(&interval), Reverse(change)),
            interval,
        })
    }

    fn ratio_text(&self) -> String {
        let text = |value: f64| Unit::Ratio.human(value);
        match self.interval.low.zip(self.interval.high) {
            Some((low, high)) => format!("{} ({} to {})", text(self.interval.measured), text(low), text(high)),
            None => text(self.interval.measured),
        }
    }

    fn values(&self) -> [String; 2] {
        self.medians.map(|median| self.unit.human(median))
    }

    /// Returns the ratio as a sentence.
    fn sentence(&self, baseline: &str, variant: &str) -> String {
        let (ratio, [before, after]) = (self.ratio_text(), self.values());
        let pairs = if self.pairs == 1 { "1 pair of runs".to_owned() } else { format!("{} pairs of runs", self.pairs) };
        let name = with_capital(&self.name);
        match self.interval.low {
            None => format!(
                "{name} of {variant} is {ratio} that of {baseline} ({after}, {before}) in {pairs}; {ROUNDS_MIN} pairs \
                 give an interval."
            ),
            Some(_) if is_changed(&self.interval) => {
                format!("{name} of {variant} is {ratio} that of {baseline}: {after} instead of {before}, in {pairs}.")
            }
            Some(_) => format!(
                "{name} of {variant} and {baseline}: no difference is certain. The ratio is {ratio}: {after} and \
                 {before}, in {pairs}."
            ),
        }
    }

    fn to_row(&self, suffix: &str) -> Row {
        let mut row = Row::new(format!("{}{suffix}", self.name));
        row.put("median_ratio", self.interval.measured);
        row.put("low_ratio", self.interval.low).put("high_ratio", self.interval.high);
        row.put("pairs_count", self.pairs as f64);
        row
    }
}

fn with_capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns whether the interval of a ratio leaves out "no difference".
fn is_changed(ratio: &Interval) -> bool {
    ratio.low.is_some_and(|low| low > 1.0) || ratio.high.is_some_and(|high| high < 1.0)
}

fn chart(baseline: &str, variant: &str, ratios: &[Ratio]) -> Ratios {
    let line = |ratio: &Ratio| RatioLine {
        name: ratio.name.clone(),
        values: ratio.values(),
        ratio: ratio.interval.measured,
        ends: ratio.interval.low.zip(ratio.interval.high).map(|(low, high)| [low, high]),
    };
    Ratios {
        title: format!("{variant}, as a multiple of {baseline}"),
        caption: "Each dot is the median ratio of paired runs, each bar its 95 % interval. Bars that leave out 1 are \
                  coloured. Of 20 figures without a difference, one is coloured by chance."
            .to_owned(),
        of: [baseline.to_owned(), variant.to_owned()],
        lines: ratios.iter().take(LINES_MAX).map(line).collect(),
    }
}

/// Returns what weakens the pairing: runs without a partner, and runs that were not taken in turns.
fn pairing_notes(baseline: &Variant<'_>, variant: &Variant<'_>) -> Vec<String> {
    let (before, after) = (baseline.runs.len(), variant.runs.len());
    let mut notes = Vec::new();
    if before != after {
        notes.push(format!(
            "{} has {before} runs, {} has {after}: the last {} are in no pair; repeat the variant with fewer runs",
            baseline.name,
            variant.name,
            before.abs_diff(after)
        ));
    }
    let began = |variant: &Variant<'_>| {
        let times = variant.runs.iter().map(|run| run.head.began.clone());
        (times.clone().min(), times.max())
    };
    let ((first, last), (other_first, other_last)) = (began(baseline), began(variant));
    if before.min(after) > 1 && (last < other_first || other_last < first) {
        notes.push(format!(
            "all runs of one variant came before those of the other, so a drift of the load is in the ratios; take \
             runs of {} and {} in turns",
            baseline.name, variant.name
        ));
    }
    notes
}

/// Returns the medians of a variant, a row for each row of its results.
fn median_rows<'a>(variant: &'a Variant<'_>) -> impl Iterator<Item = Row> + 'a {
    let rows = &variant.runs[0].result.rows;
    rows.iter().enumerate().map(|(at, row)| {
        let name = if rows.len() > 1 { format!("{}: {}", variant.name, row.setting()) } else { variant.name.clone() };
        let mut medians = Row::new(name);
        // A file of another program may have keys without a unit.
        for key in row.keys().filter(|key| Unit::from_key(key).is_some()) {
            let values = variant.runs.iter().filter_map(|run| run.result.rows.get(at)?.get(key));
            medians.put(key, median(values));
        }
        medians
    })
}

fn one_variant_text(variant: &Variant<'_>) -> String {
    format!(
        "{} runs of one variant: options and machine are the same. To compare them with others: sidelane report \
         DIR... --against DIR...",
        variant.runs.len()
    )
}

fn settings(variants: &[Variant<'_>], finding: &[String]) -> Map<String, Value> {
    let verb = &variants[0].runs[0].head.verb;
    let mut settings = Map::new();
    settings.insert("title".into(), json!(format!("Runs of sidelane {verb}, compared")));
    settings.insert("finding".into(), json!(finding));
    settings.insert(
        "explanation".into(),
        json!([
            "Runs with the same options on the same machine are rounds of one variant. The runs of two variants are \
             paired in the order of their start, and ratios are computed within a pair. A figure is the median of all \
             pairs with its 95 % interval, for which six pairs are needed.",
            "Curves have the requests of all runs of a variant. Timelines are of the first run of each."
        ]),
    );
    for variant in variants {
        let runs: Vec<String> =
            variant.runs.iter().map(|run| format!("{} ({})", run.dir.display(), run.head.began)).collect();
        settings.insert(variant.name.clone(), json!(runs));
    }
    let shared = variants[0].runs[0].head.options.iter().filter(|(name, value)| {
        variants.iter().flat_map(|variant| &variant.runs).all(|run| run.head.options.get(*name) == Some(value))
    });
    for (name, value) in shared {
        settings.entry(name.clone()).or_insert_with(|| json!(option_text(value)));
    }
    settings
}

/// Adds curves of all runs of each variant, and the timelines of the first one.
fn add_pictures(result: &mut ResultFile, variants: &[Variant<'_>]) {
    let pooled: Vec<Vec<LatencyHistogram>> = variants.iter().map(pooled_histograms).collect();
    let names = pooled.iter().map(Vec::len).max().unwrap_or(0);
    let shown = if names * variants.len() > CURVES_MAX { 1 } else { names };
    for at in 0..shown {
        for (variant, histograms) in variants.iter().zip(&pooled) {
            let Some(histogram) = histograms.get(at) else { continue };
            result.curves.push(histogram.to_curve(name_of(variant, &histogram.setting, names > 1)));
        }
    }
    for variant in variants {
        let first = &variant.runs[0].result;
        if result.curves.len() < CURVES_MAX && names == 0 {
            let renamed = |curve: &Curve| Curve { setting: name_of(variant, &curve.setting, true), ..curve.clone() };
            result.curves.extend(first.curves.iter().map(renamed));
        }
        let renamed = |line: &Timeline| Timeline { setting: name_of(variant, &line.setting, true), ..line.clone() };
        result.timelines.extend(first.timelines.iter().map(renamed));
        for series in &first.series {
            let mut series = series.clone();
            series.signals.iter_mut().for_each(|signal| signal.name = name_of(variant, &signal.name, true));
            match result.series.iter_mut().find(|known| known.title == series.title) {
                Some(known) => known.signals.extend(series.signals),
                None => result.series.push(series),
            }
        }
    }
    // Signals of the same kind stand below each other.
    for series in &mut result.series {
        series.signals.sort_by_key(|signal| signal.name.split_once(", ").map(|(kind, _)| kind.to_owned()));
    }
}

fn name_of(variant: &Variant<'_>, what: &str, is_said: bool) -> String {
    if is_said { format!("{what}, {}", variant.name) } else { variant.name.clone() }
}

/// Adds the histograms of all runs of a variant, by name.
fn pooled_histograms(variant: &Variant<'_>) -> Vec<LatencyHistogram> {
    let mut pooled: Vec<LatencyHistogram> = Vec::new();
    for histogram in variant.runs.iter().flat_map(|run| &run.result.histograms) {
        match pooled.iter_mut().find(|known| known.setting == histogram.setting) {
            Some(known) => *known = merged(known, histogram),
            None => pooled.push(histogram.clone()),
        }
    }
    pooled
}

fn merged(one: &LatencyHistogram, other: &LatencyHistogram) -> LatencyHistogram {
    let mut counts = std::collections::BTreeMap::new();
    for (ns, count) in one.counts.iter().chain(&other.counts) {
        let sum: &mut u64 = counts.entry(*ns).or_default();
        *sum = sum.saturating_add(*count);
    }
    LatencyHistogram::new(one.setting.clone(), counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidelane_report::{Machine, Pair, RunHead};

    use super::*;

    fn machine(kernel: &str) -> Machine {
        Machine {
            cpu: "model".into(),
            lanes: 2,
            pair: Pair::Declared,
            kernel: kernel.into(),
            virtual_machine: None,
            pmu: false,
            gates: Vec::new(),
            stolen_percent: None,
            stolen_gap_max_us: None,
            notes: Vec::new(),
        }
    }

    /// Returns a run that began in a second of the day, with a p99 in ns.
    fn run(dir: &str, second: u32, gate: &str, p99_ns: f64) -> StoredRun {
        let options = Map::from_iter([("--gate".to_owned(), json!(gate))]);
        let began = format!("2026-03-01T14:{:02}:{:02}.000000Z", second / 60, second % 60);
        let head = RunHead::begin("requests".into(), began, options, machine("6.12"));
        let mut result = ResultFile::new(machine("6.12"), Map::new());
        let mut row = Row::new("requests");
        row.put("latency_p99_ns", p99_ns).put("requests_count", 1_000.0).put("p99_slowdown_percent", -1.0);
        result.rows.push(row);
        result.histograms = vec![LatencyHistogram::new("latency", [(1_000, 99), (p99_ns as u64, 1)])];
        StoredRun { dir: dir.into(), head, result }
    }

    /// Returns rounds of two gates in turns, of which the second has twice the p99.
    fn rounds(count: u32) -> Vec<StoredRun> {
        let round = |round: u32| {
            let p99 = 1e6 * f64::from(10 + round % 3);
            [
                run(&format!("a-{round}"), 2 * round, "holder", p99),
                run(&format!("b-{round}"), 2 * round + 1, "none", 2.0 * p99),
            ]
        };
        (0..count).flat_map(round).collect()
    }

    fn finding(comparison: &Comparison) -> Vec<&str> {
        comparison.result.finding()
    }

    #[test]
    fn difference_with_an_interval_is_the_first_line() {
        let comparison = compare_runs(&rounds(6), &[]).unwrap();
        assert_eq!(
            finding(&comparison),
            [
                "Latency p99 of --gate none is 2.00× (2.00× to 2.00×) that of --gate holder: 22.0 ms instead of 11.0 ms, in \
                 6 pairs of runs.",
                "The options differ: --gate holder and --gate none."
            ]
        );
        assert!(comparison.result.notes.is_empty(), "{:?}", comparison.result.notes);
        let first = &comparison.result.rows[0];
        assert_eq!(
            (first.setting(), first.get("median_ratio"), first.get("pairs_count")),
            ("latency p99", Some(2.0), Some(6.0))
        );
        assert_eq!(comparison.brief.len(), 1, "figures that are always the same, or below zero, have no ratio");
        let points = |at: usize| comparison.result.curves[at].points.last().copied().unwrap();
        assert_eq!((points(0).us, points(1).us), (12_000.0, 24_000.0));
        assert_eq!(comparison.result.curves[0].points[0].percentile, 99.0);
    }

    #[test]
    fn few_pairs_have_no_interval_and_say_so() {
        let comparison = compare_runs(&rounds(1), &[]).unwrap();
        let said = finding(&comparison)[0];
        assert!(said.ends_with("(20.0 ms, 10.0 ms) in 1 pair of runs; 6 pairs give an interval."), "{said}");
        assert_eq!(comparison.result.ratios[0].lines[0].ends, None);
    }

    #[test]
    fn no_difference_is_said_as_not_certain() {
        let mut runs = rounds(6);
        for (at, run) in runs.iter_mut().enumerate() {
            run.result.rows[0].put("latency_p99_ns", 1e6 * [10.0, 11.0, 10.5, 9.5][at % 4]);
        }
        let comparison = compare_runs(&runs, &[]).unwrap();
        let said = finding(&comparison)[0];
        assert!(said.starts_with("Latency p99 of --gate none and --gate holder: no difference is certain."), "{said}");
    }

    #[test]
    fn other_machines_are_other_variants_and_are_named() {
        let mut runs = vec![run("x/a", 0, "holder", 1e6), run("y/a", 1, "none", 1e6), run("z/c", 2, "none", 3e6)];
        runs[1].head.machine = machine("6.18");
        let comparison = compare_runs(&runs, &[]).unwrap();
        let said = finding(&comparison);
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[2].starts_with("The machines differ: kernel 6.12 and kernel 6.18 and kernel 6.12."), "{said:?}");
        assert!(said[3].starts_with("The options differ: --gate holder and --gate none and --gate none."), "{said:?}");
        assert_eq!(comparison.result.ratios[0].of, ["x/a", "y/a"], "folders with the same name have their paths");
    }

    #[test]
    fn baseline_is_what_the_user_names_whatever_the_options() {
        let named = |name: &str, from: u32, p99_ns| -> Vec<StoredRun> {
            (0..6).map(|at| run(&format!("{name}-{at}"), from + at, "holder", p99_ns)).collect()
        };
        let comparison = compare_runs(&named("after", 30, 5e6), &named("before", 0, 10e6)).unwrap();
        let said = finding(&comparison);
        assert!(said[0].starts_with("Latency p99 of after is 0.50× (0.50× to 0.50×) that of before"), "{said:?}");
        assert_eq!(said[1], "Options and machine are the same.");
        assert!(comparison.result.notes[0].contains("came before those of the other"), "{:?}", comparison.result.notes);
    }

    #[test]
    fn rounds_of_one_variant_have_no_baseline() {
        let runs: Vec<StoredRun> = rounds(3).into_iter().step_by(2).collect();
        let comparison = compare_runs(&runs, &[]).unwrap();
        assert!(finding(&comparison)[0].starts_with("3 runs of one variant"), "{:?}", finding(&comparison));
        assert_eq!(comparison.brief[0].get("latency_p99_ns"), Some(11e6));
    }

    #[test]
    fn runs_that_cannot_be_compared_are_refused_with_their_names() {
        let refused = |runs: &[StoredRun]| compare_runs(runs, &[]).unwrap_err().to_string();
        let mut other = run("b", 1, "none", 1e6);
        other.head.verb = "run".into();
        let said = refused(&[run("a", 0, "none", 1e6), other]);
        assert!(said.contains("cannot compare b with a") && said.contains("`sidelane run`"), "{said}");
        assert!(refused(&[run("a", 0, "none", 1e6), run("a", 0, "none", 1e6)]).contains("with itself"));
        let mut other = run("b", 1, "holder", 1e6);
        other.result.rows.clear();
        assert!(refused(&[run("a", 0, "none", 1e6), other]).contains("no figure in common"));
    }

    #[test]
    fn fuzzed_folders_are_compared_or_refused() {
        let good = rounds(1);
        let head = {
            let mut head = serde_json::to_value(&good[0].head).unwrap();
            head["state"] = json!("complete");
            head.to_string().into_bytes()
        };
        let result = serde_json::to_vec(&good[1].result).unwrap();
        sidelane_testing::fuzz("run-folder", |bytes| {
            for (head, result) in [(bytes, &result[..]), (&head[..], bytes)] {
                let Ok(foreign) = StoredRun::parse("foreign".as_ref(), head, || Ok(result.to_vec())) else { continue };
                sidelane_report::html::page(&foreign.result);
                let Ok(compared) = compare_runs(&[good[0].clone(), foreign.clone()], &[]) else { continue };
                let page = sidelane_report::html::page(&compared.result);
                assert!(!page.contains("=\"NaN") && !page.contains("=\"inf"));
                let _ = compare_runs(&[foreign], &good);
            }
        });
    }

    /// Returns the ratio of the first figure.
    fn ratio_of(runs: &[StoredRun], against: &[StoredRun]) -> Option<RatioLine> {
        compare_runs(runs, against).ok()?.result.ratios[0].lines.first().cloned()
    }

    proptest! {
        #[test]
        fn each_run_is_in_one_pair_whatever_the_order_of_arguments(
            p99 in prop::collection::vec((1e3..1e9f64, 1e3..1e9f64), 1..12), extra in 0usize..3, seed: u64,
        ) {
            let mut runs = Vec::new();
            for (at, (before, after)) in p99.iter().enumerate() {
                let second = 2 * at as u32;
                runs.push(run(&format!("a{at}"), second, "holder", *before));
                runs.push(run(&format!("b{at}"), second + 1, "none", *after));
            }
            for at in 0..extra {
                runs.push(run(&format!("c{at}"), 100 + at as u32, "none", 7.0));
            }
            let ratios: Vec<f64> = p99.iter().map(|(before, after)| after / before).collect();
            let expected = median_interval(ratios).unwrap();
            let (before, mut after): (Vec<_>, Vec<_>) =
                runs.clone().into_iter().partition(|run| run.head.options["--gate"] == "holder");
            let found = ratio_of(&after, &before).unwrap();
            prop_assert_eq!(found.ratio, expected.measured);
            prop_assert_eq!(found.ends, expected.low.zip(expected.high).map(|(low, high)| [low, high]));
            fastrand::Rng::with_seed(seed).shuffle(&mut after);
            prop_assert_eq!(ratio_of(&after, &before), Some(found.clone()));
            let inverse = ratio_of(&before, &after).unwrap();
            if p99.len() % 2 == 1 {
                prop_assert!((inverse.ratio * found.ratio - 1.0).abs() < 1e-9);
            }
            if let (Some([low, high]), Some([other_low, other_high])) = (found.ends, inverse.ends) {
                prop_assert!((low * other_high - 1.0).abs() < 1e-9 && (high * other_low - 1.0).abs() < 1e-9);
            }
        }
    }
}
