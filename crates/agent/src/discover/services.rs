//! Services that come and go: found by cgroup, or by process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sidelane_host::service::Service;

use super::Finder;
use super::found::{Changes, FoundService, GroupId, ServiceId};
use super::groups::Member;
use super::pods::working_processes;
use super::processes::SearchResult;
use super::roles::Role;
use crate::config::{Match, PathMatch, PodClass, ServiceSettings};

/// Name, settings and rule of a service that is a cgroup.
struct IdentifiedService {
    name: String,
    settings: ServiceSettings,
    rule: Option<usize>,
}

// Services that are cgroups.
impl Finder {
    /// Compares the cgroups that are services with those of the last scan. Returns whether all of them have processes.
    pub(super) fn update_services(&mut self, changes: &mut Changes) -> bool {
        let members: Vec<Member> = self.groups.service_groups().collect();
        let (mut there, mut newcomers) = (BTreeSet::new(), Vec::new());
        for member in members {
            let Some(known) = self.identify_service(&member) else { continue };
            match self.service_id_of_group(&member) {
                Some(id) => {
                    there.insert(id);
                    self.update_service(id, known, changes);
                }
                None => newcomers.push((member, known)),
            }
        }
        // Services that are gone are removed before new ones are added, because their names are free again.
        self.remove_missing_services(&there, changes);
        newcomers.into_iter().fold(true, |all, (member, known)| all & self.add_group_service(&member, known, changes))
    }

    /// Removes services whose cgroups do not exist any more.
    fn remove_missing_services(&mut self, present: &BTreeSet<ServiceId>, changes: &mut Changes) {
        let of_groups = self.services.iter().filter(|(_, service)| service.group.is_some());
        let gone: Vec<ServiceId> = of_groups.map(|(id, _)| *id).filter(|id| !present.contains(id)).collect();
        gone.into_iter().for_each(|id| self.remove_service(id, changes));
    }

    /// Returns the name and settings of a cgroup's service; `None` if the cgroup is no service.
    fn identify_service(&mut self, member: &Member) -> Option<IdentifiedService> {
        match member.role {
            Role::Service(rule) => Some(self.service_by_rule(rule, &member.path.to_string_lossy())),
            Role::Pod(class) => self.identify_pod(&member.path, class),
            _ => None,
        }
    }

    /// Returns whether a pod is a service, by a rule or by its class.
    pub(super) fn is_service_pod(&mut self, path: &Path, class: PodClass) -> bool {
        self.identify_pod(path, class).is_some()
    }

    fn identify_pod(&mut self, path: &Path, class: PodClass) -> Option<IdentifiedService> {
        if self.is_excluded(path) || self.pods.lanes(path).is_some() {
            return None;
        }
        let name = self.pods.display_name(path);
        let is_named =
            |matches: &Match| matches!(matches, Match::Pod(glob) if glob.match_path(&name) == PathMatch::Matches);
        if let Some(rule) = self.config.services.iter().position(|rule| is_named(&rule.matches)) {
            return Some(self.service_by_rule(rule, &name));
        }
        let kubernetes = self.config.kubernetes.as_ref().filter(|_| class != PodClass::BestEffort)?;
        let settings = kubernetes.settings.clone();
        let slo = self.pods.objective(path).or(settings.slo);
        Some(IdentifiedService { name, settings: ServiceSettings { slo, ..settings }, rule: None })
    }

    /// Returns whether the file excludes a pod.
    pub(super) fn is_excluded(&mut self, path: &Path) -> bool {
        let Some(name) = self.pods.name(path) else { return false };
        let exclude = self.config.kubernetes.iter().flat_map(|kubernetes| &kubernetes.exclude);
        exclude.into_iter().any(|glob| glob.match_path(name) == PathMatch::Matches)
    }

    /// Returns the name and settings of a service by a `[[service]]`. If the rule has a pattern, the name contains the
    /// last part of the path.
    fn service_by_rule(&self, rule_index: usize, path: &str) -> IdentifiedService {
        let rule = &self.config.services[rule_index];
        let is_pattern = matches!(&rule.matches, Match::Cgroup(glob) | Match::Pod(glob) if !glob.is_plain_path());
        let last = path.rsplit('/').next().unwrap_or(path);
        let name = if is_pattern { format!("{}:{last}", rule.name) } else { rule.name.clone() };
        IdentifiedService { name, settings: rule.settings.clone(), rule: Some(rule_index) }
    }

    fn service_id_of_group(&self, member: &Member) -> Option<ServiceId> {
        let at = |service: &&FoundService| service.group == Some(GroupId::from_member(member));
        self.services.values().find(at).map(|service| service.id)
    }

    /// Takes over name, settings and rule of a service. Another objective by annotation is a change.
    fn update_service(&mut self, id: ServiceId, known: IdentifiedService, changes: &mut Changes) {
        let Some(service) = self.services.get_mut(&id) else { return };
        if service.group.as_ref().is_none_or(|group| service.name != name_with_path(&known.name, group)) {
            service.name = known.name;
        }
        let is_annotated = known.rule.is_none() && service.rule.is_none() && known.settings.slo != service.settings.slo;
        (service.settings, service.rule) = (known.settings, known.rule);
        if is_annotated {
            changes.services_grew.push(service.clone());
        }
    }

    /// Adds a cgroup as a service, if it has processes that work. Returns whether it has.
    fn add_group_service(&mut self, member: &Member, known: IdentifiedService, changes: &mut Changes) -> bool {
        let all = self.groups.processes(&member.path);
        let pids = match member.role {
            Role::Pod(_) => working_processes(all, |pid| self.process_name(pid)),
            _ => all.into_iter().collect(),
        };
        if pids.is_empty() {
            return false;
        }
        self.remove_from_searches(&pids, &known.name, changes);
        let service = Service { pids, group: self.groups.group(&member.path), ..Service::default() };
        self.add_service(known, service, Some(GroupId::from_member(member)), changes);
        true
    }

    /// Removes the processes of a cgroup that is a service from searches that found them before.
    fn remove_from_searches(&mut self, pids: &BTreeSet<u32>, name: &str, changes: &mut Changes) {
        for number in 0..self.searches.len() {
            let found = self.searches[number].id.and_then(|id| self.services.get(&id));
            if found.is_some_and(|found| !found.service.pids.is_disjoint(pids)) {
                self.forget_search_service(number, changes);
                self.taken.insert(self.searches[number].rule, name.to_owned());
            }
        }
    }
}

// Services that are processes.
impl Finder {
    /// Searches all processes for services.
    pub(super) fn search(&mut self, changes: &mut Changes) {
        if self.searches.is_empty() {
            return;
        }
        self.listing.read(&self.searches);
        for number in 0..self.searches.len() {
            let mut search = self.searches[number].clone();
            let found = search.run(&self.listing, &|pid| self.batch_group_of_process(pid));
            self.searches[number] = search;
            self.apply_search_result(number, found, changes);
        }
    }

    fn apply_search_result(&mut self, search_index: usize, found: SearchResult, changes: &mut Changes) {
        let id = self.searches[search_index].id;
        match (found, id) {
            (SearchResult::Same, _) => {}
            (SearchResult::Grew(service), Some(id)) => self.add_processes(id, service, changes),
            (SearchResult::Came(service) | SearchResult::Grew(service), _) => {
                self.forget_search_service(search_index, changes);
                self.add_search_result(search_index, service, changes);
            }
            (SearchResult::Gone, _) => self.forget_search_service(search_index, changes),
        }
        self.rename_search_service(search_index, changes);
    }

    /// Adds the result of a search as a service, unless another service has its processes.
    fn add_search_result(&mut self, search_index: usize, service: Service, changes: &mut Changes) {
        let rule = self.searches[search_index].rule;
        if let Some(other) = self.service_sharing_processes(&service) {
            self.taken.insert(rule, other);
            // The processes belong to this service when the other service ends, so the search has to find them again
            // then.
            self.searches[search_index].forget_service();
            return;
        }
        self.taken.remove(&rule);
        let known = self.service_by_rule(rule, "");
        self.searches[search_index].id = Some(self.add_service(known, service, None, changes));
    }

    /// Returns the name of the service that has one of these processes.
    fn service_sharing_processes(&self, service: &Service) -> Option<String> {
        let groups: Vec<PathBuf> = service.pids.iter().filter_map(|pid| self.groups.group_of_process(*pid)).collect();
        let has = |other: &&FoundService| match &other.group {
            Some(group) => groups.iter().any(|path| path.starts_with(&group.path)),
            None => !other.service.pids.is_disjoint(&service.pids),
        };
        self.services.values().find(has).map(|other| other.name.clone())
    }

    fn add_processes(&mut self, id: ServiceId, service: Service, changes: &mut Changes) {
        let Some(found) = self.services.get_mut(&id) else { return };
        found.service.pids.extend(&service.pids);
        found.service.pids.retain(|pid| sidelane_host::procfs::is_alive(*pid));
        changes.services_grew.push(found.clone());
    }

    fn forget_search_service(&mut self, search_index: usize, changes: &mut Changes) {
        if let Some(id) = self.searches[search_index].id.take() {
            self.remove_service(id, changes);
        }
    }

    /// Renames the service of a search by the present file.
    fn rename_search_service(&mut self, search_index: usize, changes: &mut Changes) {
        let Some(id) = self.searches[search_index].id else { return };
        let known = self.service_by_rule(self.searches[search_index].rule, "");
        self.update_service(id, known, changes);
    }
}

// Services that are cgroups or processes.
impl Finder {
    fn add_service(
        &mut self,
        known: IdentifiedService,
        service: Service,
        group: Option<GroupId>,
        changes: &mut Changes,
    ) -> ServiceId {
        let id = self.new_id();
        let name = self.unused_name(known.name, group.as_ref());
        let found = FoundService { id, name, settings: known.settings, rule: known.rule, service, group };
        changes.services_came.push(found.clone());
        self.services.insert(id, found);
        id
    }

    /// Returns a name that is unused: the whole path is added if another service has this name.
    fn unused_name(&self, name: String, group: Option<&GroupId>) -> String {
        let is_used = self.services.values().any(|service| service.name == name);
        match group.filter(|_| is_used) {
            Some(group) => name_with_path(&name, group),
            None => name,
        }
    }

    fn remove_service(&mut self, id: ServiceId, changes: &mut Changes) {
        self.services.remove(&id);
        changes.services_gone.push(id);
    }
}

/// Returns the name of a service with the path of its cgroup, to distinguish it from a service whose path has the same
/// last part.
fn name_with_path(name: &str, group: &GroupId) -> String {
    format!("{name} {}", group.path)
}
