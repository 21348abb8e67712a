//! Tests of the memory words in which the kernel program says on which request each thread of a service works. They
//! also test when it wakes the reader of these words.
//!
//! The service is a thread of this process on CPU 0, controlled by the test.

mod common;

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use common::connection::Connection;
use common::{can_observe_requests, lock_lanes, wait_until};
use rustix::event::{Timespec, epoll};
use sidelane_host::priority::pin_this_thread;
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_requests::Requests;
use sidelane_tracker::threads::ThreadWords;
use sidelane_tracker::tracker::Purpose;
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

const CPU: usize = 0;
const OTHER_CPU: usize = 1;
const NONE: [usize; 0] = [];

/// Connection to a service, and the reader of its requests.
struct Scene {
    connection: Connection,
    words: ThreadWords,
    requests: Requests,
    tracking: ServiceTracking,
    epoll: OwnedFd,
}

impl Scene {
    /// Returns whether the reader was woken since the last call. Records that wait to be read do not wake the reader.
    fn take_wakeup(&mut self) -> bool {
        let mut events = Vec::with_capacity(1);
        let now = Timespec::default();
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
        !events.is_empty()
    }

    #[track_caller]
    fn check_reader_is_woken(&mut self) {
        wait_until("the wakeup came", || self.take_wakeup());
        self.requests.fetch_answered(|_| ()).unwrap();
    }

    #[track_caller]
    fn check_reader_is_not_woken(&mut self) {
        std::thread::yield_now();
        assert!(!self.take_wakeup());
        self.requests.fetch_answered(|_| ()).unwrap();
    }

    /// Returns the number of the request on which the service's thread works, as its memory word says.
    fn current_request_number(&self) -> Option<u64> {
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let thread = self.words.iter().find(|thread| thread.tid == me);
        thread.and_then(|thread| thread.request).map(|request| request.number)
    }
}

fn on_one_cpu(script: impl FnOnce(Scene)) {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    pin_this_thread(&[CPU as u32]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = Connection::open(&listener);
    let lanes = Lanes::without_batch_lanes([CPU as u32, OTHER_CPU as u32].into_iter().collect());
    let me = std::process::id();
    let tracking =
        ServiceTracking::with_own_tracker(&Service::of_process(me), &lanes, LaneUse::default(), Purpose::Threads)
            .unwrap();
    let requests = Requests::track(&tracking, "this test", &BTreeSet::from([me])).unwrap();
    let words = ThreadWords::map(&tracking).unwrap();
    tracking.tracker().attach().unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let wake_ups = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, requests.event_fd(), epoll::EventData::new_u64(0), wake_ups).unwrap();
    script(Scene { connection, words, requests, tracking, epoll });
}

#[test]
fn reader_is_woken_once_for_a_begin_or_end_on_armed_cpus() {
    on_one_cpu(|mut scene| {
        scene.words.arm_wakeup([CPU], NONE);
        scene.connection.send_request();
        scene.check_reader_is_not_woken();
        scene.connection.receive_request();
        scene.check_reader_is_woken();
        scene.connection.exchange_answer();
        scene.check_reader_is_not_woken();
        scene.connection.send_request();
        scene.connection.receive_request();
        scene.check_reader_is_not_woken();

        scene.words.arm_wakeup(NONE, [CPU]);
        scene.check_reader_is_not_woken();
        scene.connection.exchange_answer();
        scene.check_reader_is_woken();

        scene.words.arm_wakeup([OTHER_CPU], [OTHER_CPU]);
        scene.connection.send_request();
        scene.connection.receive_request();
        scene.connection.exchange_answer();
        scene.check_reader_is_not_woken();
    });
}

#[test]
fn thread_word_has_the_request_of_its_thread() {
    on_one_cpu(|mut scene| {
        scene.connection.send_request();
        assert_eq!(scene.current_request_number(), None);
        scene.connection.receive_request();
        let first = scene.current_request_number().expect("it was received");
        scene.connection.exchange_answer();
        assert_eq!(scene.current_request_number(), None);
        scene.connection.send_request();
        scene.connection.receive_request();
        assert!(scene.current_request_number() > Some(first));
    });
}

/// The number of answers to come is unknown. Switches are watched after the first such request.
#[test]
fn sleeping_thread_that_answered_two_requests_at_once_is_idle() {
    on_one_cpu(|mut scene| {
        scene.connection.send_request();
        scene.connection.send_request();
        scene.connection.1.read_exact(&mut [0; 6]).unwrap();
        scene.connection.exchange_answer();
        assert!(scene.current_request_number().is_some(), "the second answer may follow");
        scene.tracking.tracker().attach_switch_program().unwrap();
        wait_until("it has slept", || scene.current_request_number().is_none());
    });
}

/// A thread whose client has closed works on no request, so its sleep in a read is not part of a long request.
#[test]
fn request_ends_for_its_thread_when_its_client_closes() {
    on_one_cpu(|mut scene| {
        scene.connection.send_request();
        scene.connection.receive_request();
        let Scene { connection: Connection(client, mut service), mut requests, .. } = scene;
        drop(client);
        assert_eq!(service.read(&mut [0; 3]).unwrap(), 0);
        drop(service);
        let mut ended = Vec::new();
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        wait_until("the end of the request is told", || {
            requests.fetch_answered(|request| ended.push((request.tid, request.ending.is_some()))).unwrap();
            !ended.is_empty()
        });
        assert_eq!(ended, [(me, true)]);
    });
}
