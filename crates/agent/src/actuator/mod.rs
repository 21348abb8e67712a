//! The actuator: carries out a policy's actions on containers and services, and undoes them.
//!
//! The CPUs of a container are the list of its cgroup, or the affinity of each of its threads if the cgroup has no
//! list. The freezer of its cgroup pauses it. A service is moved only if its owner's file allows it, thread by thread;
//! it is never stopped or signalled. The guardian is told of each change before it is made. A container that has
//! vanished is released.

mod container;
mod pinned;
mod tree;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::CpuAction;

use super::discover::{Container, NewBatchGroup};
pub use container::FoundGroups;
use container::{ContainerHandle, CpuControl, processes_of_cgroup};
use pinned::affinity_undos_in;
use sidelane_lanes::adopt::AdoptError;
use sidelane_rollback::claim::{ClaimError, Claimant, ThreadClaims};
use sidelane_rollback::cpu_mask::to_cpu_set;
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{ThreadOwner, Threads};
use tree::HeldTree;

/// Reason why the agent does not manage a container.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// Container without a process, or container that a runtime is still adding to its cgroups.
    #[error("it has no process yet, or is being put into its groups")]
    Incomplete,
    /// Container that must not be changed.
    #[error(transparent)]
    Refused(AdoptError),
    /// Error of another kind.
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<AdoptError> for TakeError {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Empty(_) | AdoptError::NoGroup(_) => Self::Incomplete,
            error => Self::Refused(error),
        }
    }
}

/// Containers and services that the agent manages, by slot, with the trees of cgroups.
pub struct Actuator {
    guardian: Guardian,
    trees: BTreeMap<PathBuf, HeldTree>,
    containers: BTreeMap<usize, ContainerHandle>,
    services: BTreeMap<usize, Placed>,
    /// Claims of the processes of placed services. No other process moves their threads.
    claims: ThreadClaims,
    /// CPUs of services that are to be placed, but whose threads another process moves now.
    awaited: BTreeMap<usize, CpuSet>,
    /// Whether batch must not run while the agent is stopped.
    lanes_are_held: bool,
    /// Uppermost cgroups of trees that stay managed even without a container, because new cgroups in them are batch.
    new_batch_roots: BTreeSet<PathBuf>,
}

/// Service that the agent has placed on CPUs, with its processes at the last check.
struct Placed {
    threads: Threads,
    pids: Vec<u32>,
}

/// Returns `owner` with only the processes that this agent has claimed.
fn retain_claimed(owner: ThreadOwner, claims: &ThreadClaims) -> ThreadOwner {
    ThreadOwner { pids: owner.pids.into_iter().filter(|pid| claims.has(*pid)).collect(), ..owner }
}

/// Returns the tree whose uppermost cgroup is `root`, and begins to manage the tree if necessary.
fn get_or_read_tree<'a>(
    trees: &'a mut BTreeMap<PathBuf, HeldTree>,
    root: &Path,
    guardian: &mut Guardian,
) -> Result<&'a mut HeldTree> {
    if let Some(other) = trees.get(root).filter(|tree| !tree.is_same_tree(root)) {
        let change_ids = other.change_ids();
        trees.remove(root);
        guardian.withdraw(change_ids)?;
    }
    match trees.entry(root.to_owned()) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => Ok(entry.insert(HeldTree::read(root, guardian)?)),
    }
}

/// Result of carrying out a policy's actions.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Actions that failed, each with its error.
    pub errors: Vec<(CpuAction, Error)>,
    /// Actions that have no effect now: they failed, or a cgroup above has other CPUs.
    pub ineffective: Vec<CpuAction>,
}

impl Outcome {
    fn add_failure(&mut self, action: CpuAction, error: Error) {
        self.ineffective.push(action);
        self.errors.push((action, error));
    }
}

/// Function that finds the threads of a service by its slot.
pub type FindService<'a> = &'a dyn Fn(usize) -> Option<ThreadOwner>;

impl Actuator {
    /// Makes an actuator that manages no container or service yet.
    pub fn new(guardian: Guardian, lanes_are_held: bool) -> Self {
        let (trees, containers, services, awaited, birthplaces) = Default::default();
        let claims = ThreadClaims::empty(Claimant::Agent);
        Self { guardian, trees, containers, services, claims, awaited, lanes_are_held, new_batch_roots: birthplaces }
    }

    /// Returns the guardian.
    pub fn guardian(&mut self) -> &mut Guardian {
        &mut self.guardian
    }

    /// Finds the cgroups of a container. The error is `TakeError::Incomplete` while a runtime may still be adding the
    /// container to its cgroups. If `has_waited` is true, an incomplete container is accepted.
    pub fn find_groups(
        &mut self,
        container: &Container,
        services: &BTreeSet<u32>,
        has_waited: bool,
    ) -> Result<FoundGroups, TakeError> {
        let found = FoundGroups::find(container, services).map_err(TakeError::from);
        if let Err(TakeError::Refused(_)) = &found {
            self.leave_alone(container)?;
        }
        let found = found?;
        if !has_waited && found.may_be_incomplete(container) {
            return Err(TakeError::Incomplete);
        }
        if found.cpuset.is_none() && self.is_tree_unmounted(&container.tree) {
            return Err(TakeError::Incomplete);
        }
        Ok(found)
    }

    /// Begins to manage a container. Its CPUs stay as they are until the policy decides. Returns the CPUs that it may
    /// be given.
    pub fn manage_container(&mut self, slot: usize, found: FoundGroups) -> Result<CpuSet, TakeError> {
        let (means, allowed) = match found.cpuset.clone() {
            Some((root, dir)) => {
                let allowed = self.add_container_to_tree(&root, &dir)?;
                (CpuControl::Cpuset { root, dir }, allowed)
            }
            None => {
                let threads = Threads::record(&processes_of_cgroup(&found.dir), &mut self.guardian)?;
                let allowed = threads.all_original_cpus().clone();
                (CpuControl::Threads(Box::new(threads)), allowed)
            }
        };
        let mut handle = ContainerHandle::new(found, means, allowed.clone());
        self.note_pinned_threads(&mut handle)?;
        if self.lanes_are_held {
            handle.register_freeze_permission(&mut self.guardian)?;
        }
        self.containers.insert(slot, handle);
        Ok(allowed)
    }

    /// Takes each list of CPUs that the container's owner writes as its bounds, and does not undo it.
    pub fn follow_owner(&mut self, slot: usize) {
        let Some(ContainerHandle { means: CpuControl::Cpuset { root, dir }, .. }) = self.containers.get(&slot) else {
            return;
        };
        self.trees.get_mut(root).into_iter().for_each(|tree| tree.follow_owner(dir));
    }

    /// Takes in which CPUs the owner of the followed containers gives them, by their cgroups, as far as it is known.
    pub fn take_owners_lists<'a>(&mut self, cpus: impl Fn(&Path) -> Option<&'a CpuSet>) -> Result<()> {
        let Self { trees, guardian, .. } = self;
        trees.values_mut().try_for_each(|tree| tree.take_owners_lists(&cpus, guardian))
    }

    /// Leaves a container unchanged: its list of CPUs, if it has one, stays as it was found.
    fn leave_alone(&mut self, container: &Container) -> Result<()> {
        for hierarchy in Hierarchy::all() {
            if let Some(tree) = self.trees.get_mut(&hierarchy.dir(&container.tree)) {
                tree.leave_alone(&container.dir(&hierarchy), &mut self.guardian)?;
            }
        }
        Ok(())
    }

    /// Returns whether the agent manages the CPU lists of this tree although the hierarchy of these lists is not
    /// mounted now. The lists still limit the CPUs of the tree's threads.
    fn is_tree_unmounted(&self, tree_path: &str) -> bool {
        let mounts: Vec<PathBuf> = Hierarchy::all().into_iter().map(|found| found.mount).collect();
        let held = self.trees.keys().filter(|root| root.ends_with(tree_path.trim_start_matches('/')));
        held.into_iter().any(|root| !mounts.iter().any(|mount| root.starts_with(mount)))
    }

    fn add_container_to_tree(&mut self, root: &Path, dir: &Path) -> Result<CpuSet> {
        let Self { trees, guardian, .. } = self;
        get_or_read_tree(trees, root, guardian)?.add_container(dir, guardian)
    }

    /// Begins to manage a container that contains the containers in the slots `part_slots`. It takes over the settings
    /// of these containers, and they are released. Returns the CPUs that the new container may be given.
    pub fn manage_enclosing_container(
        &mut self,
        slot: usize,
        container: &Container,
        part_slots: &[usize],
        services: &BTreeSet<u32>,
    ) -> Result<CpuSet, TakeError> {
        let found = self.find_groups(container, services, true)?;
        let allowed = self.manage_container(slot, found)?;
        let parts: Vec<ContainerHandle> = part_slots.iter().filter_map(|part| self.containers.remove(part)).collect();
        let Some(whole) = self.containers.get_mut(&slot) else { return Ok(allowed) };
        let guardian = &mut self.guardian;
        // The whole container is frozen before any part of it is thawed.
        if !parts.is_empty() && parts.iter().all(|part| part.paused) && whole.can_pause() {
            whole.pause(true, guardian)?;
        }
        for mut part in parts {
            match (&mut whole.means, &mut part.means) {
                (CpuControl::Cpuset { root, dir }, CpuControl::Cpuset { dir: below, .. }) => {
                    if let Some(tree) = self.trees.get_mut(root) {
                        tree.merge(below, dir);
                        tree.write_targets().map_err(Error::from)?;
                    }
                }
                (CpuControl::Threads(threads), CpuControl::Threads(others)) => threads.merge(others, guardian)?,
                (_, CpuControl::Cpuset { root, dir }) => {
                    self.trees.get_mut(root).map_or(Ok(()), |tree| tree.release_container(dir, guardian))?;
                }
                (_, CpuControl::Threads(threads)) => {
                    guardian.undo_and_withdraw(&threads.change_ids()).map_err(Error::from)?
                }
            }
            whole.pinned.append(&mut part.pinned);
            part.pause(false, guardian)?;
            guardian.withdraw(part.forget_freezer()).map_err(Error::from)?;
        }
        Ok(allowed)
    }

    /// Confines the uppermost cgroups of new batch, with all cgroups below that are no container, to the CPUs `cpus`;
    /// `None`: no confinement. The confinement of a cgroup ends when a container in it gets CPUs of its own. Returns
    /// the cgroups that could not be confined, with the reason.
    pub fn confine_new_batch(
        &mut self,
        new_batch_groups: &[NewBatchGroup],
        cpus: Option<&CpuSet>,
    ) -> Vec<(String, String)> {
        let (mut roots, mut failed) = (BTreeSet::new(), Vec::new());
        for place in new_batch_groups {
            match place.cpuset_dir() {
                Some(root) => match self.confine_new_batch_group(&root, place, cpus) {
                    Ok(()) => drop(roots.insert(root)),
                    Err(error) => failed.push((place.path.clone(), format!("{error:#}"))),
                },
                None if place.exists() => {
                    failed.push((place.path.clone(), "it has no list of CPUs (cpuset)".to_owned()))
                }
                None => {}
            }
        }
        let left = std::mem::replace(&mut self.new_batch_roots, roots);
        for root in left.difference(&self.new_batch_roots.clone()) {
            let done = self.trees.get_mut(root).map_or(Ok(()), |tree| {
                tree.confine_new_batch(BTreeSet::new(), None);
                tree.write_targets().map(drop).map_err(Error::from)
            });
            let done = done.and(self.release_unused_tree(root));
            failed.extend(done.err().map(|error| (root.display().to_string(), format!("{error:#}"))));
        }
        failed
    }

    fn confine_new_batch_group(
        &mut self,
        root: &Path,
        new_batch_group: &NewBatchGroup,
        cpus: Option<&CpuSet>,
    ) -> Result<()> {
        let Self { trees, guardian, new_batch_roots: birthplaces, .. } = self;
        let is_new = !birthplaces.contains(root);
        let tree = get_or_read_tree(trees, root, guardian)?;
        let spared = new_batch_group.spared.iter().filter_map(|path| new_batch_group.dir_below(root, path)).collect();
        if tree.confine_new_batch(spared, cpus.cloned()) || is_new {
            tree.restore_changed_lists(guardian)?;
        }
        Ok(())
    }

    /// Notes the threads of a container that have chosen CPUs of their own, if the kernel would forget the choice. The
    /// guardian restores these threads after the CPU lists of their cgroups, because a thread can only run on CPUs of
    /// its cgroup.
    fn note_pinned_threads(&mut self, handle: &mut ContainerHandle) -> Result<()> {
        let CpuControl::Cpuset { root, .. } = &handle.means else { return Ok(()) };
        handle.pinned = self.guardian.add(affinity_undos_in(&handle.dir))?;
        let tree = self.trees.get_mut(root).filter(|_| !handle.pinned.is_empty());
        tree.map_or(Ok(()), |tree| tree.move_undo_first(&mut self.guardian))
    }

    /// Carries out all actions in order. `find` returns the threads of a service.
    pub fn carry_out(&mut self, actions: impl Iterator<Item = CpuAction>, find: FindService<'_>) -> Outcome {
        let (mut outcome, mut touched) = (Outcome::default(), BTreeMap::new());
        for action in actions {
            if !matches!(action, CpuAction::Confine { .. }) {
                self.write_touched_trees(&mut touched, &mut outcome);
            }
            let done = match action {
                CpuAction::Confine { container, cpus } => {
                    self.confine(container, &to_cpu_set(&cpus), action, &mut touched)
                }
                CpuAction::Pause { container } => self.pause(container),
                CpuAction::Place { service, cpus } => self.place_service(service, &to_cpu_set(&cpus), find),
            };
            if let Err(error) = done {
                outcome.add_failure(action, error);
            }
        }
        self.write_touched_trees(&mut touched, &mut outcome);
        outcome
    }

    fn confine(
        &mut self,
        slot: usize,
        cpus: &CpuSet,
        action: CpuAction,
        touched: &mut BTreeMap<PathBuf, Vec<CpuAction>>,
    ) -> Result<()> {
        let Some(handle) = self.containers.get_mut(&slot) else { return Ok(()) };
        match &mut handle.means {
            CpuControl::Cpuset { root, dir } => {
                let mut tree = self.trees.get_mut(root);
                tree.iter_mut().for_each(|tree| tree.set_target(dir, cpus.clone()));
                if handle.paused {
                    // The CPU list is written before the container is resumed, so that the container never runs on its
                    // old CPUs.
                    tree.map_or(Ok(0), HeldTree::write_targets)?;
                    let has = handle.effective_cpus().unwrap_or_default();
                    ensure!(
                        has.is_subset(cpus),
                        "cannot resume the container on CPUs {cpus}: its cgroup has CPUs {has} instead; it stays \
                         paused until the cgroups above allow CPUs {cpus}"
                    );
                } else if tree.is_some() {
                    touched.entry(root.clone()).or_default().push(action);
                }
            }
            CpuControl::Threads(threads) => {
                threads.confine(|| processes_of_cgroup(&handle.dir), cpus, &mut self.guardian)?
            }
        }
        handle.pause(false, &mut self.guardian)
    }

    /// Writes the CPU lists of the trees in which containers were given CPUs, and reads the result back. The result may
    /// differ, because cgroup version 2 accepts any list: a cgroup that may use no CPU of its list uses the CPUs of the
    /// cgroup above.
    fn write_touched_trees(&mut self, touched: &mut BTreeMap<PathBuf, Vec<CpuAction>>, outcome: &mut Outcome) {
        for (root, actions) in std::mem::take(touched) {
            let done = self.trees.get_mut(&root).map_or(Ok(0), HeldTree::write_targets);
            if let Some((error, action)) = done.err().zip(actions.first()) {
                outcome.errors.push((*action, error.into()));
            }
            outcome.ineffective.extend(actions.into_iter().filter(|action| !self.is_in_effect(*action)));
        }
    }

    /// Returns whether a confined container has only the CPUs of the action, as far as its cgroup reports.
    fn is_in_effect(&self, action: CpuAction) -> bool {
        let CpuAction::Confine { container, cpus } = action else { return true };
        self.effective_cpus(container).is_none_or(|has| has.is_subset(&to_cpu_set(&cpus)))
    }

    /// Returns the CPUs that a container has in effect; `None` if its cgroup has no list of CPUs.
    pub fn effective_cpus(&self, slot: usize) -> Option<CpuSet> {
        self.containers.get(&slot)?.effective_cpus()
    }

    /// Returns the containers that may be given other CPUs than last reported, because a cgroup above has changed. Each
    /// item is the slot of a container and its new CPUs. Each change is returned once.
    pub fn take_changed_allowed_cpus(&mut self) -> Vec<(usize, CpuSet)> {
        let mut told = Vec::new();
        for (place, handle) in &mut self.containers {
            let CpuControl::Cpuset { root, dir } = &handle.means else { continue };
            let Some(tree) = self.trees.get_mut(root).filter(|_| dir.exists()) else { continue };
            let allowed = tree.allowed_cpus(dir);
            if !allowed.is_empty() && allowed != handle.allowed {
                handle.allowed = allowed.clone();
                told.push((*place, allowed));
            }
        }
        told
    }

    fn pause(&mut self, slot: usize) -> Result<()> {
        let Some(handle) = self.containers.get_mut(&slot) else { return Ok(()) };
        handle.pause(true, &mut self.guardian)
    }

    fn place_service(&mut self, slot: usize, cpus: &CpuSet, find: FindService<'_>) -> Result<()> {
        let Some(whose) = find(slot) else { return Ok(()) };
        self.claim_processes(slot, &whose, cpus)?;
        let Self { services, guardian, claims, .. } = self;
        let placed = match services.entry(slot) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let threads = Threads::record(&whose, guardian)?;
                entry.insert(Placed { threads, pids: whose.pids.clone() })
            }
        };
        placed.pids = whose.pids.clone();
        let now = || retain_claimed(find(slot).unwrap_or_else(|| whose.clone()), claims);
        let moved = placed.threads.confine(now, cpus, guardian);
        moved.with_context(|| format!("cannot place the service on CPUs {cpus}"))
    }

    /// Claims the processes of a service that is placed for the first time: all of them, or none.
    fn claim_processes(&mut self, slot: usize, owner: &ThreadOwner, cpus: &CpuSet) -> Result<()> {
        if self.services.contains_key(&slot) {
            return Ok(());
        }
        for pid in &owner.pids {
            if let Some(refused) = self.claims.add_process(*pid, &mut self.guardian)? {
                self.awaited.insert(slot, cpus.clone());
                self.give_up_claims()?;
                return Err(refused.into());
            }
        }
        self.awaited.remove(&slot);
        Ok(())
    }

    /// Gives up the claims of processes that belong to no placed service.
    fn give_up_claims(&mut self) -> Result<()> {
        let pids: Vec<u32> = self.services.values().flat_map(|placed| placed.pids.iter().copied()).collect();
        self.claims.retain_processes(&pids, &mut self.guardian)
    }

    /// Places services that had to wait because other processes moved their threads, if those processes have released
    /// the threads. Returns the slots of these services.
    pub fn place_waiting_services(&mut self, find: FindService<'_>) -> Result<Vec<usize>> {
        let mut placed = Vec::new();
        for (place, cpus) in self.awaited.clone() {
            match self.place_service(place, &cpus, find) {
                Ok(()) if self.is_placed(place) => placed.push(place),
                Err(error) if !error.is::<ClaimError>() => return Err(error),
                _ => {}
            }
        }
        Ok(placed)
    }

    /// Returns whether the service is placed. Then no other process moves its threads.
    pub fn is_placed(&self, slot: usize) -> bool {
        self.services.contains_key(&slot)
    }

    /// Places new processes of placed services, and updates the list of processes of each.
    pub fn place_new_processes(&mut self, find: FindService<'_>) -> Result<()> {
        let (mut changed, mut refused) = (false, None);
        for (place, placed) in &mut self.services {
            let Some(whose) = find(*place).filter(|whose| whose.pids != placed.pids) else { continue };
            changed = true;
            placed.pids = whose.pids.clone();
            for pid in &whose.pids {
                refused = self.claims.add_process(*pid, &mut self.guardian)?.or(refused);
            }
            let whose = retain_claimed(whose, &self.claims);
            placed.threads.reconfine_strays(|| whose.clone(), &mut self.guardian).context(
                "cannot place new processes of the \
                                                                               service",
            )?;
            placed.threads.set_owner(&whose, &mut self.guardian)?;
        }
        if changed {
            self.give_up_claims()?;
        }
        refused.map_or(Ok(()), |refused| Err(Error::from(refused).context("cannot place new processes of the service")))
    }

    /// Replaces the guardian by a new guardian, which holds `locks` and the locks of the actuator's claims.
    pub fn replace_guardian(&mut self, locks: Vec<OwnedFd>) -> Result<()> {
        self.claims.replace_guardian(locks, &mut self.guardian)
    }

    /// Returns whether a new guardian is needed: the present guardian has ended, or does not hold the locks of all
    /// claims.
    pub fn need_a_guardian(&mut self) -> bool {
        self.claims.has_new_claims() || !self.guardian.is_alive()
    }

    /// Thaws containers that may run, if the guardian has frozen them while the agent was stopped. Returns whether the
    /// guardian had frozen any.
    pub fn thaw_after_stop(&mut self) -> Result<bool> {
        let frozen = self.guardian.take_frozen_changes();
        if frozen.is_empty() {
            return Ok(false);
        }
        let Self { containers, guardian, .. } = self;
        containers.values_mut().try_for_each(|handle| handle.note_guardian_freeze(&frozen, guardian))?;
        guardian.confirm_frozen_changes()?;
        containers.values_mut().try_for_each(|handle| handle.apply_pause_state(guardian).map(drop))?;
        Ok(true)
    }

    /// Returns whether the container can be paused.
    pub fn can_pause(&self, slot: usize) -> bool {
        self.containers.get(&slot).is_some_and(ContainerHandle::can_pause)
    }

    /// Returns whether the pause of all paused containers has taken effect.
    pub fn are_pauses_effective(&self) -> bool {
        self.containers.values().all(ContainerHandle::is_pause_effective)
    }

    /// Returns whether the container is paused.
    pub fn is_paused(&self, slot: usize) -> bool {
        self.containers.get(&slot).is_some_and(|handle| handle.paused)
    }

    /// Returns whether any process of the container is alive. A container without a live process is ending, and it is
    /// unknown whether such a container can be paused.
    pub fn has_live_process(&self, slot: usize) -> bool {
        self.containers.get(&slot).is_some_and(|handle| !processes_of_cgroup(&handle.dir).pids.is_empty())
    }

    /// Returns whether the container's cgroup has a list of CPUs. Otherwise its threads are moved one by one.
    pub fn has_cpuset(&self, slot: usize) -> bool {
        self.containers.get(&slot).is_some_and(|handle| matches!(handle.means, CpuControl::Cpuset { .. }))
    }

    /// Checks all settings, and restores those that another process has changed or that failed before. Returns the
    /// number of restored settings, and the errors.
    pub fn restore_changed_settings(&mut self) -> (usize, Vec<Error>) {
        let Self { trees, containers, guardian, lanes_are_held, .. } = self;
        let held = trees.values_mut().filter(|tree| !tree.has_original_settings());
        let mut outcomes: Vec<Result<usize>> = held.map(|tree| tree.restore_changed_lists(guardian)).collect();
        let hierarchies =
            if containers.values().all(ContainerHandle::can_pause) { Vec::new() } else { Hierarchy::all() };
        for handle in containers.values_mut().filter(|handle| !handle.can_pause()) {
            outcomes.push(handle.find_freezer(&hierarchies, lanes_are_held.then_some(&mut *guardian)).map(|()| 0));
        }
        outcomes.extend(containers.values_mut().map(|handle| handle.restore_changed_settings(guardian)));
        let (done, failed): (Vec<Result<usize>>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        (done.into_iter().flatten().sum(), failed.into_iter().filter_map(Result::err).collect())
    }

    /// Restores a container's settings as they were found, as far as the container still exists.
    pub fn release_container(&mut self, slot: usize) -> Result<()> {
        let Some(mut handle) = self.containers.remove(&slot) else { return Ok(()) };
        let is_another = handle.is_cgroup_replaced();
        if is_another {
            self.guardian.withdraw(handle.forget_freezer())?;
        }
        let change_ids = handle.change_ids();
        // The container is resumed first, so that it runs even if a later step fails.
        let goes_on = handle.pause(false, &mut self.guardian);
        if let CpuControl::Cpuset { root, dir } = &handle.means {
            let let_go = self.trees.get_mut(root).map_or(Ok(()), |tree| match is_another {
                true => tree.forget_cgroup(dir, &mut self.guardian),
                false => tree.release_container(dir, &mut self.guardian),
            });
            self.release_unused_tree(root)?;
            let_go?;
        }
        goes_on.and(Ok(self.guardian.undo_and_withdraw(&change_ids)?))
    }

    /// Restores a tree that no longer has any container.
    fn release_unused_tree(&mut self, root: &PathBuf) -> Result<()> {
        let is_used = self
            .containers
            .values()
            .any(|handle| matches!(&handle.means, CpuControl::Cpuset { root: other, .. } if other == root))
            || self.new_batch_roots.contains(root);
        match self.trees.get(root) {
            // A tree whose hierarchy is not mounted now may appear again, so its original settings are not forgotten.
            Some(tree) if !is_used && root.exists() => {
                let change_ids = tree.change_ids();
                self.trees.remove(root);
                Ok(self.guardian.undo_and_withdraw(&change_ids)?)
            }
            _ => Ok(()),
        }
    }

    /// Gives a placed service its original CPUs back.
    pub fn release_service(&mut self, slot: usize) -> Result<()> {
        self.awaited.remove(&slot);
        let Some(placed) = self.services.remove(&slot) else { return Ok(()) };
        let undone = self.guardian.undo_and_withdraw(&placed.threads.change_ids());
        self.give_up_claims().and(Ok(undone?))
    }

    /// Undoes all changes. The guardian stays, with the claims.
    pub fn undo_all_changes(&mut self) -> Result<()> {
        self.guardian.undo_all().context(
            "cannot undo all changes to the machine; the guardian process tries the rest again when the agent has \
             ended; check CPU affinities (taskset -a -p PID) and cgroups of services and batch",
        )
    }

    /// Ends the guardian. It undoes the changes that are still on its list.
    pub fn dismiss_guardian(self) -> Result<()> {
        self.guardian.dismiss().context(
            "cannot wait for the end of the guardian process, which undoes the remaining changes to the machine; check \
             CPU affinities (taskset -a -p PID) and cgroups of services and batch",
        )
    }
}
