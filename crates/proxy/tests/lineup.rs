//! Random pipelines of Redis commands at simulated servers: replies come in the client's order, each once, whoever
//! gives them.

use std::collections::VecDeque;

use proptest::prelude::*;
use sidelane_policy::hedge::{Hazard, Hazards, RolesConfig, Seen, Server};
use sidelane_proxy::desk::{Class, Desk, DeskConfig, Effect, End, Label, Quality, Verdict};
use sidelane_proxy::resp::Lineup;

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { is_repeatable: bool },
    Reply(Server),
    Hazard(Server, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let server = || prop_oneof![Just(Server::First), Just(Server::Second)];
    prop_oneof![
        3 => any::<bool>().prop_map(|is_repeatable| Step::Ask { is_repeatable }),
        4 => server().prop_map(Step::Reply),
        1 => (server(), any::<bool>()).prop_map(|(server, is_on)| Step::Hazard(server, is_on)),
    ]
}

/// One client's pipeline; each server echoes the commands that it got, in order.
struct Pipeline {
    desk: Desk<()>,
    lineup: Lineup,
    servers: [VecDeque<Vec<u8>>; 2],
    asked: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
}

impl Pipeline {
    fn step(&mut self, step: Step) {
        match step {
            Step::Ask { is_repeatable } => {
                let follows = self.lineup.tied_to();
                let class = Class { is_repeatable: is_repeatable && follows.is_none(), follows, label: Label::of(b"") };
                if !is_repeatable {
                    self.lineup.pin().into_iter().for_each(|ticket| self.desk.pin(ticket));
                }
                let (ticket, to) = self.desk.admit(0, class, ());
                let command = format!("{}", self.asked.len()).into_bytes();
                self.lineup.ask(ticket, to, command.clone(), class.is_repeatable);
                self.servers[to.index()].push_back(command.clone());
                self.asked.push(command);
            }
            Step::Reply(by) => self.reply(by),
            Step::Hazard(server, is_on) => {
                let hazards = Hazards::NONE.with(Hazard::Stopped, is_on);
                self.desk.seen(0, Seen::Watched(server, hazards));
                for effect in self.desk.take_effects() {
                    if let Effect::Send { ticket, to, .. } = effect {
                        let command = self.lineup.copy(ticket, to).expect("it waits").to_vec();
                        self.servers[to.index()].push_back(command);
                    }
                }
            }
        }
        while let Some(reply) = self.lineup.next_reply() {
            self.desk.finished(0, reply.ticket, End::Answered);
            self.got.push(reply.bytes);
        }
    }

    fn reply(&mut self, by: Server) {
        let Some(bytes) = self.servers[by.index()].pop_front() else { return };
        let ticket = self.lineup.replied(by).expect("it was asked");
        match self.desk.answered(0, ticket, by, Quality::Success) {
            Verdict::Forward(_) => self.lineup.answer(ticket, bytes, true),
            _ => self.desk.dropped(0, ticket, by),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn replies_come_in_the_clients_order_each_once(steps in proptest::collection::vec(step(), 0..80)) {
        let roles = RolesConfig { warm_up_ns: 0, ..RolesConfig::default() };
        let desk = Desk::new(DeskConfig { roles, ..DeskConfig::default() });
        let (servers, asked, got) = (Default::default(), Vec::new(), Vec::new());
        let mut pipeline = Pipeline { desk, lineup: Lineup::default(), servers, asked, got };
        for step in steps {
            pipeline.step(step);
            prop_assert!(pipeline.asked.starts_with(&pipeline.got));
        }
        for _ in 0..2 * pipeline.asked.len() {
            pipeline.step(Step::Reply(Server::First));
            pipeline.step(Step::Reply(Server::Second));
        }
        prop_assert_eq!(&pipeline.got, &pipeline.asked);
        prop_assert_eq!(pipeline.lineup.owed_by(Server::First).chain(pipeline.lineup.owed_by(Server::Second)).count(), 0);
    }
}
