//! The proxies that the file names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ptr;

use anyhow::{Context, Result};
use sidelane_host::posix_signals::PosixSignals;
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_proxy::edge::State;

use crate::status::ProxyStatus;
use sidelane_hazards::note::HazardNote;
use sidelane_metrics::Family;
use sidelane_proxy::run::options::ProxyOptions;
use sidelane_proxy::run::{
    ProxyMetrics, ReadyProxy, RunningProxy, describe_out_of_service, describe_unfinished_work, drain, metric_families,
};

/// All proxies of the agent.
pub struct Proxies {
    running: Vec<RunningProxy>,
    /// Proxies that accept no more clients, and answer pending requests.
    draining: Vec<RunningProxy>,
    /// Counts of drained proxies by address, while another proxy uses this address.
    drained: BTreeMap<SocketAddr, State>,
    /// CPUs of the proxies' threads: those that the agent could use when it was started.
    cpus: Vec<u32>,
}

/// Report on proxies that were started or ended.
#[derive(Debug, Default)]
pub struct ProxyReport {
    /// Notes on what is degraded.
    pub notes: Vec<HazardNote>,
    /// Texts on proxies that came and went.
    pub changes: Vec<String>,
}

impl Proxies {
    /// Makes an empty list of proxies. Their threads will run on these CPUs.
    pub fn new(cpus: Vec<u32>) -> Self {
        Self { running: Vec::new(), draining: Vec::new(), drained: BTreeMap::new(), cpus }
    }

    /// Runs exactly the proxies `wanted`. A proxy whose options are unchanged keeps running.
    ///
    /// # Errors
    /// If a proxy cannot be started. Then all proxies are as they were before.
    pub fn update_running(&mut self, wanted: &[ProxyOptions]) -> Result<ProxyReport> {
        let is_new = |options: &&ProxyOptions| !self.running.iter().any(|proxy| proxy.options() == *options);
        let ready: Vec<ReadyProxy> =
            wanted.iter().filter(is_new).map(|options| self.prepare_proxy(options)).collect::<Result<_>>()?;
        let notes = ready.iter().flat_map(|ready| ready.notes().to_vec()).collect();
        let start = || ready.into_iter().map(ReadyProxy::start).collect::<Result<Vec<_>>>();
        let started = run_with_this_thread_on(&self.cpus, start).context("cannot choose CPUs for the proxies")??;
        let mut told = ProxyReport { notes, ..ProxyReport::default() };
        for mut proxy in self.running.extract_if(.., |proxy| !wanted.contains(proxy.options())) {
            proxy.drain();
            told.changes.push(format!("the proxy at {} takes no more clients", proxy.address()));
            self.draining.push(proxy);
        }
        told.changes.extend(started.iter().map(|proxy| format!("proxy at {}", proxy.address())));
        self.running.extend(started);
        Ok(told)
    }

    /// Returns whether one of the proxies uses this server.
    pub fn uses_server(&self, server: &str) -> bool {
        self.running.iter().flat_map(|proxy| proxy.options().servers()).any(|address| address.to_string() == server)
    }

    /// Prepares a proxy. A changed proxy takes over the listening socket of its predecessor, so that no client is
    /// refused.
    fn prepare_proxy(&self, options: &ProxyOptions) -> Result<ReadyProxy> {
        let before = self.running.iter().find(|proxy| proxy.options().listen == options.listen);
        let ready = match before {
            Some(before) => before.prepare_successor(options.clone()),
            None => ReadyProxy::new(options.clone()),
        };
        ready.with_context(|| format!("cannot start the proxy at {}", options.listen))
    }

    /// Reads the state of all proxies. Returns texts on their servers and on proxies that have ended, which are
    /// removed. An error is the reason why a proxy could not go on.
    pub fn take_events(&mut self) -> Vec<Result<String>> {
        let all = self.running.iter_mut().chain(&mut self.draining);
        let news: Vec<_> = all.flat_map(take_proxy_events).map(Ok).collect();
        let failed = self.running.extract_if(.., |proxy| proxy.has_ended());
        let drained = self.draining.extract_if(.., |proxy| proxy.has_ended());
        let ended: Vec<RunningProxy> = failed.chain(drained).collect();
        news.into_iter().chain(ended.into_iter().map(|proxy| self.end_proxy(proxy))).collect()
    }

    /// Ends a proxy. Its successor, if there is one, continues its counts.
    fn end_proxy(&mut self, proxy: RunningProxy) -> Result<String> {
        let address = proxy.address();
        let ended = stop_proxy(proxy);
        let has_successor = self.running.iter().chain(&self.draining).any(|other| other.address() == address);
        match &ended {
            _ if !has_successor => drop(self.drained.remove(&address)),
            Ok((state, _)) => {
                let before = self.drained.entry(address);
                before.and_modify(|before| before.add_counts(state)).or_insert_with(|| state.clone());
            }
            Err(_) => {}
        }
        ended.map(|(_, told)| told)
    }

    /// Opens the files of access logs again, for rotated logs, and reads certificates again.
    pub fn reload_files(&mut self) {
        for proxy in self.running.iter_mut().chain(&mut self.draining) {
            proxy.reload_files();
        }
    }

    /// Returns the metrics of all proxies, as of the last call of `take_events`.
    pub fn metric_families(&self) -> Vec<Family> {
        let states: Vec<_> =
            self.one_proxy_per_address().filter_map(|proxy| Some((proxy, self.combined_state(proxy)?))).collect();
        let counted = states.iter().map(|(proxy, state)| {
            let (address, options) = (proxy.address(), proxy.options());
            let draining = self.draining.iter().filter(|draining| draining.address() == address).count();
            ProxyMetrics { listen: Some(address), options, state, draining }
        });
        metric_families(&counted.collect::<Vec<_>>())
    }

    /// Returns the state of a proxy. It includes the pending requests and the counts of earlier proxies at the same
    /// address.
    fn combined_state(&self, proxy: &RunningProxy) -> Option<State> {
        let address = proxy.address();
        let mut state = proxy.state()?.clone();
        let others = self.draining.iter().filter(|other| other.address() == address && !ptr::eq(*other, proxy));
        for other in others.filter_map(RunningProxy::state) {
            state.add_counts(other);
            state.add_unfinished_work(other);
        }
        self.drained.get(&address).into_iter().for_each(|drained| state.add_counts(drained));
        Some(state)
    }

    /// Returns one proxy for each address. A draining proxy is returned only if no other accepts clients there.
    fn one_proxy_per_address(&self) -> impl Iterator<Item = &RunningProxy> {
        let mut addresses = Vec::new();
        self.running.iter().chain(&self.draining).filter(move |proxy| {
            let is_first = !addresses.contains(&proxy.address());
            addresses.push(proxy.address());
            is_first
        })
    }

    /// Returns the status of all proxies, as of the last call of `take_events`.
    pub fn status(&self) -> Vec<ProxyStatus> {
        let draining = self.draining.iter().map(|proxy| ProxyStatus { draining: true, ..status(proxy) });
        self.running.iter().map(status).chain(draining).collect()
    }

    /// Ends all proxies when they have answered pending requests, or at once at a second POSIX signal. Returns texts on
    /// the proxies.
    pub fn end(&mut self, signals: &PosixSignals) -> Vec<Result<String>> {
        let mut all: Vec<RunningProxy> = self.running.drain(..).chain(self.draining.drain(..)).collect();
        let waited = drain(&mut all, signals, |_| {}).context("cannot wait until the proxies have ended");
        let ended = all.into_iter().map(|proxy| stop_proxy(proxy).map(|(_, told)| told));
        waited.err().into_iter().map(Err).chain(ended).collect()
    }
}

/// Ends a proxy. Returns its state, and a text on its end.
fn stop_proxy(proxy: RunningProxy) -> Result<(State, String)> {
    let address = proxy.address();
    let state = proxy.end().with_context(|| format!("the proxy at {address} has ended"))?;
    let cut = describe_unfinished_work(&state).map_or(String::new(), |cut| {
        format!(", and cut {cut} that had not ended when the drain was over; set a longer `drain` to give more time")
    });
    let unlogged = match state.log_lines_lost {
        0 => String::new(),
        lost => format!("; {lost} requests have no line in its access log"),
    };
    let unexported = match state.slow_requests.not_exported {
        0 => String::new(),
        lost => format!("; {lost} slow requests could not be exported"),
    };
    Ok((state, format!("the proxy at {address} has ended{cut}{unlogged}{unexported}")))
}

fn take_proxy_events(proxy: &mut RunningProxy) -> Vec<String> {
    let address = proxy.address();
    proxy.refresh_state().into_iter().map(|news| format!("the proxy at {address}: {news}")).collect()
}

fn status(proxy: &RunningProxy) -> ProxyStatus {
    let options = proxy.options();
    let known = proxy.state();
    let counts = known.map(|state| state.counts.clone()).unwrap_or_default();
    ProxyStatus {
        listen: proxy.address().to_string(),
        active: known.map_or(options.active, |state| state.active).to_string(),
        servers: options.servers().map(|server| server.to_string()).collect(),
        why: known.map(|state| state.why.clone()),
        draining: false,
        out_of_service: known.iter().flat_map(|state| &state.by_server).filter_map(describe_out_of_service).collect(),
        clients: known.map_or(0, |state| state.clients),
        in_flight: known.map_or(0, |state| state.in_flight),
        requests: counts.requests,
        answered: counts.answered,
        hedges: counts.hedges,
        hedge_wins: counts.wins,
        swaps: counts.swaps.iter().sum(),
    }
}
