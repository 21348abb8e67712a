//! The notes of the lab's experiments.

use std::time::Duration;

use sidelane_diagnostics::diagnostics;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;

diagnostics! {
    /// Note of the laboratory.
    pub enum LabNote in Laboratory;
    degraded {
        // Notes on parts that an experiment omitted.
        StoreMissing { store: &'static str = "rocksdb", why: String = "a library is missing".to_owned() } =>
            "{store} was left out: it cannot be put up here ({why})",
            "install what is missing";
        NotPlanted { cause: &'static str = "freeze", why: String = "there is no cgroup freezer".to_owned() } =>
            "the planted cause {cause} was left out at least once ({why})",
            "run it where that is possible";
        LuceneMissing { why: String = "there is no Maven".to_owned() } =>
            "the search server over Lucene was left out: it cannot be put up here ({why})",
            "apt-get install openjdk-17-jdk-headless maven";
        WorkMissing { work: &'static str = "spark", why: &'static str = "PySpark is missing" } =>
            "batch had no {work} among its containers",
            "install what is missing ({why})";
        NoStandIn { why: String = "there are no counters".to_owned() } =>
            "the agent cannot count page faults, which stand in for stalls here ({why}), so it measured interference \
             by request times, which is slower, and its reaction time was not measured",
            "run `sidelane doctor`, and enable perf events";
        LittleSlowdown { what: String = "redis, mix a".to_owned(), times: String = "1.2".to_owned() } =>
            "{what}: unmanaged batch made the p99 only {times} times as long as alone, so nothing is checked there",
            "run it where batch disturbs the service more";

        // Notes on degradations of an experiment.
        LimitsUnknown { setting: &'static str = "dynamic refresh", load_s: u64 = 30 } =>
            "{setting}: {load_s} s of load did not suffice to learn its limits; the contention cost of batch is \
             unknown",
            "use a quieter machine, and leave --quick out";
        LimitsVague {
            setting: &'static str = "dynamic refresh", load_s: u64 = 30, contention_cost: i64 = 40, error: i64 = 22
        } =>
            "{setting}: {load_s} s of load did not suffice to learn its limits; the contention cost of batch is \
             {contention_cost} ± {error} %",
            "use a quieter machine, and leave --quick out";
        ClientOnBatchLane { service: &'static str = "search", percent: u64 = 12 } =>
            "client of {service}: without a third core the client shares the batch lane at a real-time priority above \
             everything and takes up to {percent} % of the lane from batch; a request's wake-up comes from that lane",
            "use a machine on which the client has a CPU of its own";
        ClientOnBatchLaneAsleep =>
            "client: without a third core the client shares the batch lane, where it counts as asleep",
            "use a machine on which the client has a CPU of its own";
        ClientWidensBound =>
            "client: the client shares the batch lane, and what it takes widens the bound of that lane",
            "use a machine on which the client has a CPU of its own";
        ClientLate { service: &'static str = "search", lag_us: u64 = 1_200 } =>
            "client of {service}: in its worst run the client sent 1 % of requests over {lag_us} µs late: the machine \
             was busy, or more requests were under way than connections",
            "use a quieter machine";
        SocketsUnseen =>
            "client: this kernel does not show requests at the service's sockets, so latency is judged as the client \
             sees it; the client is in its own way here",
            "use Linux 6.3 or later";
        StepLateAlone { above: Duration = Duration::from_millis(2_410) } =>
            "step: the service alone was above its objective for {above:.2?} in its worst repetition",
            "use a machine on which the service alone keeps its objective";
        FewPlanted { chosen: usize = 14, all: usize = 30 } =>
            "quick: {chosen} of {all} causes were planted",
            "run without --quick";
        TracedWithoutPeers =>
            "quick: other tracers were left out",
            "run without --quick";
        WithoutRedisAndStep =>
            "quick: Redis and the step of load were left out",
            "run without --quick";
        PairWithoutSlowdown =>
            "lanes: a declared pair of CPUs that share no core and do not slow each other",
            "choose a scenario without a slowdown, or leave --sibling out";
        ParityLeftOut { run: String = "60 %, borrow-idle".to_owned(), busy: u64 = 104, most: u64 = 90 } =>
            "left out: {run}: with batch beside each request the request lane is {busy} % busy, and a queue there has \
             no steady state within a run, measured or simulated",
            "lower the scenario's load: below {most} % it is compared";
        NapMissing { nap: String = "UMWAIT".to_owned(), why: String = "this CPU has no WAITPKG".to_owned() } =>
            "nap {nap}: {why}",
            "see what sidelane doctor says of naps and gates";
        NoHardwareCounters =>
            "no hardware counters here: rates are of counters in memory",
            "in a virtual machine, ask its host for a virtual PMU to have rates of instructions";
        CoarseCycles { step: u64 = 26, period: u64 = 2500 } =>
            "the time stamp counter goes in steps of {step} cycles here: at periods of {period} double-time error \
             correction discards samples whose readings differ by one step",
            "look at the longer periods, where a step is less than 1 %";
        NoLz4 =>
            "the cost of checks in a real program was not measured: apt cannot download the source of lz4",
            "add deb-src to the sources of apt, and check the network with `apt-get source lz4`";
        NoPerf =>
            "perf record: there is no perf here, and nothing was compared with it",
            "install perf (apt-get install linux-perf)";
        NoJava =>
            "pauses: there is no java here, and none was measured",
            "install java (apt-get install openjdk-17-jdk-headless)";
        NotInstalled { program: &'static str = "redis-server" } =>
            "{program} is not installed: nothing of it was measured",
            "apt-get install {program}";
    }
    told {
        // Notes that explain an experiment.
        DeclaredPair =>
            "lanes: a declared pair of CPUs that share no core; the explanation says what is real";
        EmulatedSibling { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: the lab's programs spin for as long; from others a real-time thread takes \
             it in slices of 0.5 to 2 ms. --sibling none switches it off";
        EmulatedSiblingInside { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: programs of the lab, and servers with its library, spin for as long and make \
             page faults, which stand in for stalls. --sibling none switches it off";
        EmulatedSiblingBySteal { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: a real-time thread on each lane takes that, in slices of 0.5 to 2 ms. \
             --sibling none switches it off";
        ClientOnLittleCore =>
            "client: without a third core the client shares the little core, at a real-time priority above everything";
        EmulatedLittleCore { cpu: u32 = 1, loss: u64 = 69 } =>
            "CPU {cpu} is an emulated little core: the service's threads lose {loss} % of the time that they are there, by \
             spinning for as long at the end of each request. --slow-cpu none switches it off";
        EmulatedLittleCoreBySteal { cpu: u32 = 1, loss: u64 = 69 } =>
            "CPU {cpu} is an emulated little core: a real-time thread takes {loss} % of it while programs want it, in \
             slices of 0.5 to 2 ms. --slow-cpu none switches it off";
        GuardMetric { metric: String = "latency".to_owned() } =>
            "interference was told from {metric}; the paper tells it from counters of the processor (VPI)";
        FewCpus { cpus: u64 = 2 } =>
            "{cpus} CPUs: PerfIso keeps one of them idle, and Holmes reserves one, so that each has a single CPU to give \
             to batch or not; the paper's machine had 64";
        FreezerEmulated =>
            "cgroup freezer: emulated by the policy borrow idle with evict_after = 0: at each hold the holder takes \
             the lane, freezes batch and leaves";
        NapsUncounted =>
            "naps: without hardware counters of both lanes it stays unseen that a napping lane gives up its resources \
             (the paper counts its µops)";
        NapsBegin =>
            "naps: asleep means that T2's last store before its nap was seen, or that the scheduler had stopped its \
             clock (futex), or that its heartbeat ceased (freezer, SIGSTOP, affinity); awake is its first store after";
        NapsOfHolder =>
            "naps: the lane holder's figures are the kernel's: from the service running to batch off, 0 where batch \
             was off before, and from the service's stop to batch back";
        In { setting: &'static str = "borrow idle", note: Note = LaneNote::Leaks { times: 3 }.into() } =>
            "{setting}: {note}";

        // Notes that explain a simulation.
        SimulatedRows =>
            "rows named `simulated` come from a model; the others were measured";
    }
}

/// Adds the name of its setting to `note`, to tell it from notes on other settings. Notes on the machine stay
/// unchanged, since they are the same in all settings.
pub fn with_setting_name(note: Note, setting: &'static str) -> Note {
    let is_machine = |note: &LaneNote| {
        use LaneNote::{ContentionCostWithoutCounters, NoCpuset, NoFreezer, NoGroupsForCommand};
        matches!(note, NoFreezer | NoCpuset | NoGroupsForCommand | ContentionCostWithoutCounters { .. })
    };
    let names_its_setting = |note: &LabNote| {
        matches!(note, LabNote::LimitsUnknown { .. } | LabNote::LimitsVague { .. } | LabNote::In { .. })
    };
    if note.matches(is_machine) || note.matches(names_its_setting) {
        note
    } else {
        LabNote::In { setting, note }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notes_on_a_setting_get_its_name() {
        let told = |note: Note| with_setting_name(note, "borrow idle").to_string();
        let leaks = told(LaneNote::Leaks { times: 2 }.into());
        assert!(leaks.starts_with("borrow idle: batch ran 2 times on a lane that was held"));
        assert!(told(LaneNote::NoFreezer.into()).starts_with("this process can make no cgroup with a freezer"));
        assert!(told(LabNote::LimitsUnknown { setting: "deadline", load_s: 3 }.into()).starts_with("deadline: 3 s"));
    }
}
