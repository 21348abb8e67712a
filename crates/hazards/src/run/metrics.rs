//! Prometheus metrics of watched servers.

use prometheus_client::registry::Unit;
use sidelane_host::clock::now_ns;
use sidelane_metrics::{Family, Kind};
use sidelane_policy::hedge::Hazard;

use super::counts::ServerCounts;
use super::running::RunningHazards;

/// Server with its name.
type Named = (String, ServerCounts);

/// Returns all metrics of these servers.
pub fn metric_families<'a>(all: impl IntoIterator<Item = &'a RunningHazards>) -> Vec<Family> {
    let (mut servers, mut errors) = (Vec::new(), None);
    for running in all {
        let (counts, failed) = running.counts();
        servers.extend(running.options().servers.iter().map(|server| server.name.clone()).zip(counts));
        if running.options().haproxy.is_some() {
            errors = Some(errors.unwrap_or(0) + failed);
        }
    }
    families(&servers, errors)
}

fn families(servers: &[Named], errors: Option<u64>) -> Vec<Family> {
    let now = now_ns();
    let begun = servers.iter().flat_map(|(name, counts)| {
        let of = |hazard: &Hazard| (labels(name, Some(*hazard)), Some(counts.begun[*hazard as usize] as f64));
        Hazard::ALL[..5].iter().map(of).collect::<Vec<_>>()
    });
    let one = |name, unit, kind, help, value: &dyn Fn(&ServerCounts) -> f64| {
        let values = servers.iter().map(|(name, counts)| (labels(name, None), Some(value(counts))));
        Family::from_numbers((name, unit, kind, help), values)
    };
    vec![
        Family::from_numbers(("hazards", None, Kind::Counter, "Hazards of a server that have begun"), begun),
        one("hazard_present", None, Kind::Gauge, "1 while a server has a hazard, else 0", &|counts| {
            f64::from(u8::from(!counts.hazards.is_empty()))
        }),
        one(
            "hazard_share",
            Some(Unit::Other("ratio".to_owned())),
            Kind::Gauge,
            "Part of its usual weight that a server has now",
            &|counts| f64::from(counts.share) / 100.0,
        ),
        one("hazard_drains", None, Kind::Counter, "Times that a server was drained", &|counts| counts.drains as f64),
        one("hazard_drained", Some(Unit::Seconds), Kind::Counter, "Time for which a server was drained", &|counts| {
            counts.drained(now).as_secs_f64()
        }),
        one(
            "hazard_requests_cut",
            None,
            Kind::Counter,
            "Requests that HAProxy cut instead of sending them again",
            &|counts| counts.cut as f64,
        ),
        Family::from_numbers(
            ("hazard_haproxy_errors", None, Kind::Counter, "Failed exchanges with HAProxy"),
            errors.into_iter().map(|errors| (Vec::new(), Some(errors as f64))),
        ),
    ]
}

fn labels(server: &str, hazard: Option<Hazard>) -> Vec<(&'static str, String)> {
    let server = ("server", server.to_owned());
    [server].into_iter().chain(hazard.map(|hazard| ("hazard", hazard.name().to_owned()))).collect()
}
