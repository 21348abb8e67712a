//! Pairs of request lanes with batch lanes.
//!
//! A batch lane must be held while any request lane of its core is busy, so the unit is a batch lane with the list of
//! its request lanes. This list covers 2-way SMT (one each), 4-way SMT with a service on one lane (three batch lanes,
//! one request lane) and with a service on two (two batch lanes, two request lanes).
//!
//! A service that may run on every lane of a core leaves no lane to borrow. It has to be confined to one lane of each
//! core first, as Elfen does. [`Lanes::needs_pin`] says so; the service's owner decides whether to do it.
//!
//! Without SMT, any two CPUs can be declared a pair. They share no core, so borrowing gains nothing there, but all of
//! Sidelane can be tried.

use crate::cpulist::{CpuSet, parse_cpu};
use crate::topology::{Cpu, Topology};

/// Lanes that batch may borrow, and their request lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Lanes that batch may borrow, ascending by CPU. Empty only if a service is only watched.
    pub batch: Vec<BatchLane>,
    /// CPUs on which the service may run: all its online CPUs that are not in `batch`, including those on cores with
    /// a single lane. For declared pairs, these are the declared request lanes.
    pub request_lanes: CpuSet,
    /// Whether the service may run on batch lanes now, and must be confined to `request_lanes` before batch borrows
    /// any. False for declared pairs, which are parsed without a service: the code that starts borrowing then
    /// compares the service's CPUs with `request_lanes`.
    pub needs_pin: bool,
    /// Reason why these lanes are pairs.
    pub kind: PairKind,
}

impl Lanes {
    /// Returns request lanes without a batch lane: the service is only watched.
    #[must_use]
    pub fn without_batch_lanes(request_lanes: CpuSet) -> Self {
        Self { batch: Vec::new(), request_lanes, needs_pin: false, kind: PairKind::Declared }
    }

    /// Returns the lanes that batch may borrow, as a set.
    #[must_use]
    pub fn batch_cpus(&self) -> CpuSet {
        self.batch.iter().map(|lane| lane.cpu).collect()
    }
}

/// A lane that batch may borrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLane {
    /// CPU number of the batch lane.
    pub cpu: u32,
    /// Request lanes of this batch lane, which is held while any of them is busy. Never empty.
    pub request_lanes: CpuSet,
}

/// Reason why two lanes are a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairKind {
    /// The two lanes share a core.
    Smt,
    /// The user declared the pair; the kernel does not list the lanes as siblings.
    Declared,
}

/// Reason why there are no lanes to borrow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// No core of the service has a lane that batch could borrow.
    #[error("cannot find a batch lane beside {}: no core there has a second lane online; {fix}", name_cpus(.service))]
    NoSmt {
        /// Online CPUs of the service.
        service: CpuSet,
        /// Advice on what the user can do about it on this machine.
        fix: String,
        /// CPUs that can be declared a pair, request lane first; `None` on a machine with one CPU.
        pair: Option<(u32, u32)>,
    },
    /// No CPU that the service may use is online.
    #[error("cannot use request lanes {service}: none of them is online; allow the service CPUs of {online}")]
    ServiceOffline {
        /// CPUs that the service may use.
        service: CpuSet,
        /// Online CPUs of the machine.
        online: CpuSet,
    },
    /// The declaration of pairs (`--lanes`) cannot be parsed.
    #[error("cannot read `{part}` in --lanes `{spec}`; write REQUEST:BATCH, as in 0:1, 0:1+2 or 0:1,2:3")]
    Syntax {
        /// Whole declaration, as the user gave it.
        spec: String,
        /// Part of the declaration that cannot be parsed.
        part: String,
    },
    /// A declared CPU does not exist.
    #[error("cannot use CPU {cpu}: it does not exist; name some of {present}")]
    NoSuchCpu {
        /// CPU that was declared.
        cpu: u32,
        /// CPUs that the machine has.
        present: CpuSet,
    },
    /// A declared CPU is offline.
    #[error(
        "cannot use CPU {cpu}: it is offline; name some of {online}, or switch it on with `echo 1 > \
         /sys/devices/system/cpu/cpu{cpu}/online`"
    )]
    CpuOffline {
        /// CPU that was declared.
        cpu: u32,
        /// Online CPUs of the machine.
        online: CpuSet,
    },
    /// A CPU is declared as request lane and as batch lane.
    #[error("cannot use CPU {cpu} as request lane and batch lane at once; name it once")]
    BothEnds {
        /// CPU that was declared as request lane and as batch lane.
        cpu: u32,
    },
    /// A batch lane is declared twice.
    #[error("CPU {cpu} is named as batch lane twice; name each batch lane once")]
    BatchTwice {
        /// CPU that was declared twice.
        cpu: u32,
    },
}

/// Advice for a machine with SMT switched off. After a boot with `nosmt=force` the kernel refuses the write.
const SWITCH_SMT_ON: &str = "switch SMT on with `echo on > /sys/devices/system/cpu/smt/control` \
                             (if that is refused, boot without nosmt=force)";

impl Topology {
    /// Returns the lanes that share cores with a service allowed on the CPUs `service`.
    ///
    /// `service` may name CPUs that are offline or do not exist, as a task's affinity does.
    ///
    /// # Errors
    ///
    /// If none of the service's CPUs is online, or none of its cores has a lane that batch could borrow.
    pub fn smt_pairs(&self, service: &CpuSet) -> Result<Lanes, LaneError> {
        let online = self.online();
        let allowed = service.intersection(&online);
        if allowed.is_empty() {
            return Err(LaneError::ServiceOffline { service: service.clone(), online });
        }
        let mut batch: Vec<BatchLane> =
            self.first_lanes_of_cores().flat_map(|core| batch_lanes(core, &allowed)).collect();
        if batch.is_empty() {
            let pair = declarable_pair(&allowed, &online);
            return Err(LaneError::NoSmt { service: allowed, fix: self.missing_batch_lane_advice(pair), pair });
        }
        batch.sort_by_key(|lane| lane.cpu);
        let lent: CpuSet = batch.iter().map(|lane| lane.cpu).collect();
        Ok(Lanes {
            batch,
            request_lanes: allowed.difference(&lent),
            needs_pin: !allowed.intersection(&lent).is_empty(),
            kind: PairKind::Smt,
        })
    }

    /// Parses the pairs declared in `spec`: `REQUEST:BATCH[+BATCH…]`, separated by commas.
    ///
    /// # Errors
    ///
    /// If the declaration cannot be parsed, names a CPU that is missing or offline, or contradicts itself.
    pub fn declared_pairs(&self, spec: &str) -> Result<Lanes, LaneError> {
        let pairs = parse_pairs(spec)?;
        let requests: CpuSet = pairs.iter().map(|(request, _)| *request).collect();
        let lent: CpuSet = pairs.iter().map(|(_, batch)| *batch).collect();
        for cpu in &requests.union(&lent) {
            self.check_usable(cpu)?;
        }
        if let Some(cpu) = requests.intersection(&lent).first() {
            return Err(LaneError::BothEnds { cpu });
        }
        let batch = declared_batch_lanes(pairs)?;
        let kind = if batch.iter().all(|lane| self.shares_core_with_its_request_lanes(lane)) {
            PairKind::Smt
        } else {
            PairKind::Declared
        };
        Ok(Lanes { batch, request_lanes: requests, needs_pin: false, kind })
    }

    /// Whether the kernel lists a batch lane and its request lanes as siblings.
    fn shares_core_with_its_request_lanes(&self, lane: &BatchLane) -> bool {
        self.cpu(lane.cpu).is_some_and(|cpu| lane.request_lanes.is_subset(&cpu.siblings))
    }

    fn check_usable(&self, cpu: u32) -> Result<(), LaneError> {
        match self.cpu(cpu) {
            None => Err(LaneError::NoSuchCpu { cpu, present: self.present() }),
            Some(found) if !found.online => Err(LaneError::CpuOffline { cpu, online: self.online() }),
            Some(_) => Ok(()),
        }
    }

    /// Returns advice on the most likely way to get a batch lane on this machine. The advice also names a declared
    /// pair, which is always possible.
    fn missing_batch_lane_advice(&self, pair: Option<(u32, u32)>) -> String {
        let (request, batch) = pair.unwrap_or((0, 1));
        let declare = format!("declare a pair, as in --lanes {request}:{batch}");
        let offline = self.present().difference(&self.online());
        if self.smt_switched_off {
            format!("{SWITCH_SMT_ON}, or {declare}")
        } else if self.has_smt() {
            format!("allow the service on some of CPUs {}, or {declare}", self.lanes_of_smt_cores())
        } else if !offline.is_empty() {
            format!("switch CPUs {offline} on if they are sibling lanes, or {declare}")
        } else {
            declare
        }
    }

    /// Returns the lanes of all cores with more than one lane.
    fn lanes_of_smt_cores(&self) -> CpuSet {
        let shared = self.online_cpus().filter(|cpu| cpu.siblings.len() > 1);
        shared.map(|cpu| cpu.id).collect()
    }
}

/// Returns a request lane of the service and another online CPU, if possible one that the service does not use.
fn declarable_pair(service: &CpuSet, online: &CpuSet) -> Option<(u32, u32)> {
    let request = service.first()?;
    let batch = online.difference(service).first().or_else(|| online.iter().find(|cpu| *cpu != request))?;
    Some((request, batch))
}

/// Returns the CPUs as text, such as "CPU 0" or "CPUs 0-3".
fn name_cpus(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

/// Returns the lanes of `core` that can be borrowed from a service that may use the CPUs `allowed`; none if the
/// service does not run on that core.
fn batch_lanes(core: &Cpu, service_cpus: &CpuSet) -> Vec<BatchLane> {
    let mut requests = core.siblings.intersection(service_cpus);
    if requests == core.siblings {
        // The service may use the whole core. It keeps one lane; any lane would do, and users expect the lowest.
        requests = requests.first().into_iter().collect();
    }
    if requests.is_empty() {
        return Vec::new();
    }
    let spare = core.siblings.difference(&requests);
    spare.iter().map(|cpu| BatchLane { cpu, request_lanes: requests.clone() }).collect()
}

/// Parses every (request, batch) pair in `spec`, in its order.
fn parse_pairs(spec: &str) -> Result<Vec<(u32, u32)>, LaneError> {
    let mut pairs = Vec::new();
    for part in spec.split(',').map(str::trim) {
        let unreadable = || LaneError::Syntax { spec: spec.to_owned(), part: part.to_owned() };
        let number = |digits: &str| parse_cpu(digits).map_err(|_| unreadable());
        let (request, batch) = part.split_once(':').ok_or_else(unreadable)?;
        let request = number(request)?;
        for lane in batch.split('+') {
            pairs.push((request, number(lane)?));
        }
    }
    Ok(pairs)
}

fn declared_batch_lanes(mut pairs: Vec<(u32, u32)>) -> Result<Vec<BatchLane>, LaneError> {
    pairs.sort_by_key(|(_, batch)| *batch);
    if let Some(twice) = pairs.windows(2).find(|two| two[0].1 == two[1].1) {
        return Err(LaneError::BatchTwice { cpu: twice[0].1 });
    }
    let lane = |(request, cpu)| BatchLane { cpu, request_lanes: [request].into_iter().collect() };
    Ok(pairs.into_iter().map(lane).collect())
}
