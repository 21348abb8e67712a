//! Random pipelines of Redis commands at simulated servers. Replies must come in the client's order, each once, from
//! any server.

use std::collections::VecDeque;

use proptest::prelude::*;
use sidelane_policy::hedge::{Hazard, Hazards, HedgeEvent, RolesConfig, SERVERS_MAX, Server};
use sidelane_proxy::request_table::{
    Effect, Label, Quality, RequestClass, RequestEnd, RequestTable, TableConfig, Verdict,
};
use sidelane_proxy::resp::ReplyQueue;

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { is_repeatable: bool },
    Reply(Server),
    Hazard(Server, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let server = || (0..SERVERS_MAX).prop_map(|index| Server::ALL[index]);
    prop_oneof![
        3 => any::<bool>().prop_map(|is_repeatable| Step::Ask { is_repeatable }),
        4 => server().prop_map(Step::Reply),
        1 => (server(), any::<bool>()).prop_map(|(server, is_on)| Step::Hazard(server, is_on)),
    ]
}

/// Pipeline of one client. Each simulated server echoes the commands that it got, in order.
struct Pipeline {
    table: RequestTable<()>,
    reply_queue: ReplyQueue,
    servers: [VecDeque<Vec<u8>>; SERVERS_MAX],
    asked: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
}

impl Pipeline {
    fn apply_step(&mut self, step: Step) {
        match step {
            Step::Ask { is_repeatable } => {
                let follows = self.reply_queue.tied_server();
                let class = RequestClass {
                    is_repeatable: is_repeatable && follows.is_none(),
                    follows,
                    label: Label::from_text(b""),
                };
                if !is_repeatable {
                    self.reply_queue
                        .pin_repeatable_commands()
                        .into_iter()
                        .for_each(|request_id| self.table.forbid_copies(request_id));
                }
                let (request_id, to) = self.table.admit(0, class, ());
                let command = format!("{}", self.asked.len()).into_bytes();
                self.reply_queue.push_command(request_id, to, command.clone(), class.is_repeatable);
                self.servers[to.index()].push_back(command.clone());
                self.asked.push(command);
            }
            Step::Reply(by) => self.send_reply_from(by),
            Step::Hazard(server, is_on) => {
                let hazards = Hazards::NONE.with(Hazard::Stopped, is_on);
                self.table.observe(0, HedgeEvent::Watched(server, hazards));
                for effect in self.table.take_effects() {
                    if let Effect::Send { request_id, to, .. } = effect {
                        let command = self.reply_queue.record_copy(request_id, to).expect("it waits").to_vec();
                        self.servers[to.index()].push_back(command);
                    }
                }
            }
        }
        while let Some(reply) = self.reply_queue.next_reply() {
            self.table.finish_request(0, reply.request_id, RequestEnd::Answered);
            self.got.push(reply.bytes);
        }
    }

    fn send_reply_from(&mut self, by: Server) {
        let Some(bytes) = self.servers[by.index()].pop_front() else { return };
        let request_id = self.reply_queue.take_replied_command(by).expect("it was asked");
        match self.table.record_answer(0, request_id, by, Quality::Success) {
            Verdict::Forward(_) => self.reply_queue.set_reply(request_id, bytes, true),
            _ => self.table.count_dropped_answer(0, request_id, by),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn replies_come_in_the_clients_order_each_once(
        servers in 2..=SERVERS_MAX,
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let roles = RolesConfig { servers, warm_up_ns: 0, ..RolesConfig::default() };
        let table = RequestTable::new(TableConfig { roles, ..TableConfig::default() });
        let (servers, asked, got) = (Default::default(), Vec::new(), Vec::new());
        let mut pipeline = Pipeline { table, reply_queue: ReplyQueue::default(), servers, asked, got };
        for step in steps {
            pipeline.apply_step(step);
            prop_assert!(pipeline.asked.starts_with(&pipeline.got));
        }
        for _ in 0..2 * pipeline.asked.len() {
            Server::ALL.into_iter().for_each(|server| pipeline.apply_step(Step::Reply(server)));
        }
        prop_assert_eq!(&pipeline.got, &pipeline.asked);
        let left = Server::ALL.into_iter().flat_map(|server| pipeline.reply_queue.unanswered_commands(server));
        prop_assert_eq!(left.count(), 0);
    }
}
