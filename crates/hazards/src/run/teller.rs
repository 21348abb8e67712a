//! Teller: from the hazards of servers to what HAProxy and other programs are told.
//!
//! Watchers call it under a lock, so that a hazard reaches HAProxy without a change of threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::{Context, Result, ensure};
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{DrainAction, DrainActions, DrainConfig, DrainEvent, Drains, FULL, Hazards, RolesConfig};
use sidelane_rollback::Undo;
use sidelane_rollback::guardian::{self, Guardian};
use tokio::sync::broadcast;

use super::counts::ServerCounts;
use super::events::{self, Event};
use super::options::HazardOptions;
use super::weights::{View, Weights};
use crate::haproxy::RuntimeSocket;

/// Interval at which a state is checked again that HAProxy may change by itself, or did not take.
const CHECK_EVERY_NS: Nanos = 100_000_000;
/// Time after the begin of a drain at which requests in flight are sent again. A response that was under way then has
/// arrived.
const RESEND_AFTER_NS: Nanos = 2_000_000;
/// Number of lines that a slow client may be behind.
const LINES_BEHIND_MAX: usize = 1024;

/// Servers of one load balancer: those of a backend, or all.
struct Group {
    /// Numbers of the servers in the list of all.
    members: Vec<usize>,
    drains: Drains,
    weights: Option<Weights>,
    /// Time at which HAProxy was asked last.
    asked_ns: Nanos,
}

/// Teller of hazards.
pub(super) struct Teller {
    options: HazardOptions,
    groups: Vec<Group>,
    /// Group of each server, and its number there.
    places: Vec<(usize, usize)>,
    servers: Vec<ServerCounts>,
    guardian: Option<Guardian>,
    lines: broadcast::Sender<Arc<str>>,
    messages: mpsc::Sender<String>,
    /// Errors that were reported, until HAProxy answers again.
    reported: BTreeSet<String>,
    errors: u64,
    has_ended: bool,
}

impl Teller {
    /// Creates a teller, and starts the guardian that gives weights back if this process dies. HAProxy has to know the
    /// servers, if it can be reached.
    pub(super) fn new(options: &HazardOptions, messages: mpsc::Sender<String>) -> Result<Self> {
        let mut groups: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
        let mut places = Vec::new();
        for (number, server) in options.servers.iter().enumerate() {
            let backend = options.haproxy.as_ref().and_then(|_| server.backend());
            let place = groups.iter().position(|(known, _)| *known == backend).unwrap_or_else(|| {
                groups.push((backend, Vec::new()));
                groups.len() - 1
            });
            places.push((place, groups[place].1.len()));
            groups[place].1.push(number);
        }
        let groups = groups.into_iter().map(|(backend, members)| group(options, backend, members)).collect();
        let servers = vec![ServerCounts::new(FULL); options.servers.len()];
        let mut teller = Self {
            options: options.clone(),
            groups,
            places,
            servers,
            guardian: None,
            lines: broadcast::channel(LINES_BEHIND_MAX).0,
            messages,
            reported: BTreeSet::new(),
            errors: 0,
            has_ended: false,
        };
        teller.check_haproxy()?;
        if options.haproxy.is_some() || options.agent_check.is_some() {
            let mut guardian = Guardian::start(&[], None).context(guardian::CANNOT_START)?;
            let servers = options.servers.len();
            guardian.add(options.agent_check.map(|address| Undo::AgentCheck { address, servers }))?;
            teller.guardian = Some(guardian);
        }
        Ok(teller)
    }

    fn check_haproxy(&mut self) -> Result<()> {
        let Some(socket) = self.options.haproxy.clone() else { return Ok(()) };
        for place in 0..self.groups.len() {
            let Some(weights) = &self.groups[place].weights else { continue };
            match weights.unknown_servers() {
                Ok((unknown, known)) => ensure!(
                    unknown.is_empty(),
                    "cannot find {} in HAProxy at {}; name servers that it has: {}",
                    unknown.join(", "),
                    socket.display(),
                    known.join(", ")
                ),
                Err(error) => self.report_error(&error.into()),
            }
        }
        Ok(())
    }

    /// Processes the hazards of a server.
    pub(super) fn tell(&mut self, server: usize, hazards: Hazards, now: Nanos) {
        if self.has_ended {
            return;
        }
        let (place, number) = self.places[server];
        self.observe(place, Some(DrainEvent::Watched(number, hazards)), now);
        let (begun, ended) = self.servers[server].set_hazards(hazards);
        let events = begun.into_iter().map(Event::Begin).chain(ended.into_iter().map(Event::End));
        events.for_each(|event| self.send_line(event, server));
    }

    /// Lets the policy observe that time has passed, asks HAProxy again, and repeats what failed. Returns when the next
    /// call is due; `None`: only after a change.
    pub(super) fn check(&mut self, now: Nanos) -> Option<Nanos> {
        if self.has_ended {
            return None;
        }
        self.replace_lost_guardian();
        let mut next = None;
        for place in 0..self.groups.len() {
            if self.is_check_due(place, now) {
                self.observe(place, None, now);
            }
            let wakeup = self.groups[place].drains.next_wakeup(now);
            let again = self.is_unsettled(place).then(|| self.groups[place].asked_ns + CHECK_EVERY_NS);
            next = next.into_iter().chain(wakeup).chain(again).min();
        }
        next
    }

    fn is_check_due(&self, place: usize, now: Nanos) -> bool {
        let group = &self.groups[place];
        let is_old = group.asked_ns + CHECK_EVERY_NS <= now;
        (is_old && self.is_unsettled(place)) || group.drains.next_wakeup(now).is_some_and(|at| at <= now)
    }

    /// Returns whether HAProxy is asked again soon: a server has a hazard, or not its full share.
    fn is_unsettled(&self, place: usize) -> bool {
        let group = &self.groups[place];
        let is_settled = |(number, server): (usize, &usize)| {
            let counts = &self.servers[*server];
            group.drains.share(number) == FULL && counts.share == FULL && counts.hazards.is_empty()
        };
        !group.members.iter().enumerate().all(is_settled)
    }

    /// Lets the policy of a group observe HAProxy's state and an event, and carries its actions out.
    fn observe(&mut self, place: usize, event: Option<DrainEvent>, now: Nanos) {
        self.groups[place].asked_ns = now;
        let view = match self.groups[place].weights.as_ref().map(Weights::view) {
            None => None,
            Some(Ok(view)) => {
                self.reported.clear();
                Some(view)
            }
            Some(Err(error)) => {
                self.report_error(&error.into());
                // HAProxy cannot be told either: the shares are applied when it answers again.
                let unknown = DrainEvent::Balancer { usable: 0, others: 0 };
                self.observe_events(place, [Some(unknown), event], now);
                return;
            }
        };
        let balancer = view.as_ref().map(|view| DrainEvent::Balancer { usable: view.usable, others: view.others });
        let resends = self.observe_events(place, [balancer, event.or(Some(DrainEvent::Nothing))], now);
        self.apply_shares(place, view.as_ref(), resends, now);
    }

    /// Lets the policy of a group observe events. Returns the servers whose requests in flight are to be sent again, as
    /// bits.
    fn observe_events(&mut self, place: usize, events: [Option<DrainEvent>; 2], now: Nanos) -> u64 {
        let mut resends = 0;
        for event in events.into_iter().flatten() {
            let mut actions = DrainActions::default();
            self.groups[place].drains.observe(now, event, &mut actions);
            for action in actions.iter() {
                if let DrainAction::Resend(number) = action {
                    resends |= 1 << number;
                }
            }
        }
        resends
    }

    /// Makes the shares of a group's servers those that its policy wants. What fails is repeated at the next check.
    fn apply_shares(&mut self, place: usize, view: Option<&View>, resends: u64, now: Nanos) {
        for number in 0..self.groups[place].members.len() {
            let group = &mut self.groups[place];
            let (server, wanted) = (group.members[number], group.drains.share(number));
            if wanted == FULL && self.servers[server].share == FULL {
                continue;
            }
            if let (Some(weights), Some(view), Some(guardian)) = (&mut group.weights, view, &mut self.guardian) {
                match weights.set_share(number, wanted, view, guardian) {
                    Ok(0) => {}
                    Ok(cut) => self.report_cut_requests(place, server, cut),
                    Err(error) => {
                        self.report_error(&error);
                        continue;
                    }
                }
            }
            if self.servers[server].share != wanted {
                self.servers[server].set_share(wanted, now);
                self.send_line(Event::Share, server);
            }
            if resends & (1 << number) != 0 {
                self.resend(place, number, view);
            }
        }
    }

    fn resend(&mut self, place: usize, number: usize, view: Option<&View>) {
        let Some((weights, view)) = self.groups[place].weights.as_mut().zip(view) else { return };
        if let Err(error) = weights.resend(number, view) {
            self.report_error(&error);
        }
    }

    fn report_cut_requests(&mut self, place: usize, server: usize, cut: u64) {
        self.servers[server].cut += cut;
        let name = &self.options.servers[server].name;
        let ended = self.groups[place].weights.as_mut().and_then(|weights| weights.count_cut(cut));
        if let Some((cut, of)) = ended {
            let _ = self.messages.send(format!(
                "HAProxy cut {cut} of {of} requests that it should have sent again, the last at {name}, so none is sent \
                 again any more; add `retry-on conn-failure empty-response` and `option redispatch 1` to the backend, \
                 keep requests that are not safe to repeat out of it, and start sidelane again"
            ));
        }
    }

    fn report_error(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        let socket = self.options.haproxy.as_deref().unwrap_or("HAProxy".as_ref()).display();
        let text = format!(
            "no server is drained: {error:#}; check that HAProxy runs, and that `{socket}` is its socket with `level admin`"
        );
        if self.reported.insert(text.clone()) {
            let _ = self.messages.send(text);
        }
    }

    fn replace_lost_guardian(&mut self) {
        let Some(guardian) = self.guardian.as_mut() else { return };
        if guardian.is_alive() {
            return;
        }
        if let Err(error) = guardian.restart(&[]).context(guardian::CANNOT_RESTART) {
            self.report_error(&error);
        }
    }

    fn send_line(&self, event: Event, server: usize) {
        // Without a client the line is dropped.
        if self.lines.receiver_count() > 0 {
            let line = events::line(event, &self.options.servers[server], &self.servers[server]);
            let _ = self.lines.send(line.into());
        }
    }

    /// Returns the lines with the present state, and a receiver of all later lines.
    pub(super) fn subscribe(&self) -> (Vec<String>, broadcast::Receiver<Arc<str>>) {
        let state = |(server, counts)| events::line(Event::State, server, counts);
        (self.options.servers.iter().zip(&self.servers).map(state).collect(), self.lines.subscribe())
    }

    /// Returns the share of a server in percent, by its name. Without a name there has to be only one server.
    pub(super) fn share_of(&self, name: &str) -> Option<u8> {
        match &self.options.servers[..] {
            [_] if name.is_empty() => Some(self.servers[0].share),
            servers => Some(self.servers[servers.iter().position(|server| server.name == name)?].share),
        }
    }

    /// Returns the counts of all servers, and the number of errors of HAProxy.
    pub(super) fn counts(&self) -> (Vec<ServerCounts>, u64) {
        (self.servers.clone(), self.errors)
    }

    /// Gives the servers of a group their weights back. What fails is left to the guardian.
    fn restore_weights(&mut self, place: usize) {
        let group = &mut self.groups[place];
        let (Some(weights), Some(guardian)) = (&mut group.weights, &mut self.guardian) else { return };
        let Ok(view) = weights.view() else { return };
        for number in 0..group.members.len() {
            let _ = weights.set_share(number, FULL, &view, guardian);
        }
    }

    /// Gives all servers their full weights back. `is_check_owed` tells whether the last answer to an agent check was
    /// less than the full weight: the guardian then answers the next checks.
    pub(super) fn end(&mut self, is_check_owed: bool) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let now = now_ns();
        for place in 0..self.groups.len() {
            self.restore_weights(place);
        }
        self.servers.iter_mut().for_each(|server| server.set_share(FULL, now));
        let Some(mut guardian) = self.guardian.take() else { return Ok(()) };
        if is_check_owed {
            // Its end is not waited for: it answers checks for up to a minute.
            drop(guardian);
            return Ok(());
        }
        let is_check = |undo: &Undo| matches!(undo, Undo::AgentCheck { .. });
        let checks: Vec<_> =
            guardian.list().iter().filter(|(_, undo)| is_check(undo)).map(|(change, _)| change).collect();
        guardian.withdraw(checks)?;
        guardian.undo_all_and_end().context(
            "cannot give the servers of HAProxy their weights back; set them with `set server BACKEND/SERVER weight 100%`",
        )
    }
}

fn group(options: &HazardOptions, backend: Option<&str>, members: Vec<usize>) -> Group {
    let config = DrainConfig {
        servers: members.len(),
        others: options.others,
        warm_up_ns: options.warm_up.as_nanos() as Nanos,
        pause_ns: RolesConfig::default().pause_ns,
        resend_ns: RESEND_AFTER_NS,
    };
    let names = members.iter().map(|server| options.servers[*server].name.clone()).collect();
    let socket = options.haproxy.clone().map(RuntimeSocket);
    let weights = socket.zip(backend).map(|(socket, backend)| Weights::new(socket, backend, names, options.resend));
    Group { members, drains: Drains::new(config), weights, asked_ns: 0 }
}
