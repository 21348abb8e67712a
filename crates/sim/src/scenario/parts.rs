//! Parts of a scenario: machine, batch jobs, slowdowns, objective, faults.

use std::ops::{Range, RangeInclusive};

use super::inputs::Result;
use crate::model::{Fault, Job, LANES_MAX, Machine, Objective, Phase, Power, Sleep};
use crate::smt::{Class, Interference, MemoryUse};
use crate::time::Nanos;
use sidelane_toml::Reader;

/// Allowed values of keys for times, in the unit that the key's name ends with.
const TIME: RangeInclusive<f64> = 0.0..=1e9;
pub(super) const LONGER: RangeInclusive<f64> = 1e-3..=1e9;
pub(super) const SHARE: RangeInclusive<f64> = 0.0..=1.0;
const WATTS: RangeInclusive<f64> = 0.0..=1e4;

pub(super) fn us_to_ns(us: f64) -> Nanos {
    (us * 1e3) as Nanos
}

pub(super) fn ms_to_ns(ms: f64) -> Nanos {
    (ms * 1e6) as Nanos
}

pub(super) fn read_machine(reader: Reader) -> Result<Machine> {
    let default = Machine::one_core();
    let count = |key, most: usize, otherwise: usize| reader.whole_number(key, 1..=most).unwrap_or(otherwise);
    let time = |key, otherwise| reader.number(key, TIME).map_or(otherwise, us_to_ns);
    let machine = Machine {
        packages: count("packages", 64, 1),
        cores_per_package: count("cores_per_package", 1024, 1),
        lanes_per_core: count("lanes_per_core", LANES_MAX, 2),
        core_speed: reader.numbers("core_speed", 0.01..=100.0).unwrap_or(default.core_speed),
        clock_ghz: reader.number("clock_ghz", 0.1..=10.0).unwrap_or(default.clock_ghz),
        counters: reader.flag("counters").unwrap_or(default.counters),
        context_switch_ns: time("context_switch_us", default.context_switch_ns),
        migration_ns: time("migration_us", default.migration_ns),
        sleep: read_sleep(&reader)?,
        power: read_power(reader.table("power")),
    };
    reader.record_unknown_keys();
    Ok(machine)
}

fn read_sleep(reader: &Reader) -> Result<Option<Sleep>> {
    let (after, wake) = (reader.number("sleep_after_us", TIME), reader.number("sleep_wake_us", TIME));
    match (after, wake) {
        (None, None) => Ok(None),
        (Some(after), Some(wake)) => Ok(Some(Sleep { after_ns: us_to_ns(after), wake_ns: us_to_ns(wake) })),
        (None, _) => {
            Err(reader.record_missing("sleep_after_us", "write both of sleep_after_us and sleep_wake_us, or neither"))
        }
        (_, None) => {
            Err(reader.record_missing("sleep_wake_us", "write both of sleep_after_us and sleep_wake_us, or neither"))
        }
    }
}

fn read_power(reader: Reader) -> Power {
    let watts = |key| reader.number(key, WATTS).unwrap_or(0.0);
    let power = Power {
        package_w: watts("package_w"),
        core_idle_w: watts("core_idle_w"),
        core_busy_w: reader.number_or_list("core_busy_w", WATTS).unwrap_or_default(),
        lane_w: watts("lane_w"),
    };
    reader.record_unknown_keys();
    power
}

/// Reads the batch jobs: all of them, or those that the key `run_batch` names.
pub(super) fn read_batch_jobs(top: &Reader, smt: &Interference) -> Result<Vec<Job>> {
    let jobs =
        top.numbered_tables("batch").into_iter().map(|reader| read_job(reader, smt)).collect::<Result<Vec<Job>>>()?;
    let names = jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>().join(", ");
    let allowed = format!("write one of {names}");
    let Some(wanted) = top.text_or_list("run_batch", &allowed) else { return Ok(jobs) };
    let of_name = |name: &&str| {
        let unknown = || top.record_problem("run_batch", format!("is \"{name}\""), allowed.clone());
        jobs.iter().find(|job| job.name == **name).cloned().ok_or_else(unknown)
    };
    wanted.iter().map(of_name).collect()
}

fn read_job(reader: Reader, smt: &Interference) -> Result<Job> {
    let name = reader.required_text("name", "write a name")?;
    let phases = reader.numbered_tables("phase").into_iter().map(|phase| read_phase(phase, name, smt));
    let phases = phases.collect::<Result<Vec<Phase>>>()?;
    let job = if phases.is_empty() {
        Job::endless(name, smt.class(name).expect("every name was made a class"))
    } else {
        Job { name: name.to_owned(), phases }
    };
    if job.first_computing_class().is_none() {
        return Err(reader.record_problem("phase", "only waits", "write a phase with work_ms among them"));
    }
    reader.record_unknown_keys();
    Ok(job)
}

fn read_phase(reader: Reader, job_name: &str, smt: &Interference) -> Result<Phase> {
    let (work, wait) = (reader.number("work_ms", LONGER), reader.number("wait_ms", LONGER));
    let class = reader.text("class", "write a name").unwrap_or(job_name);
    let phase = match (work, wait) {
        (Some(work), None) => {
            Phase::Work { class: smt.class(class).expect("every name was made a class"), work_ns: ms_to_ns(work) }
        }
        (None, Some(wait)) => Phase::Wait { ns: ms_to_ns(wait) },
        (Some(_), Some(_)) => {
            return Err(reader.record_problem(
                "wait_ms",
                "is given, but work_ms is given, too",
                "write one of \
                                                                                                         them",
            ));
        }
        (None, None) => return Err(reader.record_missing("work_ms", "write either work_ms or wait_ms")),
    };
    reader.record_unknown_keys();
    Ok(phase)
}

/// Reads the names of all classes: the service, the jobs and their phases.
pub(super) fn read_classes(top: &Reader) -> Interference {
    let mut names = vec![top.table("service").text("name", "write a name").unwrap_or("service").to_owned()];
    for job in top.numbered_tables("batch") {
        names.extend(job.text("name", "write a name").map(str::to_owned));
        for phase in job.numbered_tables("phase") {
            names.extend(phase.text("class", "write a name").map(str::to_owned));
        }
    }
    let mut seen = std::collections::BTreeSet::from(["nap".to_owned()]);
    names.retain(|name| seen.insert(name.clone()));
    Interference::new(&names)
}

/// Reads slowdowns and memory use. `[slowdown.VICTIM]` has a number for each aggressor; `[memory.CLASS]` has the
/// memory use of a class.
pub(super) fn read_interference(top: &Reader, mut smt: Interference) -> Interference {
    let slowdown = top.table("slowdown");
    for (victim, at, _) in slowdown.entries() {
        let victim_class = find_class(&slowdown, victim, at, &smt);
        let row = slowdown.table(victim);
        for (aggressor, at, _) in row.entries() {
            let classes = [victim_class, find_class(&row, aggressor, at, &smt)];
            if let ([Ok(victim), Ok(aggressor)], Ok(times)) = (classes, row.required_number(aggressor, 1.0..=100.0)) {
                smt.set_slowdown(victim, aggressor, times);
            }
        }
    }
    read_memory(top.table("memory"), &mut smt);
    smt
}

pub(super) fn find_class(reader: &Reader, name: &str, span: Range<usize>, smt: &Interference) -> Result<Class> {
    let there_are = || format!("write one of {}", smt.names().join(", "));
    let unknown = || {
        reader.document().record_problem_at(&span, &reader.path(name), "is not a program of this scenario", there_are())
    };
    smt.class(name).ok_or_else(unknown)
}

fn read_memory(reader: Reader, smt: &mut Interference) {
    for (name, at, _) in reader.entries() {
        let Ok(class) = find_class(&reader, name, at, smt) else { continue };
        let table = reader.table(name);
        let memory = MemoryUse {
            accesses_per_us: table.number("accesses_per_us", 0.0..=1e5).unwrap_or(0.0),
            stall_share: table.number("stall_share", SHARE).unwrap_or(0.0),
            pressure: table.number("pressure", SHARE).unwrap_or(0.0),
        };
        table.record_unknown_keys();
        smt.set_memory(class, memory);
    }
}

pub(super) fn read_objective(reader: Reader) -> Result<Option<Objective>> {
    let objective = match reader.exists() {
        false => None,
        true => Some(Objective {
            percentile: reader.number("percentile", 1.0..=99.999).unwrap_or(99.0),
            limit_ns: ms_to_ns(reader.required_number("limit_ms", LONGER)?),
        }),
    };
    reader.record_unknown_keys();
    Ok(objective)
}

#[derive(Clone, Copy)]
enum FaultKind {
    Late,
    Lost,
    Glitch,
    Churn,
    Crash,
}

pub(super) fn read_fault(reader: Reader) -> Result<Fault> {
    let kinds = [
        ("late-wake-up", FaultKind::Late),
        ("lost-summons", FaultKind::Lost),
        ("counter-glitch", FaultKind::Glitch),
        ("container-churn", FaultKind::Churn),
        ("agent-crash", FaultKind::Crash),
    ];
    let probability = || reader.required_number("probability", SHARE);
    let every = || {
        let every = reader.required_number("every_ms", LONGER)?;
        Ok((ms_to_ns(every), ms_to_ns(reader.required_number("gone_ms", *LONGER.start()..=every / 2.0)?)))
    };
    let fault = match reader.required_choice("kind", &kinds)? {
        FaultKind::Late => Fault::LateWakeUp {
            probability: probability()?,
            delay_ns: us_to_ns(reader.required_number("delay_us", TIME)?),
        },
        FaultKind::Lost => Fault::LostSummons { probability: probability()? },
        FaultKind::Glitch => Fault::CounterGlitch { probability: probability()? },
        FaultKind::Churn => every().map(|(every_ns, gone_ns)| Fault::Churn { every_ns, gone_ns })?,
        FaultKind::Crash => every().map(|(every_ns, gone_ns)| Fault::AgentCrash { every_ns, gone_ns })?,
    };
    reader.record_unknown_keys();
    Ok(fault)
}
