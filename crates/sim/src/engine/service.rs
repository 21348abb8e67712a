//! Requests of the service: they arrive, wait, start and finish.

use super::Engine;
use super::state::core::{Queued, Request};
use super::watch::{CompletedRequest, Watch};
use crate::model::RunEnd;
use crate::time::{NEVER, Nanos, Work};

impl<W: Watch> Engine<W> {
    /// Handles the arrival of a request.
    pub(super) fn handle_arrival(&mut self) {
        let recorded = self.client.arriving_task();
        let gap_ns = self.client.draw_gap_ns(&mut self.arrivals);
        self.slots.set_time(self.arrival_slot(), self.now + gap_ns);
        let counts = recorded.is_none_or(|task| task.is_request);
        self.last_number += u64::from(counts);
        self.accounting.arrived += u64::from(counts);
        let (work_ns, away_ns) = match recorded {
            Some(task) => (Nanos::from(task.work_ns).max(1), task.away_ns.into()),
            None => (self.model.service.demand.draw(&mut self.demand), 0),
        };
        let request = Queued { number: self.last_number, arrived: self.now, work_ns, away_ns, counts };
        let choice = match recorded {
            Some(task) => self.queues.state_of_worker(task.worker.into()),
            None => self.queues.choose_worker(&mut self.dispatch),
        };
        match choice {
            (worker, true) => self.start_on_idle_worker(worker, request),
            (_, false) if self.queues.len >= self.model.service.queue_limit => {
                self.accounting.refused += 1;
                self.watch.request_refused(request.number);
            }
            (worker, false) => {
                self.queues.queue_of(worker).push_back(request);
                self.queues.len += 1;
                self.notify_queue_changed();
            }
        }
    }

    /// Starts a request on an idle worker.
    fn start_on_idle_worker(&mut self, worker: usize, request: Queued) {
        self.book_core_work(worker);
        self.queues.idle &= !(1 << worker);
        let wake_ns = self.core_wake_ns(worker);
        let idle_ns = self.now - self.cores[worker].flipped;
        self.watch.idle_period_ended(idle_ns);
        self.cores[worker].last_idle_ns = idle_ns;
        self.cores[worker].flipped = self.now;
        self.start(worker, request, wake_ns);
        self.update_core_speeds(worker);
    }

    /// Returns the time that a request loses because its core sleeps.
    fn core_wake_ns(&self, core: usize) -> Nanos {
        let unused_ns = self.now - self.cores[core].used;
        let sleep = self.model.machine.sleep.filter(|sleep| unused_ns > 0 && unused_ns >= sleep.after_ns);
        sleep.map_or(0, |sleep| sleep.wake_ns)
    }

    fn start(&mut self, worker: usize, request: Queued, wake_ns: Nanos) {
        let work = Work::of_ns(request.work_ns + wake_ns);
        self.cores[worker].request = Some(Request {
            number: request.number,
            arrived: request.arrived,
            started: self.now,
            away_ns: request.away_ns,
            counts: request.counts,
            work,
            left: work,
            waited: request.arrived < self.now,
            co_run_ns: 0,
            leak_ns: 0,
        });
        self.notify_service_changed(worker);
    }

    /// Handles the end of the request on `worker`.
    pub(super) fn finish_request(&mut self, worker: usize) {
        self.book_core_work(worker);
        let Some(request) = self.cores[worker].request.take() else { return };
        if request.counts {
            self.record_finished_request(worker, &request);
        }
        match self.queues.queue_of(worker).pop_front() {
            Some(next) => {
                self.queues.len -= 1;
                self.start(worker, next, 0);
                self.notify_queue_changed();
            }
            None => {
                self.slots.set_time(worker, NEVER);
                self.queues.idle |= 1 << worker;
                self.cores[worker].flipped = self.now;
                self.notify_service_changed(worker);
            }
        }
        self.update_core_speeds(worker);
    }

    fn record_finished_request(&mut self, worker: usize, request: &Request) {
        let latency_ns = self.now - request.arrived + request.away_ns;
        let queued_ns = request.started - request.arrived;
        self.accounting.finished += 1;
        self.accounting.waited += u64::from(request.waited);
        self.accounting.latency.iter_mut().for_each(|latency| latency.saturating_record(latency_ns));
        self.accounting.latency_ns += u128::from(latency_ns);
        self.accounting.queued_ns += u128::from(queued_ns);
        self.record_delay_bound(worker, request);
        let glitch = self.faults.draw_counter_glitch();
        self.limits.record_finished(request, self.now, glitch);
        self.watch.request_finished(&CompletedRequest {
            number: request.number,
            arrived: request.arrived,
            started: request.started,
            finished: self.now,
            away_ns: request.away_ns,
            work: request.work.units(),
            waited: request.waited,
            co_run_ns: request.co_run_ns,
            leak_ns: request.leak_ns,
        });
        if matches!(self.model.until, RunEnd::Requests(count) if self.accounting.finished >= count) {
            self.over = true;
        }
    }

    /// Adds the delay bound of a request, from batch on its own core. The bound does not hold if several workers share
    /// a queue, where batch on other cores delays the request, too.
    fn record_delay_bound(&mut self, worker: usize, request: &Request) {
        let contention_cost = self.limits.current().contention_cost;
        let bound_ns =
            self.cores[worker].delay.add_finished_request(request.waited, request.co_run_ns, contention_cost);
        self.accounting.delay_bound_ns += u128::from(bound_ns);
        self.accounting.delay_bound_ns_max = self.accounting.delay_bound_ns_max.max(bound_ns);
    }
}
