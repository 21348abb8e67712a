//! Mappers that move threads of services between big and little cores (Hurry-up).

use std::collections::BTreeMap;

use anyhow::Result;
use prometheus_client::registry::Unit;
use sidelane_policy::hurryup::Threshold;

use super::{ModuleEvent, module_target};
use crate::config::{Config, MachineConfig};
use crate::discover::{FoundService, ServiceId};
use crate::note::AgentNote;
use crate::status::HurryStatus;
use sidelane_hurry::{Figures, RunningHurry, Settings, SourceOption, Summary};
use sidelane_metrics::{Family, Kind};
use sidelane_trace::flight::to_file_name_part;

/// Service whose threads are to be mapped. A restarted service is another target, because its processes are others.
#[derive(Clone, Debug, PartialEq)]
pub struct HurryTarget {
    id: ServiceId,
    service: String,
    settings: Settings,
}

/// All mappers of threads.
#[derive(Default)]
pub struct Hurries {
    running: BTreeMap<ServiceId, Hurry>,
    /// Mappers that were asked to end, and give threads their CPUs back.
    ending: Vec<Hurry>,
    /// Last events of the mappers that ended with the agent.
    final_events: Vec<(String, ModuleEvent)>,
}

/// Mapper of threads, with what it has reported.
struct Hurry {
    id: ServiceId,
    service: String,
    mapper: RunningHurry,
    /// Figures of the mapper; `None`: the service does not listen yet, or the kernel program is being loaded.
    figures: Option<Figures>,
    /// Reason why the mapper ended by itself; `None` while it runs.
    why_ended: Option<String>,
}

impl Hurries {
    /// Maps the threads of exactly the services `wanted`. A mapper whose options are unchanged keeps running.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn update_running(&mut self, wanted: Vec<HurryTarget>) -> Result<()> {
        self.end_matching(|id, hurry| !wanted.iter().any(|wanted| wanted.id == *id && hurry.matches_target(wanted)));
        for HurryTarget { id, service, settings } in wanted {
            // A thread may have one mapper only, so the successor begins at a later call.
            let had = self.ending.iter().any(|ending| ending.id == id || ending.service == service);
            if had || self.running.contains_key(&id) {
                continue;
            }
            let mapper = RunningHurry::start_when_observable(settings)?;
            self.running.insert(id, Hurry { id, service, mapper, figures: None, why_ended: None });
        }
        Ok(())
    }

    fn end_matching(&mut self, should_end: impl Fn(&ServiceId, &Hurry) -> bool) {
        let all = std::mem::take(&mut self.running).into_iter();
        let (gone, running): (BTreeMap<_, _>, _) = all.partition(|(id, hurry)| should_end(id, hurry));
        self.running = running;
        let gone = gone.into_values().filter(|hurry| hurry.why_ended.is_none());
        self.ending.extend(gone.inspect(|hurry| hurry.mapper.request_stop()));
    }

    /// Forgets mappers that could not go on, so that they are started again.
    pub fn forget_ended(&mut self) {
        self.running.retain(|_, hurry| hurry.why_ended.is_none());
    }

    /// Returns the events of the mappers since the last call, each with the name of its service.
    pub fn take_events(&mut self) -> Vec<(String, ModuleEvent)> {
        let mut news = std::mem::take(&mut self.final_events);
        let ended = self.ending.extract_if(.., |hurry| hurry.mapper.has_ended());
        for Hurry { service, mapper, .. } in ended {
            match mapper.stop() {
                Ok(summary) => news.extend(final_events(&service, summary)),
                Err(error) => news.push(not_mapped_event(&service, format!("{error:#}"))),
            }
        }
        news.extend(self.running.values_mut().flat_map(Hurry::take_events));
        news
    }

    /// Ends all mappers, and waits until all threads have their CPUs back. One more call of `take_events` returns the
    /// last events.
    ///
    /// # Errors
    /// If a mapper could not give threads their CPUs back.
    pub fn end(&mut self) -> Result<()> {
        self.end_matching(|_, _| true);
        let mut outcome = Ok(());
        for Hurry { service, mapper, .. } in self.ending.drain(..) {
            match mapper.stop() {
                Ok(summary) => self.final_events.extend(final_events(&service, summary)),
                Err(error) => {
                    outcome = outcome.and(Err(error.context(format!(
                        "cannot give the threads of {service} \
                                                                               their CPUs back"
                    ))))
                }
            }
        }
        outcome
    }

    /// Returns the status of all mappers, as of the last call of `take_events`.
    pub fn status(&self) -> Vec<HurryStatus> {
        self.running.values().map(Hurry::status).collect()
    }

    /// Returns the metrics of all mappers, as of the last call of `take_events`.
    pub fn metric_families(&self) -> Vec<Family> {
        let each = |value: fn(&Figures) -> f64| {
            let known = self.running.values().filter_map(|hurry| Some((&hurry.service, hurry.figures.as_ref()?)));
            known.map(move |(service, figures)| (vec![("service", service.clone())], Some(value(figures))))
        };
        let moved = ("hurry_requests_moved", None, Kind::Counter, "Requests that moved to big cores");
        let refused = ("hurry_moves_refused", None, Kind::Counter, "Moves of threads that the system refused");
        let threads = ("hurry_threads", None, Kind::Gauge, "Threads that work on requests and may be moved");
        let help = "Time on a little core after which a request is long";
        let threshold = ("hurry_threshold", Some(Unit::Seconds), Kind::Gauge, help);
        vec![
            Family::from_numbers(moved, each(|figures| figures.moved as f64)),
            Family::from_numbers(refused, each(|figures| figures.refused as f64)),
            Family::from_numbers(threads, each(|figures| figures.threads as f64)),
            Family::from_numbers(threshold, each(|figures| figures.threshold_ns as f64 / 1e9)),
        ]
    }
}

impl Hurry {
    fn matches_target(&self, wanted: &HurryTarget) -> bool {
        self.service == wanted.service && *self.mapper.settings() == wanted.settings
    }

    fn take_events(&mut self) -> Vec<(String, ModuleEvent)> {
        let mut news = Vec::new();
        if let Some(figures) = self.mapper.figures()
            && self.figures.replace(figures).is_none()
        {
            let what = format!("its threads are mapped to {}", self.mapper.settings().sizes);
            news.push((self.service.clone(), ModuleEvent::Said(what)));
        }
        if let Some(error) = self.mapper.why_ended() {
            let why = format!("{error:#}");
            news.push(not_mapped_event(&self.service, why.clone()));
            self.why_ended = Some(why);
        }
        news
    }

    fn status(&self) -> HurryStatus {
        let settings = self.mapper.settings();
        let state = match (&self.why_ended, &self.figures) {
            (Some(_), _) => "ended",
            (None, Some(_)) => "maps",
            (None, None) => "begins",
        };
        let figures = self.figures.as_ref();
        let is_learnt = matches!(settings.config.threshold, Threshold::Learnt(_));
        HurryStatus {
            service: self.service.clone(),
            state: state.to_owned(),
            why: self.why_ended.clone(),
            sizes: settings.sizes.to_string(),
            threads: figures.map(|figures| figures.threads),
            requests: figures.map(Figures::answered_requests),
            moved: figures.map(|figures| figures.moved),
            refused: figures.map(|figures| figures.refused),
            threshold_ns: figures.map(|figures| figures.threshold_ns),
            threshold_from: if is_learnt { "learnt" } else { "given" }.to_owned(),
            own_percent: figures.and_then(Figures::own_cpu_percent),
        }
    }
}

fn not_mapped_event(service: &str, why: String) -> (String, ModuleEvent) {
    (service.to_owned(), ModuleEvent::Noted(AgentNote::NotMapped { service: service.to_owned(), why }.into()))
}

/// Returns the events of a mapper that was ended; none if it had not begun.
fn final_events(service: &str, summary: Summary) -> Vec<(String, ModuleEvent)> {
    let Summary { figures, notes, .. } = summary;
    let (moved, requests) = (figures.moved, figures.answered_requests());
    let what = format!("its threads have their CPUs back; {moved} of {requests} requests moved to big cores");
    let said = (figures.wall_ns > 0).then_some(ModuleEvent::Said(what));
    let news = said.into_iter().chain(notes.into_iter().map(ModuleEvent::Noted));
    news.map(|news| (service.to_owned(), news)).collect()
}

/// Returns the target of this service's mapper; `None` if the file asks for none or there are no big cores.
pub fn hurry_target_for(found: &FoundService, config: &Config, machine: &MachineConfig) -> Option<HurryTarget> {
    let hurry = config.hurry.as_ref()?;
    let sizes = machine.sizes.clone()?;
    let rule = config.services.get(found.rule?).filter(|rule| hurry.includes_service(rule))?;
    let file = format!("sidelane-hurry-{}.jsonl", to_file_name_part(&found.name));
    let settings = Settings {
        service: module_target(found, rule)?,
        config: hurry.policy_config(sizes.little_speed_milli()),
        sizes,
        source: SourceOption::Found,
        log: hurry.log.as_ref().map(|dir| dir.join(file)),
    };
    Some(HurryTarget { id: found.id, service: found.name.clone(), settings })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::yield_now;

    use sidelane_host::cores::{Cores, Source};
    use sidelane_host::service::Target;
    use sidelane_policy::hurryup;

    use super::*;
    use sidelane_hurry::CoreSizes;

    /// Returns the settings of a mapper for this process, with a log file that cannot be created.
    fn target_without_log() -> HurryTarget {
        let [big, little] = ["0", "1"].map(|cpus| cpus.parse().unwrap());
        let settings = Settings {
            service: Target::Pid(std::process::id()),
            sizes: CoreSizes::Cores(Cores { big, little, little_speed_milli: None, source: Source::Given }),
            config: hurryup::Config::default(),
            source: SourceOption::Found,
            log: Some("/nonexistent/moves".into()),
        };
        HurryTarget { id: ServiceId(1), service: "a".to_owned(), settings }
    }

    fn wait_for_events(hurries: &mut Hurries) -> Vec<(String, ModuleEvent)> {
        loop {
            let news = hurries.take_events();
            if !news.is_empty() {
                return news;
            }
            yield_now();
        }
    }

    #[test]
    fn mapper_that_cannot_map_is_reported_once_and_shown() {
        let _listens = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut hurries = Hurries::default();
        hurries.update_running(vec![target_without_log()]).unwrap();
        let why = "cannot write the log /nonexistent/moves: No such file or directory (os error 2)".to_owned();
        assert_eq!(wait_for_events(&mut hurries), [not_mapped_event("a", why.clone())]);
        hurries.update_running(vec![target_without_log()]).unwrap();
        assert_eq!(hurries.take_events(), [], "it is not tried again");
        let status = hurries.status();
        assert_eq!((status[0].state.as_str(), status[0].why.as_ref()), ("ended", Some(&why)));
        assert_eq!(status[0].moved, None, "nothing was counted");
        hurries.forget_ended();
        assert_eq!(hurries.status(), []);
    }

    #[test]
    fn slowly_ending_mapper_delays_no_other_service() {
        let mut hurries = Hurries::default();
        let mut first = target_without_log();
        first.settings.service = Target::Comm("no such service".to_owned());
        let other = HurryTarget { id: ServiceId(2), service: "b".to_owned(), ..first.clone() };
        hurries.update_running(vec![first]).unwrap();
        // The first mapper may still be ending, which must not delay the mapper of another service.
        hurries.update_running(vec![other]).unwrap();
        assert_eq!(hurries.status()[0].service, "b");
        hurries.end().unwrap();
    }

    #[test]
    fn changed_mapper_begins_when_the_previous_one_has_ended() {
        let mut hurries = Hurries::default();
        let mut first = target_without_log();
        // A mapper for a process that does not exist waits.
        first.settings.service = Target::Comm("no such service".to_owned());
        let changed = HurryTarget { service: "b".to_owned(), ..first.clone() };
        hurries.update_running(vec![first]).unwrap();
        hurries.update_running(vec![changed.clone()]).unwrap();
        assert_eq!(hurries.status(), [], "the first one has not been seen to end");
        while hurries.status().is_empty() {
            assert_eq!(hurries.take_events(), [], "one that had not begun has nothing to say");
            hurries.update_running(vec![changed.clone()]).unwrap();
            yield_now();
        }
        assert_eq!(hurries.status()[0].service, "b");
        assert_eq!((hurries.end().ok(), hurries.take_events()), (Some(()), vec![]));
    }
}
