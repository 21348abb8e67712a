//! Owners: every CPU, cgroup and service that the agent changes has one part of Sidelane that may change it.
//!
//! Within the agent, owners are in a table. Between processes, claims are used: an agent claims each CPU that it may
//! give to batch. It leaves CPUs alone that a `sidelane run` has claimed before, for batch or for requests; see
//! [`sidelane_rollback::claim`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::is_alive;
use thiserror::Error;

use sidelane_rollback::Undo;
use sidelane_rollback::claim::{Claim, ClaimError};

/// Longest time for which a guardian holds the claims, while it undoes the changes of a killed agent.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Thing that can have an owner: a CPU, a cgroup or a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// CPU that batch may be given.
    Cpu(u32),
    /// Cgroup of batch, by the kernel's path.
    Group(String),
    /// Service, by its name.
    Service(String),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Group(path) => write!(f, "the group {path}"),
            Self::Service(name) => write!(f, "the service {name}"),
        }
    }
}

/// Owner of a thing: the only part of Sidelane that may change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Policy that gives CPUs to batch.
    Policy,
    /// Gate, which decides when batch may use the CPU as a lane.
    Lanes,
    /// Another Sidelane process, by its description.
    Run(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("the policy"),
            Self::Lanes => f.write_str("the lane gate"),
            Self::Run(process) => write!(f, "sidelane run (process {process})"),
        }
    }
}

/// Error for a thing that has another owner.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{thing} is managed by {owner} already")]
pub struct OwnedElsewhere {
    /// CPU, cgroup or service that was requested.
    pub thing: Resource,
    /// Owner of the thing.
    pub owner: Owner,
}

/// Table of owners, with the claims of the CPUs.
#[derive(Debug)]
pub struct Owners {
    table: BTreeMap<Resource, Owner>,
    /// CPUs of the agent with their claims; `None` if it claims no CPUs.
    claims: BTreeMap<u32, Option<Claim>>,
    takes_claims: bool,
}

impl Owners {
    /// Makes an empty table. An agent that changes nothing takes no claims, so others may lend the CPUs.
    pub fn new(takes_claims: bool) -> Self {
        Self { table: BTreeMap::new(), claims: BTreeMap::new(), takes_claims }
    }

    /// Gives the thing to this owner.
    ///
    /// # Errors
    /// If the thing has another owner.
    pub fn assign(&mut self, resource: Resource, owner: Owner) -> Result<(), OwnedElsewhere> {
        match self.table.get(&resource) {
            Some(other) if *other != owner => Err(OwnedElsewhere { thing: resource, owner: other.clone() }),
            _ => {
                self.table.insert(resource, owner);
                Ok(())
            }
        }
    }

    /// Passes the thing from its owner to another one.
    pub fn change_owner(&mut self, resource: &Resource, from: &Owner, to: Owner) -> Result<(), OwnedElsewhere> {
        match self.table.get_mut(resource) {
            Some(owner) if owner == from => *owner = to,
            Some(owner) => return Err(OwnedElsewhere { thing: resource.clone(), owner: owner.clone() }),
            None => drop(self.table.insert(resource.clone(), to)),
        }
        Ok(())
    }

    /// Frees the thing, so that it has no owner.
    pub fn free(&mut self, resource: &Resource) {
        self.table.remove(resource);
    }

    /// Returns the owner of the thing; `None` if it has none.
    pub fn owner_of(&self, resource: &Resource) -> Option<&Owner> {
        self.table.get(resource)
    }

    /// Returns all things with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, &Owner)> {
        self.table.iter()
    }

    /// Returns the CPUs that the agent has claimed, or all that it uses if it claims none.
    pub fn claimed_cpus(&self) -> CpuSet {
        self.claims.keys().copied().collect()
    }

    /// Claims the CPUs of `cpus` that are not claimed yet, and records the owner of each CPU that another process has
    /// claimed. Returns the undo entries of new claims, which are to be announced when the guardian knows them.
    pub fn claim(&mut self, cpus: &CpuSet) -> Result<Vec<Undo>, ClaimError> {
        let mut new = Vec::new();
        for cpu in cpus.iter().filter(|cpu| !self.claims.contains_key(cpu)).collect::<Vec<_>>() {
            if !self.takes_claims {
                self.claims.insert(cpu, None);
                continue;
            }
            match Claim::take_cpu_for_agent(cpu) {
                Ok(claim) => {
                    new.push(claim.undo());
                    self.claims.insert(cpu, Some(claim));
                    self.table.insert(Resource::Cpu(cpu), Owner::Policy);
                }
                Err(ClaimError::Taken { owner, .. } | ClaimError::Serves { owner, .. }) => {
                    self.table.insert(Resource::Cpu(cpu), Owner::Run(owner));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(new)
    }

    /// Returns the undo entries of the claims of these CPUs.
    pub fn undo_entries(&self, cpus: &CpuSet) -> Vec<Undo> {
        let of_cpus = self.claims.iter().filter(|(cpu, _)| cpus.contains(**cpu));
        of_cpus.filter_map(|(_, claim)| claim.as_ref().map(Claim::undo)).collect()
    }

    /// Announces the claims, except those of CPUs that a `sidelane run` has claimed since.
    pub fn announce_claims(&mut self) -> Result<(), ClaimError> {
        for cpu in self.claimed_cpus().iter() {
            match self.claims[&cpu].as_ref().map_or(Ok(()), Claim::announce) {
                Err(ClaimError::Taken { owner, .. } | ClaimError::Serves { owner, .. }) => {
                    self.claims.remove(&cpu);
                    self.table.insert(Resource::Cpu(cpu), Owner::Run(owner));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Returns duplicates of the descriptors of all claims, for the guardian to hold.
    pub fn duplicate_claim_fds(&self) -> io::Result<Vec<OwnedFd>> {
        self.claims.values().flatten().map(Claim::duplicate_lock).collect()
    }
}

/// Claims the role of this machine's agent. If the last agent was killed, this waits until its guardian has finished.
pub fn claim_agent_role() -> Result<Claim, ClaimError> {
    let deadline = Instant::now() + GUARDIAN_TIMEOUT;
    loop {
        match Claim::take_agent_role() {
            Err(ClaimError::TwoAgents { owner }) if has_ended(&owner) && Instant::now() < deadline => {
                std::thread::sleep(LOOK_EVERY);
            }
            other => return other,
        }
    }
}

fn has_ended(owner: &str) -> bool {
    owner.parse().is_ok_and(|pid| !is_alive(pid))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_owner() -> impl Strategy<Value = Owner> {
        prop_oneof![Just(Owner::Policy), Just(Owner::Lanes), Just(Owner::Run("7".into()))]
    }

    fn any_resource() -> impl Strategy<Value = Resource> {
        prop_oneof![
            (0..4u32).prop_map(Resource::Cpu),
            "/[ab]".prop_map(Resource::Group),
            "[ab]".prop_map(Resource::Service)
        ]
    }

    proptest! {
        /// A thing keeps its owner until it is freed or passed on, whatever the order of requests.
        #[test]
        fn a_resource_has_one_owner(asked in prop::collection::vec((any_resource(), any_owner(), any::<bool>()), 1..100)) {
            let mut table = Owners::new(true);
            for (thing, owner, frees) in asked {
                let before = table.owner_of(&thing).cloned();
                let taken = table.assign(thing.clone(), owner.clone());
                match before.clone().filter(|other| *other != owner) {
                    Some(other) => {
                        prop_assert_eq!(taken, Err(OwnedElsewhere { thing: thing.clone(), owner: other.clone() }));
                        prop_assert_eq!(table.owner_of(&thing), Some(&other));
                    }
                    None => prop_assert_eq!(table.owner_of(&thing), Some(&owner)),
                }
                if frees && before == Some(owner) {
                    table.free(&thing);
                    prop_assert_eq!(table.owner_of(&thing), None);
                }
            }
        }
    }

    #[test]
    fn only_the_owner_can_be_replaced() {
        let mut table = Owners::new(true);
        table.assign(Resource::Cpu(1), Owner::Policy).unwrap();
        table.change_owner(&Resource::Cpu(1), &Owner::Policy, Owner::Lanes).unwrap();
        let error = table.change_owner(&Resource::Cpu(1), &Owner::Policy, Owner::Run("7".into())).unwrap_err();
        assert_eq!(error.to_string(), "CPU 1 is managed by the lane gate already");
    }
}
