//! Flight recorders that run beside services.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::{ModuleEvent, module_target};
use crate::config::Config;
use crate::discover::FoundService;
use crate::note::AgentNote;
use crate::status::FlightStatus;
use sidelane_metrics::{Family, Kind};
use sidelane_trace::flight::{Event, FlightOptions, RunningFlight};
use sidelane_trace::slow_threshold::SlowThreshold;

/// All flight recorders, by the name of their service.
#[derive(Default)]
pub struct Flights {
    running: BTreeMap<String, Flight>,
}

/// Flight recorder, with what it has reported.
struct Flight {
    recorder: RunningFlight,
    state: State,
    recordings: u32,
    last: Option<String>,
}

/// State of a flight recorder.
enum State {
    /// Start: the service does not listen yet, or the kernel program is being loaded.
    Begins,
    /// Recording of the service.
    Records,
    /// End: the recorder could not record.
    Ended { why: String },
}

impl Flights {
    /// Runs exactly the recorders `wanted`. A recorder whose options are unchanged keeps running.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn update_running(&mut self, wanted: Vec<FlightOptions>) -> Result<()> {
        self.running.retain(|_, flight| wanted.contains(flight.recorder.options()));
        for options in wanted {
            if self.running.contains_key(&options.service) {
                continue;
            }
            let service = options.service.clone();
            let recorder = RunningFlight::start(options)?;
            self.running.insert(service, Flight { recorder, state: State::Begins, recordings: 0, last: None });
        }
        Ok(())
    }

    /// Forgets recorders that could not record, so that they are started again.
    pub fn forget_ended(&mut self) {
        self.running.retain(|_, flight| !matches!(flight.state, State::Ended { .. }));
    }

    /// Returns the events of the recorders since the last call, each with the name of its service.
    pub fn take_events(&mut self) -> Vec<(String, ModuleEvent)> {
        let news = self.running.iter_mut().flat_map(|(service, flight)| {
            flight.take_events(service).into_iter().map(|news| (service.clone(), news)).collect::<Vec<_>>()
        });
        news.collect()
    }

    /// Ends all recorders, and waits until all files are written. One more call of `take_events` returns the last
    /// events.
    pub fn end(&mut self) -> Result<()> {
        self.running.values().for_each(|flight| flight.recorder.ask_to_end());
        let ended: Vec<Result<()>> = self.running.values_mut().map(|flight| flight.recorder.end()).collect();
        ended.into_iter().collect::<Result<()>>().context("a flight recorder failed")
    }

    /// Returns the status of all recorders, as of the last call of `take_events`.
    pub fn status(&self) -> Vec<FlightStatus> {
        self.running.iter().map(|(service, flight)| flight.status(service)).collect()
    }

    /// Returns the metrics of all recorders, as of the last call of `take_events`.
    pub fn metric_families(&self) -> Vec<Family> {
        let recordings = self
            .running
            .iter()
            .map(|(service, flight)| (vec![("service", service.clone())], Some(f64::from(flight.recordings))));
        vec![Family::from_numbers(
            ("trace_recordings", None, Kind::Counter, "Recordings written since the recorder began"),
            recordings,
        )]
    }
}

impl Flight {
    fn take_events(&mut self, service: &str) -> Vec<ModuleEvent> {
        let events: Vec<Event> = self.recorder.events().collect();
        events.iter().for_each(|event| self.record_event(event));
        let as_news = |event: &Event| match event {
            Event::WriteFailed(why) => ModuleEvent::Noted(
                AgentNote::RecordingUnwritten { service: service.to_owned(), why: why.clone() }.into(),
            ),
            Event::ExportFailed(why) => ModuleEvent::Noted(
                AgentNote::RequestsUnexported { service: service.to_owned(), why: why.clone() }.into(),
            ),
            event => ModuleEvent::Said(event.to_string()),
        };
        let mut news: Vec<ModuleEvent> = events.iter().map(as_news).collect();
        if let Some(error) = self.recorder.why_ended() {
            let why = format!("{error:#}");
            self.state = State::Ended { why: why.clone() };
            news.push(ModuleEvent::Noted(AgentNote::NotRecorded { service: service.to_owned(), why }.into()));
        }
        news
    }

    fn record_event(&mut self, event: &Event) {
        match event {
            Event::Began(_) => self.state = State::Records,
            Event::Written { page, .. } => {
                self.recordings += 1;
                self.last = Some(page.display().to_string());
            }
            _ => {}
        }
    }

    fn status(&self, service: &str) -> FlightStatus {
        let (state, why) = match &self.state {
            State::Begins => ("begins", None),
            State::Records => ("records", None),
            State::Ended { why } => ("ended", Some(why.clone())),
        };
        FlightStatus {
            service: service.to_owned(),
            state: state.to_owned(),
            why,
            slo: self.recorder.options().threshold.to_string(),
            recordings: self.recordings,
            last: self.last.clone(),
        }
    }
}

/// Returns the options of this service's flight recorder; `None` if the file asks for none.
pub fn flight_options_for(found: &FoundService, config: &Config) -> Option<FlightOptions> {
    let trace = config.trace.as_ref()?;
    let rule = config.services.get(found.rule?).filter(|rule| trace.includes_service(rule))?;
    Some(FlightOptions {
        service: found.name.clone(),
        target: module_target(found, rule)?,
        threshold: SlowThreshold::Percentile(found.settings.slo?),
        light: trace.light,
        dir: trace.dir.clone(),
        keep: trace.keep,
        recordings: trace.recordings,
        otlp: trace.otlp.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::yield_now;
    use std::time::Duration;

    use sidelane_host::service::Target;

    use super::*;

    #[test]
    fn recorder_that_cannot_record_is_reported_once_and_shown() {
        let _listens = TcpListener::bind("127.0.0.1:0").unwrap();
        let pid = std::process::id();
        let options = FlightOptions {
            service: "a".to_owned(),
            target: Target::Pid(pid),
            threshold: SlowThreshold::parse("p99=5ms").unwrap(),
            light: false,
            dir: "/nonexistent".into(),
            keep: Duration::from_secs(1),
            recordings: 1,
            otlp: None,
        };
        let mut flights = Flights::default();
        flights.update_running(vec![options.clone()]).unwrap();
        let mut news = flights.take_events();
        while news.is_empty() {
            yield_now();
            news = flights.take_events();
        }
        let why = "cannot write recordings: there is no directory /nonexistent; make it, or name another".to_owned();
        let lost = ModuleEvent::Noted(AgentNote::NotRecorded { service: "a".to_owned(), why: why.clone() }.into());
        assert_eq!(news, [("a".to_owned(), lost)]);
        flights.update_running(vec![options]).unwrap();
        assert_eq!(flights.take_events(), [], "it is not tried again");
        let status = flights.status();
        assert_eq!((status[0].state.as_str(), status[0].why.as_ref()), ("ended", Some(&why)));
        flights.forget_ended();
        assert_eq!(flights.status(), []);
    }
}
