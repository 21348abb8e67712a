use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use proptest::prelude::*;
use sidelane_host::affinity::Affinity;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::CpuListSnapshot;
use sidelane_host::priority::{ThreadClass, pin_thread};
use sidelane_host::procfs::thread_cpus;
use sidelane_host::thread::Thread;

use super::*;
use crate::groups::Fate;

/// Content of the group's CPU list before any change is undone.
const AT_FIRST: &str = "99";

/// Creates a folder that counts as a group of version 2.
fn create_fake_group() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (file, says) in [("cgroup.controllers", "cpuset"), ("cpuset.cpus", AT_FIRST)] {
        fs::write(dir.path().join(file), says).unwrap();
    }
    dir
}

/// Returns a change of a group whose CPU list had this content before.
fn cpu_list_change(dir: &Path, previous_list: usize) -> Undo {
    Undo::Cpusets(CpuListSnapshot { root: dir.to_owned(), lists: [(dir.to_owned(), previous_list.to_string())].into() })
}

fn read_cpu_list(dir: &Path) -> String {
    fs::read_to_string(dir.join("cpuset.cpus")).unwrap_or_default().trim().to_owned()
}

proptest! {
    /// Checks that undoing all restores the oldest value: each change overwrote the value of the previous one, and some
    /// changes were withdrawn since.
    #[test]
    fn undoing_all_restores_the_value_before_the_first_change(withdrawn in prop::collection::vec(any::<bool>(), 1..20)) {
        let dir = create_fake_group();
        let mut list = UndoList::default();
        let change_ids: Vec<ChangeId> = (0..withdrawn.len()).map(|before| list.add(cpu_list_change(dir.path(), before))).collect();
        change_ids.iter().zip(&withdrawn).filter(|(_, gone)| **gone).for_each(|(change_id, _)| list.withdraw(*change_id));
        let (undone, outcome) = list.undo_matching(|_, _| true);
        outcome.unwrap();
        let first = withdrawn.iter().position(|gone| !gone);
        prop_assert_eq!(read_cpu_list(dir.path()), first.map_or(AT_FIRST.to_owned(), |first| first.to_string()));
        let left: Vec<ChangeId> = list.iter().rev().map(|(change_id, _)| change_id).collect();
        prop_assert_eq!(undone, left);
    }

    /// Checks that a guardian that receives every message has the same list as the agent.
    #[test]
    fn guardian_has_the_same_list_as_the_agent(withdrawn in prop::collection::vec(any::<bool>(), 1..20)) {
        let (mut list, mut told) = (UndoList::default(), UndoList::default());
        for (number, gone) in withdrawn.into_iter().enumerate() {
            let undo = cpu_list_change(Path::new("/group"), number);
            let change_id = list.add(undo.clone());
            let line = serde_json::to_string(&(change_id, undo)).unwrap();
            let (change_id, undo) = serde_json::from_str(&line).unwrap();
            told.insert(change_id, undo);
            if gone {
                list.withdraw(change_id);
                told.withdraw(change_id);
            }
        }
        prop_assert_eq!(list, told);
    }
}

#[test]
fn replaced_change_is_undone_in_the_same_order() {
    let dir = create_fake_group();
    let mut list = UndoList::default();
    let first = list.add(cpu_list_change(dir.path(), 1));
    list.add(cpu_list_change(dir.path(), 2));
    list.insert(first, cpu_list_change(dir.path(), 3));
    assert_eq!(list.iter().count(), 2);
    list.undo_matching(|_, _| true).1.unwrap();
    assert_eq!(read_cpu_list(dir.path()), "3");
}

#[test]
fn failed_undo_does_not_stop_the_others() {
    let dir = create_fake_group();
    let mut list = UndoList::default();
    list.add(cpu_list_change(dir.path(), 1));
    // A folder that is not empty cannot be removed.
    list.add(Undo::Group { dir: dir.path().to_owned(), fate: Fate::MovedTo("/".into()) });
    fs::write(dir.path().join("cpuset.cpus"), "2").unwrap();
    let (undone, outcome) = list.undo_matching(|_, _| true);
    assert!(outcome.is_err());
    assert_eq!((undone.len(), read_cpu_list(dir.path())), (1, "1".to_owned()));
}

#[test]
fn missing_files_and_threads_need_no_undo() {
    let gone = Path::new("/no/such/group");
    let thread = Thread { tid: std::process::id(), started: 0 };
    let mut list = UndoList::default();
    list.add(Undo::Claim { file: gone.to_owned(), inode: Some(1) });
    list.add(cpu_list_change(gone, 1));
    list.add(Undo::Freezer { dir: gone.to_owned(), frozen: false });
    list.add(Undo::Group { dir: gone.to_owned(), fate: Fate::Ended });
    list.add(Undo::Member { process: thread, group: gone.to_owned(), from: gone.to_owned() });
    list.add(Undo::Family { process: thread });
    list.undo_matching(|_, _| true).1.unwrap();
}

#[test]
fn claim_made_later_by_another_process_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("claim");
    fs::write(&file, "").unwrap();
    let inode = fs::metadata(&file).unwrap().ino();
    let undone = |inode| Undo::Claim { file: file.clone(), inode: Some(inode) }.carry_out(&BTreeSet::new()).is_ok();
    assert!(undone(inode + 1) && file.exists());
    assert!(undone(inode) && !file.exists());
}

/// A child process that only waits.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").process_group(0).spawn().unwrap())
    }

    fn thread(&self) -> Thread {
        Thread::with_tid(self.0.id()).unwrap()
    }

    fn cpus(&self) -> CpuSet {
        thread_cpus(self.0.id(), self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn undo_restores_cpus_and_class_of_a_thread() {
    let sleeper = Sleeper::start();
    let (thread, cpus) = (sleeper.thread(), sleeper.cpus());
    let mut list = UndoList::default();
    let class = ThreadClass::of_thread(thread.tid).unwrap();
    list.add(Undo::Affinity { thread, affinity: Affinity::new(cpus.clone(), &cpus) });
    pin_thread(thread.tid, &[cpus.first().unwrap()]).unwrap();
    list.add(Undo::Class { thread, class });
    assert_eq!(list.known_threads(), BTreeSet::from([thread]));
    let undone = |list: &UndoList| list.undo_matching(|_, _| true).1.is_ok();
    assert!(undone(&list));
    assert_eq!((sleeper.cpus(), ThreadClass::of_thread(thread.tid)), (cpus, Some(class)));
    assert!(undone(&list), "to undo it twice is to undo it once");
}

#[test]
fn thread_with_a_reused_number_is_left_alone() {
    let sleeper = Sleeper::start();
    let now = sleeper.thread();
    let before = Thread { started: now.started - 1, ..now };
    let cpus = sleeper.cpus();
    let other: CpuSet = cpus.iter().skip(1).chain([cpus.first().unwrap()]).take(1).collect();
    let mut list = UndoList::default();
    list.add(Undo::Family { process: before });
    list.add(Undo::Affinity { thread: before, affinity: Affinity::new(other, &cpus) });
    list.add(Undo::Class { thread: before, class: ThreadClass::IDLE });
    list.undo_matching(|_, _| true).1.unwrap();
    assert!(now.is_alive());
    assert_eq!(sleeper.cpus(), cpus);
    assert_ne!(ThreadClass::of_thread(now.tid), Some(ThreadClass::IDLE));
}
