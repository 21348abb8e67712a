//! Roles of cgroups by the rules of the file.

use std::collections::BTreeSet;
use std::path::Path;

use super::pods::pod_uid;
use crate::config::{Config, Glob, Match, PathMatch, PodClass};

/// Role of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// No role: neither the cgroup nor any cgroup below it has one.
    None,
    /// No role of the cgroup, but cgroups below it may have one.
    Leads,
    /// Service by the `[[service]]` with this index, with all cgroups below it.
    Service(usize),
    /// Uppermost cgroup of a tree by the `[[batch]]` with this index.
    Tree(usize),
    /// Pod of this class. A pod of the class BestEffort is the uppermost cgroup of a tree.
    Pod(PodClass),
    /// Cgroup in a tree, below the uppermost one.
    InTree,
}

impl Role {
    /// Returns whether the cgroups below a cgroup of this role can have a role.
    pub(super) fn can_contain_roles(self) -> bool {
        self == Self::Leads || self.is_in_tree()
    }

    /// Returns whether a cgroup of this role is the top of a tree, or lies in one.
    pub(super) fn is_in_tree(self) -> bool {
        matches!(self, Self::Tree(_) | Self::InTree | Self::Pod(PodClass::BestEffort))
    }
}

enum Pattern {
    Glob(Glob),
    /// Name of a unit of this machine's systemd. The cgroup of a unit lies only in slices.
    Unit(String),
}

/// Patterns of all rules of a file, with their roles.
pub(super) struct Roles {
    patterns: Vec<(Pattern, Role)>,
    /// Ids of the pods that have batch lanes. They are batch, as pods of the class BestEffort.
    pub(super) lane_pods: BTreeSet<String>,
}

impl Roles {
    pub(super) fn from_config(config: &Config, lane_pods: BTreeSet<String>) -> Self {
        let services = config.services.iter().enumerate().filter_map(|(number, rule)| {
            let role = Role::Service(number);
            match &rule.matches {
                Match::Cgroup(glob) => Some((Pattern::Glob(glob.clone()), role)),
                Match::Unit(unit) => Some((Pattern::Unit(unit.clone()), role)),
                _ => None,
            }
        });
        let trees = config.batch.iter().enumerate();
        let trees = trees.map(|(number, tree)| (Pattern::Glob(tree.cgroup.clone()), Role::Tree(number)));
        let pods = config.kubernetes.iter().flat_map(|kubernetes| kubernetes.pods());
        let pods = pods.map(|(class, glob)| (Pattern::Glob(glob), Role::Pod(class)));
        Self { patterns: services.chain(trees).chain(pods).collect(), lane_pods }
    }

    /// Returns the role of the cgroup `path`. The cgroup above it has the role `parent_role`.
    pub(super) fn role(&self, path: &str, parent_role: Role) -> Role {
        match parent_role {
            Role::Leads => {}
            above if above.is_in_tree() => return Role::InTree,
            _ => return Role::None,
        }
        let fits = self.patterns.iter().map(|(pattern, role)| (pattern.match_path(path), *role));
        match fits.max_by_key(|(fit, _)| *fit) {
            Some((PathMatch::Matches, Role::Pod(_))) if self.is_lane_pod(path) => Role::Pod(PodClass::BestEffort),
            Some((PathMatch::Matches, role)) => role,
            Some((PathMatch::Leads, _)) => Role::Leads,
            _ => Role::None,
        }
    }
}

impl Roles {
    fn is_lane_pod(&self, path: &str) -> bool {
        !self.lane_pods.is_empty() && pod_uid(Path::new(path)).is_some_and(|uid| self.lane_pods.contains(&uid))
    }
}

impl Pattern {
    fn match_path(&self, path: &str) -> PathMatch {
        match self {
            Self::Glob(glob) => glob.match_path(path),
            Self::Unit(unit) => {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                let is_slice = |part: &str| part.is_empty() || part.ends_with(".slice");
                match above.split('/').all(is_slice) {
                    // systemd puts a `_` before a name that would be taken for a kernel file.
                    true if name.strip_prefix('_').unwrap_or(name) == unit => PathMatch::Matches,
                    true if is_slice(name) => PathMatch::Leads,
                    _ => PathMatch::No,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_roles(text: &str) -> Roles {
        Roles::from_config(&Config::parse("a.toml", text).expect("it can be read"), BTreeSet::new())
    }

    #[test]
    fn unit_is_found_only_in_slices() {
        let roles = parse_roles("kubernetes = true\n[[service]]\nname = \"redis\"\nunit = \"redis@1\"\n");
        let role = |path: &str| roles.role(path, Role::Leads);
        let found = Role::Service(0);
        assert_eq!(role("/system.slice/system-redis.slice/redis@1.service"), found);
        assert_eq!(role("/redis@1.service"), found);
        assert_eq!(role("/system.slice"), Role::Leads);
        assert_eq!(role("/user.slice/user@0.service/redis@1.service"), Role::None);
        assert_eq!(role("/system.slice/redis@2.service"), Role::None);
    }

    #[test]
    fn groups_below_a_tree_belong_to_it() {
        let roles = parse_roles("[[service]]\nname = \"a\"\nport = 1\n[[batch]]\ncgroup = \"/batch/*\"\n");
        let tree = Role::Tree(0);
        assert_eq!(roles.role("/batch", Role::Leads), Role::Leads);
        assert_eq!(roles.role("/batch/a", Role::Leads), tree);
        assert_eq!(roles.role("/batch/a/b", tree), Role::InTree);
    }
}
