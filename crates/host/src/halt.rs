//! Detection of halted processes: stopped by a signal, held by a debugger, or frozen with their control group.
//!
//! A frozen thread has no state letter of its own: version 2 shows `S`, version 1 `D`. So the groups are read, too. A
//! group that was only asked to freeze counts as frozen: its last thread may freeze much later.

use std::collections::BTreeSet;
use std::fs;

use crate::cgroup::Hierarchy;
use crate::procfs::{state, text_of, threads};

/// A process that is watched for halts.
pub struct HaltWatch {
    pid: u32,
    /// Hierarchies whose groups can be frozen.
    hierarchies: Vec<Hierarchy>,
    /// Whether a debugger held a thread at the last check.
    was_traced: bool,
}

impl HaltWatch {
    /// Starts to watch the process `pid`, with the hierarchies that are mounted now.
    pub fn new(pid: u32) -> Self {
        let freezes = |found: &Hierarchy| found.is_v2() || found.has_controller("freezer");
        Self { pid, hierarchies: Hierarchy::all().into_iter().filter(freezes).collect(), was_traced: false }
    }

    /// Whether any thread is halted. A tracer such as strace holds a thread for microseconds at each system call, so
    /// a traced thread counts only at the second consecutive check.
    pub fn is_halted(&mut self) -> bool {
        let states: Vec<char> = threads(self.pid).into_iter().filter_map(|tid| self.state_of(tid)).collect();
        let is_traced = states.contains(&'t');
        let was_traced = std::mem::replace(&mut self.was_traced, is_traced);
        states.contains(&'T') || (is_traced && was_traced) || self.is_frozen()
    }

    /// Whether the last check was inconclusive, so that another one has to follow soon.
    pub fn needs_another_check(&self) -> bool {
        self.was_traced
    }

    fn state_of(&self, tid: u32) -> Option<char> {
        state(&format!("/proc/{}/task/{tid}/stat", self.pid))
    }

    /// Whether a thread is in a frozen group. Version 1, and version 2 below a threaded group, can freeze one thread
    /// of several.
    fn is_frozen(&self) -> bool {
        let memberships = threads(self.pid).into_iter();
        let memberships: BTreeSet<String> =
            memberships.filter_map(|tid| text_of(&format!("/proc/{}/task/{tid}/cgroup", self.pid))).collect();
        memberships.iter().any(|groups| self.hierarchies.iter().any(|found| is_frozen_in(found, groups)))
    }
}

fn is_frozen_in(hierarchy: &Hierarchy, memberships: &str) -> bool {
    let Some(dir) = hierarchy.dir_from_memberships(memberships) else { return false };
    if !hierarchy.is_v2() {
        // The state of a version 1 group also shows the groups above it.
        return fs::read_to_string(dir.join("freezer.state")).is_ok_and(|state| state.trim() != "THAWED");
    }
    let freezes =
        |dir: &std::path::Path| fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|it| it.trim() == "1");
    dir.ancestors().take_while(|above| above.starts_with(&hierarchy.mount)).any(freezes)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::cgroup::BatchGroup;
    use crate::freezer::Freezer;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }

        fn signal(&self, signal: i32) {
            // SAFETY: plain system call, on a child that is not reaped yet.
            unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn wait_for_halt_state(watch: &mut HaltWatch, expected: bool) {
        while watch.is_halted() != expected {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_stopped_process_is_halted_until_it_is_continued() {
        let sleeper = Sleeper::start();
        let mut watch = HaltWatch::new(sleeper.pid());
        assert!(!watch.is_halted());
        sleeper.signal(libc::SIGSTOP);
        wait_for_halt_state(&mut watch, true);
        sleeper.signal(libc::SIGCONT);
        wait_for_halt_state(&mut watch, false);
    }

    #[test]
    fn a_process_that_has_ended_is_not_halted() {
        let mut sleeper = Sleeper::start();
        let mut watch = HaltWatch::new(sleeper.pid());
        sleeper.signal(libc::SIGSTOP);
        wait_for_halt_state(&mut watch, true);
        sleeper.0.kill().unwrap();
        sleeper.0.wait().unwrap();
        assert!(!watch.is_halted());
    }

    #[test]
    fn traced_process_is_halted_at_the_second_check() {
        let sleeper = Sleeper::start();
        let pid = sleeper.pid() as libc::pid_t;
        let mut watch = HaltWatch::new(sleeper.pid());
        // SAFETY: plain system calls, on a child that is not reaped yet; no argument is a pointer.
        let traced = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0 && libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0
        };
        if !traced {
            return sidelane_testing::skip("needs ptrace".to_owned());
        }
        while state(&format!("/proc/{pid}/stat")) != Some('t') {
            std::thread::yield_now();
        }
        assert_eq!([watch.is_halted(), watch.needs_another_check(), watch.is_halted()], [false, true, true]);
    }

    /// Freezes the group itself and the group above it, in each hierarchy that can freeze.
    #[test]
    fn process_in_a_frozen_group_or_below_one_is_halted() {
        let freezes = |found: &Hierarchy| found.is_v2() || found.has_controller("freezer");
        let mut tested = 0;
        for hierarchy in Hierarchy::all().into_iter().filter(freezes) {
            let name = format!("halt-test-{}", std::process::id());
            let Ok(above) = BatchGroup::create(&hierarchy, &name) else { continue };
            let inner = BatchGroup { dir: above.dir.join("inner") };
            let sleeper = Sleeper::start();
            let mut watch = HaltWatch::new(sleeper.pid());
            let can = fs::create_dir(&inner.dir).and_then(|()| inner.move_process_in(sleeper.pid())).is_ok();
            for freezer in
                [&above, &inner].into_iter().filter_map(|leaf| Freezer::find_in_group(&leaf.dir)).filter(|_| can)
            {
                assert!(!watch.is_halted());
                freezer.set_frozen(true).unwrap();
                assert!(watch.is_halted(), "{hierarchy:?}");
                freezer.set_frozen(false).unwrap();
                wait_for_halt_state(&mut watch, false);
                tested += 1;
            }
            drop(sleeper);
            above.remove().unwrap();
        }
        if tested == 0 {
            sidelane_testing::skip("needs a control group that can be frozen".to_owned());
        }
    }

    /// Freezes one thread of this process: a group of version 1 can contain single threads.
    #[test]
    fn process_with_one_frozen_thread_is_halted() {
        let v1 = Hierarchy::all().into_iter().find(|found| found.has_controller("freezer"));
        let leaf = v1.and_then(|found| BatchGroup::create(&found, &format!("halt-thread-{}", std::process::id())).ok());
        let Some(leaf) = leaf else { return sidelane_testing::skip("needs a v1 freezer".to_owned()) };
        let (told, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = ended.recv();
        });
        let mut watch = HaltWatch::new(std::process::id());
        leaf.write("tasks", &tid.recv().unwrap().to_string()).unwrap();
        let freezer = Freezer::find_in_group(&leaf.dir).unwrap();
        freezer.set_frozen(true).unwrap();
        let halted = watch.is_halted();
        freezer.set_frozen(false).unwrap();
        drop(end);
        thread.join().unwrap();
        leaf.remove().unwrap();
        assert!(halted);
    }
}
