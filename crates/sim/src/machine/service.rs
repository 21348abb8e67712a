//! Requests of services: they arrive, wait, work, call others, and are done.

use super::MachineEngine;
use super::sources::{Source, time_or_never};
use super::state::cpu::Thread;
use super::state::visits::Visit;
use crate::model::RunEnd;
use crate::time::Work;

impl MachineEngine {
    /// Schedules the next request of a service's clients.
    pub(super) fn schedule_arrival(&mut self, service: usize) {
        let serving = &mut self.services[service];
        let gap_ns = serving.client.as_mut().map(|client| client.draw_gap_ns(&mut serving.arrivals));
        self.schedule(Source::Arrival(service), time_or_never(gap_ns.map(|ns| self.now.saturating_add(ns))));
    }

    /// Handles the arrival of a client's request.
    pub(super) fn handle_client_arrival(&mut self, service: usize) {
        self.schedule_arrival(service);
        self.send_request(service, None);
    }

    /// Sends a request to a service, from a client or from another request.
    fn send_request(&mut self, service: usize, caller: Option<usize>) {
        self.accounting.services[service].arrived += 1;
        let (described, serving) = (&self.model.services[service], &mut self.services[service]);
        let left = Work::of_ns(described.demand.draw(&mut serving.demand));
        let (worker, idle) = serving.queues.choose_worker(&mut serving.dispatch);
        if !idle && serving.queues.len >= described.queue_limit {
            self.accounting.services[service].refused += 1;
            return self.report_request_end(service, caller, true);
        }
        let visit = self.visits.add(Visit { service, caller, pending: 0, arrived: self.now, left, failed: false });
        let queues = &mut self.services[service].queues;
        if idle {
            queues.idle &= !(1 << worker);
            let thread = Thread { service, worker, visit };
            self.report_request_began(thread);
            self.place_or_queue_thread(thread);
        } else {
            queues.queue_of(worker).push_back(visit);
            queues.len += 1;
        }
    }

    /// Handles the end of a request's own work on `cpu`. Its worker takes the next request, on the same CPU unless
    /// another thread waits for that CPU.
    pub(super) fn finish_own_work(&mut self, cpu: usize) {
        self.book_work_around(cpu);
        self.check_counters_at_switch(cpu);
        let Some(thread) = self.cpus[cpu].thread.take() else { return };
        let next = self.thread_with_next_request(thread);
        self.report_request_ended(thread);
        next.into_iter().for_each(|next| self.report_request_began(next));
        self.waiting_threads.extend(next);
        self.give_cpu_to_waiting_thread(cpu);
        self.update_speeds_around(cpu);
        self.schedule_tick(cpu);
        self.notify_service_changed(cpu);
        // If `fill_cpu()` gave this CPU to another waiting thread, the worker's next request looks for a different idle
        // CPU.
        if next.is_some() && self.waiting_threads.back() == next.as_ref() {
            self.waiting_threads.pop_back();
            next.into_iter().for_each(|next| self.place_or_queue_thread(next));
        }
        self.send_calls(thread);
    }

    /// Returns the thread of the same worker with its next request, if there is one.
    fn thread_with_next_request(&mut self, thread: Thread) -> Option<Thread> {
        let queues = &mut self.services[thread.service].queues;
        let next = queues.queue_of(thread.worker).pop_front();
        match next {
            Some(_) => queues.len -= 1,
            None => queues.idle |= 1 << thread.worker,
        }
        next.map(|visit| Thread { visit, ..thread })
    }

    fn send_calls(&mut self, thread: Thread) {
        let arrived = self.visits.get_mut(thread.visit).arrived;
        self.accounting.services[thread.service].own.record(self.now - arrived);
        let calls = self.model.services[thread.service].calls.len();
        let pending = self.model.services[thread.service].calls.iter().map(|call| call.fan_out).sum();
        self.visits.get_mut(thread.visit).pending = pending;
        if pending == 0 {
            self.complete_request(thread.visit);
        }
        for call in 0..calls {
            let call = self.model.services[thread.service].calls[call];
            (0..call.fan_out).for_each(|_| self.send_request(call.service, Some(thread.visit)));
        }
    }

    /// Ends a request whose own work and calls are all done, and reports the end to its caller.
    fn complete_request(&mut self, visit: usize) {
        let visit = self.visits.remove(visit);
        if !visit.failed {
            self.accounting.services[visit.service].whole.record(self.now - visit.arrived);
        }
        self.report_request_end(visit.service, visit.caller, visit.failed);
    }

    /// Tells the caller of a request that the request has ended, or counts the end if an external client sent it.
    fn report_request_end(&mut self, service: usize, caller: Option<usize>, failed: bool) {
        self.accounting.services[service].failed += u64::from(failed);
        let Some(caller) = caller else {
            self.accounting.answered += u64::from(!failed);
            self.over |= matches!(self.model.until, RunEnd::Requests(count) if self.accounting.answered >= count);
            return;
        };
        let waiting = self.visits.get_mut(caller);
        waiting.failed |= failed;
        waiting.pending -= 1;
        if waiting.pending == 0 {
            self.complete_request(caller);
        }
    }
}
