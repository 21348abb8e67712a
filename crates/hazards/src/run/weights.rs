//! Weights of one backend of HAProxy: changes them as shares say, and gives them back.
//!
//! HAProxy forgets nothing by itself: a server with the weight 0 stays drained. So the guardian is told of each change
//! before it is made. A weight that is not the one that was set last belongs to an operator, or to a new HAProxy
//! process, and is left alone.

use std::io;

use anyhow::{Context, Result};
use sidelane_policy::hedge::FULL;
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::{ChangeId, Undo};

use crate::haproxy::{BackendServer, Cut, RuntimeSocket, weight_command, weight_of_share};

/// One of this number of requests that were to be sent again may be cut: a response may begin just as its session is
/// ended.
const CUT_PART: u64 = 10;

/// Server of the backend whose weight may be changed.
#[derive(Debug)]
struct Member {
    /// Name as BACKEND/SERVER.
    name: String,
    changed: Option<ChangedWeight>,
    /// Whether requests in flight were sent again, with the number of requests that were cut before.
    resent: Option<Cut>,
}

/// Weight that was changed.
#[derive(Clone, Copy, Debug)]
struct ChangedWeight {
    usual: u32,
    now: u32,
    undo: ChangeId,
}

/// Weights of the watched servers of one backend.
pub(super) struct Weights {
    socket: RuntimeSocket,
    backend: String,
    members: Vec<Member>,
    /// Whether requests in flight are sent to another server when a server is drained.
    resends: bool,
    /// Numbers of requests that were to be sent again, and of those that HAProxy cut instead.
    sent_again: u64,
    cut: u64,
}

/// What HAProxy can use: the watched servers as bits, and the number of further servers.
pub(super) struct View {
    servers: Vec<BackendServer>,
    pub(super) usable: u64,
    pub(super) others: usize,
}

impl Weights {
    pub(super) fn new(socket: RuntimeSocket, backend: &str, names: Vec<String>, resends: bool) -> Self {
        let member = |name| Member { name, changed: None, resent: None };
        let (backend, members) = (backend.to_owned(), names.into_iter().map(member).collect());
        Self { socket, backend, members, resends, sent_again: 0, cut: 0 }
    }

    /// Returns the names of the watched servers that HAProxy does not have, and the names that it has.
    pub(super) fn unknown_servers(&self) -> io::Result<(Vec<String>, Vec<String>)> {
        let known: Vec<String> =
            self.socket.servers(&self.backend)?.iter().map(|found| self.full_name(found)).collect();
        let names = self.members.iter().map(|member| member.name.clone());
        Ok((names.filter(|name| !known.contains(name)).collect(), known))
    }

    fn full_name(&self, server: &BackendServer) -> String {
        format!("{}/{}", self.backend, server.name)
    }

    /// Asks HAProxy which servers it can use. A server counts as usable if Sidelane alone has drained it.
    pub(super) fn view(&self) -> io::Result<View> {
        let servers = self.socket.servers(&self.backend)?;
        let (mut usable, mut others) = (0, 0);
        for server in &servers {
            let name = self.full_name(server);
            match self.members.iter().position(|member| member.name == name) {
                Some(number) => {
                    let is_ours = self.members[number].changed.is_some_and(|changed| changed.now == server.weight);
                    usable |= u64::from(server.is_up && (server.weight > 0 || is_ours)) << number;
                }
                None => others += usize::from(server.is_up && server.weight > 0),
            }
        }
        Ok(View { servers, usable, others })
    }

    /// Gives a server a share of its usual weight. `view` is HAProxy's present state. Returns the number of requests
    /// that HAProxy cut since they were to be sent again, if the drain ends.
    ///
    /// # Errors
    /// If HAProxy or the guardian did not take the change. The caller repeats it.
    pub(super) fn set_share(
        &mut self,
        number: usize,
        percent: u8,
        view: &View,
        guardian: &mut Guardian,
    ) -> Result<u64> {
        let name = self.members[number].name.clone();
        let Some(server) = view.servers.iter().find(|server| self.full_name(server) == name) else { return Ok(0) };
        let member = &mut self.members[number];
        if let Some(changed) = member.changed.filter(|changed| changed.now != server.weight) {
            member.changed = None;
            guardian.withdraw([changed.undo])?;
        }
        match member.changed {
            None if percent == FULL || server.weight == 0 => return Ok(0),
            None => {
                let (usual, socket) = (server.weight, self.socket.0.clone());
                let undo = guardian.add([Undo::Command { socket, line: weight_command(&name, usual) }])?[0];
                member.changed = Some(ChangedWeight { usual, now: usual, undo });
            }
            Some(_) => {}
        }
        let changed = member.changed.as_mut().expect("it is set above");
        let weight = weight_of_share(changed.usual, percent);
        if weight != changed.now {
            let command = weight_command(&name, weight);
            self.socket.command(&command).with_context(|| format!("cannot set the weight of {name}"))?;
            changed.now = weight;
        }
        if percent != FULL {
            return Ok(0);
        }
        guardian.withdraw([changed.undo])?;
        member.changed = None;
        let before = member.resent.take();
        before.map_or(Ok(0), |before| Ok(self.socket.cut(server)?.0.saturating_sub(before.0)))
    }

    /// Makes HAProxy send the requests that wait at a drained server to another one, if that is wanted.
    pub(super) fn resend(&mut self, number: usize, view: &View) -> Result<()> {
        let name = self.members[number].name.clone();
        let Some(server) = view.servers.iter().find(|server| self.full_name(server) == name) else { return Ok(()) };
        // A server that is drained by another program keeps its requests.
        if !self.resends || self.members[number].changed.is_none_or(|changed| changed.now != 0) {
            return Ok(());
        }
        let cut_before = self.socket.cut(server)?;
        // The sessions come last: the hazard may end now, and then responses begin.
        let waiting = self.socket.waiting_sessions(&self.backend, server);
        let waiting = waiting.with_context(|| format!("cannot read the sessions at {name}"))?;
        if waiting.is_empty() {
            return Ok(());
        }
        self.members[number].resent = Some(cut_before);
        self.sent_again += waiting.len() as u64;
        self.socket.end_sessions(&waiting).with_context(|| format!("cannot end the sessions at {name}"))
    }

    /// Counts requests that HAProxy cut. If they are too many, no request is sent again from now on. Returns whether
    /// that has begun, with the numbers of requests that were cut and that were to be sent again.
    pub(super) fn count_cut(&mut self, cut: u64) -> Option<(u64, u64)> {
        self.cut += cut;
        let is_end = self.resends && self.cut * CUT_PART > self.sent_again;
        self.resends &= !is_end;
        is_end.then_some((self.cut, self.sent_again))
    }
}
