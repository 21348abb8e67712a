//! The agent's metrics at one moment.

use prometheus_client::registry::Unit;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::Objective;
use sidelane_policy::borrow::slowdown::PERCENTILES;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::offer::LaneOffer;

use super::Agent;
use crate::self_usage::resident_bytes;
use crate::tracked::{AgentService, ContainerAssignment};
use sidelane_lanes::holder::KeeperCounts;
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_metrics::{Exposition, Family, Kind, latency_histogram};

type Labels = Vec<(&'static str, String)>;

const SECONDS: Option<Unit> = Some(Unit::Seconds);

/// Returns the unit of a quotient: OpenMetrics asks for `ratio`, in the singular.
fn ratio() -> Option<Unit> {
    Some(Unit::Other("ratio".to_owned()))
}

fn seconds(ns: Nanos) -> f64 {
    ns as f64 / 1e9
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

impl Agent {
    pub(super) fn exposition(&self) -> Exposition {
        let mut all = self.service_metrics();
        all.extend(self.objective_metrics());
        all.extend(self.cpu_metrics());
        all.extend(self.lane_metrics());
        all.extend(self.batch_metrics());
        all.extend(self.proxies.metric_families());
        all.extend(self.hazards.metric_families());
        all.extend(self.flights.metric_families());
        all.extend(self.hurries.metric_families());
        all.extend(self.agent_metrics());
        Exposition(all)
    }

    fn values_by_service<'a, T>(&'a self, value: impl Fn(&'a AgentService) -> T) -> impl Iterator<Item = (Labels, T)> {
        self.tracked.services.iter().map(move |(_, served)| (label("service", &served.found.name), value(served)))
    }

    /// Returns a metric of each service that has lanes under a gate.
    fn values_by_service_with_lanes<'a>(
        &'a self,
        value: impl Fn(&'a AgentService, &'a KeptLanes) -> Option<f64>,
    ) -> impl Iterator<Item = (Labels, Option<f64>)> {
        let kept = self.tracked.services.iter().filter_map(|(_, served)| Some((served, served.tracked.kept.as_ref()?)));
        kept.map(move |(served, kept)| (label("service", &served.found.name), value(served, kept)))
    }

    fn is_promise_broken(&self, served: &AgentService) -> bool {
        self.promises.broken_promise_to(&served.found.name).is_some()
    }

    fn service_metrics(&self) -> Vec<Family> {
        let span = self.slow.span();
        let known = |served: &&AgentService| served.why_no_request_figures().is_none();
        let latencies =
            self.values_by_service(|served| served).filter(|(_, served)| known(served)).map(|(labels, served)| {
                (labels, latency_histogram(&served.figures.all.latency, served.figures.all.latency_sum_ns))
            });
        let help = "Time from the arrival of a request to its finish";
        let latencies =
            Family { name: "service_latency", unit: SECONDS, help, kind: Kind::Histogram, values: latencies.collect() };
        let bound = (
            "service_slowdown_bound",
            ratio(),
            Kind::Gauge,
            "Largest latency of requests beside batch that is allowed, over latency without batch",
        );
        let interference = ("service_interference", None, Kind::Gauge, "Highest interference on a CPU of the service");
        let used = (
            "service_used_cpus",
            None,
            Kind::Gauge,
            "Number of CPUs that the service used in the last look, as CPU \
                                                        time over time",
        );
        let slowdown =
            ("service_slowdown", ratio(), Kind::Gauge, "Latency of requests beside batch, over latency without batch");
        let overlap = (
            "service_overlap",
            ratio(),
            Kind::Gauge,
            "Overlap without permission in the last minute, over the CPU time of the service",
        );
        let broken = ("service_promise_broken", None, Kind::Gauge, "1 while the overlap is above its bound, else 0");
        let share = |ppm: u32| f64::from(ppm) / 1e6;
        let disturbed = |served: &AgentService| {
            let cpus = span.cpus_used_by(served.tracked.tracking.identity());
            cpus.iter().filter_map(|cpu| self.interference.read(cpu as u32)).reduce(f64::max)
        };
        let length_ns = span.length_ns.max(1) as f64;
        let uses =
            |served: &AgentService| Some(span.cpu_time_ns(served.tracked.tracking.identity()) as f64 / length_ns);
        vec![
            latencies,
            Family::from_numbers(interference, self.values_by_service(disturbed)),
            Family::from_numbers(used, self.values_by_service(uses)),
            Family::from_numbers(slowdown, self.slowdowns().into_iter()),
            Family::from_numbers(bound, self.values_by_service(|served| self.slowdown_bound_of(served))),
            Family::from_numbers(
                overlap,
                self.values_by_service_with_lanes(|_, kept| kept.overlap.recent().share_ppm().map(share)),
            ),
            Family::from_numbers(
                broken,
                self.values_by_service_with_lanes(|served, _| {
                    Some(f64::from(u8::from(self.is_promise_broken(served))))
                }),
            ),
        ]
    }

    /// Returns the metrics of the objectives of services.
    fn objective_metrics(&self) -> Vec<Family> {
        let attainment = ("service_slo_attainment", ratio(), Kind::Gauge, "Share of requests that met the objective");
        let target = ("service_slo_target", ratio(), Kind::Gauge, "Share of requests that have to meet the objective");
        let limit = ("service_slo_limit", SECONDS, Kind::Gauge, "Longest time that the objective allows a request");
        let judged = ("service_slo_requests", None, Kind::Counter, "Requests, by whether they met the objective");
        let attained = |served: &AgentService| served.figures.objective.and(served.figures.all.attainment());
        let objective = |value: fn(&Objective) -> f64| {
            self.values_by_service(move |served| served.figures.objective.as_ref().map(value))
        };
        let judged_by_result = self.values_by_service(|served| served).flat_map(|(labels, served)| {
            let figures = served.figures.objective.map(|_| &served.figures.all);
            let counts = figures.map(|all| all.judged_counts()).map(|(yes, no)| [("yes", yes), ("no", no)]);
            let value =
                move |(met, count): (&str, u64)| ([labels.clone(), label("met", met)].concat(), Some(count as f64));
            counts.into_iter().flatten().map(value)
        });
        vec![
            Family::from_numbers(attainment, self.values_by_service(attained)),
            Family::from_numbers(target, objective(|objective| objective.percentile / 100.0)),
            Family::from_numbers(limit, objective(|objective| seconds(objective.limit_ns))),
            Family::from_numbers(judged, judged_by_result),
        ]
    }

    /// Returns the largest slowdown that is allowed, as a ratio, for a service whose slowdown is measured.
    fn slowdown_bound_of(&self, served: &AgentService) -> Option<f64> {
        self.slowdown_of(served)?;
        match self.config.lanes.as_ref()?.max_slowdown {
            MaxSlowdown::Bound(bound) => Some(1.0 + bound),
            MaxSlowdown::Any => None,
        }
    }

    /// Returns the slowdown of requests by batch, by service and quantile.
    fn slowdowns(&self) -> Vec<(Labels, Option<f64>)> {
        let measured = self.tracked.services.iter().filter_map(|(_, served)| {
            let labels = label("service", &served.found.name);
            Some((labels, self.slowdown_of(served)?))
        });
        let each = measured.flat_map(|(labels, outcome)| {
            PERCENTILES.map(|percentile| {
                let quantile = label("quantile", percentile / 100.0);
                ([labels.clone(), quantile].concat(), outcome.whole.ratio(percentile).map(|by| by.middle))
            })
        });
        each.collect()
    }

    fn cpu_metrics(&self) -> Vec<Family> {
        let total = |value: fn(&sidelane_tracker::shares::Shares) -> Nanos| {
            let known = self.usable.iter().filter_map(move |cpu| Some((cpu, self.slow.total_shares(cpu as usize)?)));
            known.map(move |(cpu, shares)| (label("cpu", cpu), Some(seconds(value(shares)))))
        };
        let busy = ("cpu_busy", SECONDS, Kind::Counter, "Time in which the CPU ran anything");
        let service = ("cpu_service", SECONDS, Kind::Counter, "Time in which the CPU ran a service");
        let batch = ("cpu_batch", SECONDS, Kind::Counter, "Time in which the CPU ran batch");
        let interference = ("cpu_interference", None, Kind::Gauge, "Interference with the thread that runs on the CPU");
        let values = self.usable.iter().map(|cpu| (label("cpu", cpu), self.interference.read(cpu)));
        vec![
            Family::from_numbers(busy, total(|shares| shares.all_ns() - shares.idle_ns)),
            Family::from_numbers(service, total(|shares| shares.services_ns())),
            Family::from_numbers(batch, total(|shares| shares.batch_ns())),
            Family::from_numbers(interference, values),
        ]
    }

    /// Returns the metrics of all lanes that have a keeper or are observed, by CPU.
    fn lane_metrics(&self) -> Vec<Family> {
        let keepers: Vec<(u32, KeeperCounts)> = self
            .tracked
            .kept_lanes()
            .flat_map(KeptLanes::keepers)
            .map(|keeper| (keeper.cpu(), keeper.counts()))
            .collect();
        let ledgers = self.tracked.services.iter().filter_map(|(_, served)| self.lanes_with_ledger(served));
        let with_ledger = ledgers.fold(CpuSet::default(), |all, lanes| all.union(&lanes));
        if with_ledger.is_empty() {
            return Vec::new();
        }
        let accounting = self.tracked.tracker().memory().accounting();
        let each = |value: &dyn Fn(u32, &KeeperCounts) -> f64| {
            let values = keepers.iter().map(|(cpu, keeper)| (label("cpu", cpu), Some(value(*cpu, keeper))));
            values.collect::<Vec<_>>().into_iter()
        };
        let held = ("lane_held", SECONDS, Kind::Counter, "Time that a holder kept the batch lane empty");
        let batch = ("lane_batch", SECONDS, Kind::Counter, "Time that batch ran on the batch lane");
        let lent = ("lane_lent", SECONDS, Kind::Counter, "Time that batch ran beside a request, on its budget");
        let overlap = (
            "lane_overlap",
            SECONDS,
            Kind::Counter,
            "Time that batch ran beside a request without \
                                                                permission",
        );
        let all = (
            "lane_time",
            SECONDS,
            Kind::Counter,
            "All time of the batch lane, by what the service did and what had it",
        );
        let accounts = with_ledger.iter().flat_map(|cpu| {
            accounting.ledger(&[cpu].into_iter().collect()).accounts().map(|account| {
                let labels = [label("cpu", cpu), label("beside", account.beside), label("kind", account.kind)];
                (labels.concat(), Some(seconds(account.ns)))
            })
        });
        let offered = ("lane_offered", None, Kind::Gauge, "1 while the batch lane is offered to new jobs, else 0");
        let share = (
            "lane_offered_share",
            ratio(),
            Kind::Gauge,
            "Share of the batch lane that was open to batch in the last minute",
        );
        let offers = |value: &dyn Fn(&LaneOffer) -> f64| {
            let offers = self.lent.iter().flat_map(|lent| lent.offers.iter());
            let values = offers.map(|(cpu, offer)| (label("cpu", cpu), Some(value(offer))));
            values.collect::<Vec<_>>().into_iter()
        };
        let holds = ("lane_holds", None, Kind::Counter, "Times that the batch lane was taken from batch");
        let evictions = ("lane_evictions", None, Kind::Counter, "Holds that ended with batch moved away");
        vec![
            Family::from_numbers(held, each(&|_, keeper| seconds(keeper.napped_ns))),
            Family::from_numbers(batch, each(&|cpu, _| seconds(accounting.lane(cpu).batch_ns))),
            Family::from_numbers(lent, each(&|cpu, _| seconds(accounting.lane(cpu).lent_overlap_ns))),
            Family::from_numbers(overlap, each(&|cpu, _| seconds(accounting.lane(cpu).overlap_ns))),
            Family::from_numbers(all, accounts),
            Family::from_numbers(offered, offers(&|offer| f64::from(u8::from(offer.is_lent())))),
            Family::from_numbers(share, offers(&|offer| f64::from(offer.share_ppm()) / 1e6)),
            Family::from_numbers(holds, each(&|_, keeper| keeper.holds as f64)),
            Family::from_numbers(evictions, each(&|_, keeper| keeper.evictions as f64)),
        ]
    }

    fn batch_metrics(&self) -> Vec<Family> {
        let states =
            [ContainerAssignment::AsFound, ContainerAssignment::Cpus(CpuMask::EMPTY), ContainerAssignment::Paused].map(
                |state| {
                    let in_state = |given: &ContainerAssignment| given.text() == state.text();
                    let count =
                        self.tracked.containers.iter().filter(|(_, contained)| in_state(&contained.given)).count();
                    (label("state", state.text().replace(' ', "_")), Some(count as f64))
                },
            );
        let gaps = Family {
            name: "container_unconfined",
            unit: SECONDS,
            help: "Time from the first process of a new container until the agent confined it",
            kind: Kind::Histogram,
            values: vec![(Labels::new(), latency_histogram(&self.gaps.times, self.gaps.sum_ns))],
        };
        let containers = ("containers", None, Kind::Gauge, "Containers of batch, by state");
        let decisions = ("decisions", None, Kind::Counter, "Actions of the policy, by action and reason");
        let counted = self.stats.decisions.iter().map(|((action, why), count)| {
            (vec![("action", (*action).to_owned()), ("reason", why.name().to_owned())], Some(*count as f64))
        });
        vec![gaps, Family::from_numbers(containers, states.into_iter()), Family::from_numbers(decisions, counted)]
    }

    fn agent_metrics(&self) -> Vec<Family> {
        let one = |value: Option<f64>| std::iter::once((Labels::new(), value));
        let cpu =
            ("agent_cpu", SECONDS, Kind::Counter, "CPU time of the agent with its proxies, recorders and mappers");
        let memory = (
            "agent_resident",
            Some(Unit::Bytes),
            Kind::Gauge,
            "Resident memory of the agent with its \
                                                                         proxies, recorders and mappers",
        );
        let reaction = Family {
            name: "agent_reaction",
            unit: SECONDS,
            help: "Time from an onset of interference until batch was off the core",
            kind: Kind::Histogram,
            values: vec![(Labels::new(), latency_histogram(&self.stats.reaction, self.stats.reaction_sum_ns))],
        };
        let lost = ("audit_lines_lost", None, Kind::Counter, "Lines of the audit log that were not written");
        let lost_lines = self.log.as_ref().map(|log| log.state().lost_lines as f64);
        let notes = ("agent_notes", None, Kind::Gauge, "Notes about degradation and errors that are not over");
        let left_out = (
            "agent_services_left_out",
            None,
            Kind::Gauge,
            "Services that are not managed because the limit \
                                                                       is reached",
        );
        let unmatched =
            ("agent_rules_unmatched", None, Kind::Gauge, "Rules of the file that match nothing on this machine");
        let repaired = ("agent_repairs", None, Kind::Counter, "Changes by other programs that the agent undid");
        vec![
            reaction,
            Family::from_numbers(cpu, one(Some(seconds(self.usage.cpu_ns())))),
            Family::from_numbers(memory, one(resident_bytes().map(|bytes| bytes as f64))),
            Family::from_numbers(repaired, one(Some(self.stats.repaired as f64))),
            Family::from_numbers(lost, one(lost_lines)),
            Family::from_numbers(notes, one(Some(self.stats.notes.len() as f64))),
            Family::from_numbers(left_out, one(Some(self.services_without_slot().len() as f64))),
            Family::from_numbers(unmatched, one(Some(self.unmatched_rules().len() as f64))),
        ]
    }
}
