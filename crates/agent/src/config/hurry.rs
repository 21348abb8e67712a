//! Services whose long requests move to big cores: `[hurry]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sidelane_host::cores::{Cores, CoresError, Source};
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::hurryup::{self, Learning};

use super::named::{self, Table};
use super::overlap::Lines;
use super::policy::{quoted, time};
use super::problem::Problem;
use super::reader::Reader;
use super::roles::parse_cpus;
use super::{BigCores, Config, HurryRule, ServiceRule};
use crate::note::AgentNote;
use sidelane_hurry::{Sizes, tuned};

const CPUS: &str = "write the numbers of CPUs, as in \"0-3,8\"";
const PERCENTILE: &str = "write a percentile above 0 and below 100, as in 90";
const LOG: &str = "write the directory for the moves of each service, as in \"/var/tmp\"";
/// Looks are never closer.
const SAMPLING_LEAST: Duration = Duration::from_millis(1);

/// `[hurry]`, if the file has it.
pub(super) fn hurry(reader: Reader) -> Option<HurryRule> {
    if !reader.is_there() {
        return None;
    }
    let (services, cores) = (named::services(&reader), cores(&reader));
    let (threshold, percentile) = threshold(&reader);
    let sampling = reader.time("sampling", SAMPLING_LEAST).map(Some);
    let sampling = reader.setting("sampling", sampling, None, |sampling| {
        sampling.map_or("when a request may be long".to_owned(), |every| time(&every))
    });
    let log = reader.text("log", LOG).map(|dir| Some(PathBuf::from(dir)));
    let log = reader.setting("log", log, None, |dir| {
        dir.as_ref().map_or("nowhere".to_owned(), |dir| quoted(&dir.display().to_string()))
    });
    reader.finish();
    Some(HurryRule { services, cores, threshold, percentile, sampling, log })
}

fn cores(reader: &Reader) -> BigCores {
    let siblings = reader.setting("siblings", reader.flag("siblings"), false, bool::to_string);
    if let (true, Some(key)) = (siblings, ["big", "little"].into_iter().find(|key| reader.has(key))) {
        let advice = "write one of them: with siblings all cores are alike";
        reader.wrong("siblings", format!("is true beside `{key}`"), advice);
    }
    match given(reader) {
        Some((big, little)) => BigCores::Given(big, little),
        None if siblings => BigCores::Siblings,
        None => BigCores::Found,
    }
}

fn given(reader: &Reader) -> Option<(CpuSet, CpuSet)> {
    for (given, missing) in [("big", "little"), ("little", "big")] {
        if reader.has(given) && !reader.has(missing) {
            reader.wrong(
                missing,
                format!("is missing, and `{given}` is given"),
                "write both, or none to have them found",
            );
        }
    }
    let [big, little] = ["big", "little"].map(|key| {
        let cpus = reader.parsed(key, parse_cpus, CPUS);
        reader.setting(key, cpus.map(Some), None, |cpus| {
            cpus.as_ref().map_or("as the kernel tells cores apart".to_owned(), |cpus| quoted(&cpus.to_string()))
        })
    });
    let (big, little) = big.zip(little)?;
    if let Some(twice) = big.intersection(&little).first() {
        reader.wrong(
            "little",
            format!("names CPU {twice}, which is in `big` already"),
            "write each CPU in one of them",
        );
    }
    Some((big, little))
}

fn threshold(reader: &Reader) -> (Option<Duration>, f64) {
    let threshold = reader.time("threshold", Duration::ZERO).map(Some);
    let threshold = reader.setting("threshold", threshold, None, |threshold| {
        threshold.map_or("learnt".to_owned(), |threshold| time(&threshold))
    });
    let percentile = reader.positive("percentile", PERCENTILE);
    if let Some(above) = percentile.filter(|percentile| *percentile >= 100.0) {
        reader.wrong("percentile", format!("is {above}"), PERCENTILE);
    }
    if reader.has("threshold") && reader.has("percentile") {
        let advice = "write one of them: a given threshold is not learnt";
        reader.wrong("percentile", "is given beside `threshold`", advice);
    }
    let usual = f64::from(Learning::default().percentile_e2) / 100.0;
    (threshold, reader.setting("percentile", percentile, usual, f64::to_string))
}

impl HurryRule {
    /// Whether threads of the service of this rule are moved.
    pub fn names(&self, rule: &ServiceRule) -> bool {
        named::are_named(self.services.as_deref(), rule)
    }

    /// What the policy is asked for, where little cores are that fast.
    pub fn mapping(&self, little_speed_milli: Option<u32>) -> hurryup::Config {
        tuned(self.percentile, self.sampling, self.threshold, little_speed_milli)
    }

    /// The big and little cores of this machine, whose cores have these lanes.
    ///
    /// # Errors
    /// A note, if there are none.
    pub fn sizes_here(&self, lanes: Vec<CpuSet>) -> Result<Sizes, AgentNote> {
        let found = match self.cores.clone() {
            BigCores::Given(big, little) => Ok(Cores { big, little, little_speed_milli: None, source: Source::Given }),
            BigCores::Found => Cores::find(Path::new("/sys")),
            BigCores::Siblings => return Sizes::of_siblings(lanes).map_err(|_| AgentNote::NoSiblings),
        };
        found.map(Sizes::Cores).map_err(|error| AgentNote::NoBigCores {
            why: match error {
                CoresError::AllEqual(equal) => format!("all cores are equal ({})", equal.looked_at),
                other => other.to_string(),
            },
        })
    }
}

/// Services whose threads are to be moved, and that are none or have another owner.
pub(super) fn unmoved(config: &Config, lines: &Lines) -> Vec<Problem> {
    let Some(hurry) = &config.hurry else { return Vec::new() };
    let services = hurry.services.as_deref();
    let nobody = ("is missing, and no [[service]] has an slo", named::SERVICES);
    let table = Table { key: "hurry.services", services, line: lines.hurry, nobody };
    let placed = named::lined(services, config, lines).filter(|(rule, _)| rule.terms.may_be_placed);
    let placed = placed.map(|(rule, line)| Problem {
        line,
        key: "service.may_be_placed".to_owned(),
        problem: format!("is true, and [hurry] moves the threads of \"{}\", too", rule.name),
        advice: "a thread has one owner: leave may_be_placed out, or name other services in [hurry]".to_owned(),
    });
    table.problems(config).into_iter().chain(placed).collect()
}
