//! The cgroups that a kubelet makes: which patterns are pods, and of which class.
//!
//! With the driver `cgroupfs` a pod is `kubepods/burstable/pod<uid>`. With `systemd` each part has the names of all
//! parts above, `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`. Pods with guaranteed CPUs
//! lie in the uppermost cgroup. The last part of that cgroup's name contains the driver.

use super::Kubernetes;
use super::glob::Glob;

/// Uppermost cgroups that a kubelet and kind use by default.
const USUAL: [&str; 4] = ["/kubepods", "/kubepods.slice", "/kubelet/kubepods", "/kubelet.slice/kubelet-kubepods.slice"];

/// Quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodClass {
    /// Pod that has exactly the CPUs that it requested.
    Guaranteed,
    /// Pod that has requested some CPUs.
    Burstable,
    /// Pod that has requested no CPUs: batch.
    BestEffort,
}

impl PodClass {
    const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];

    /// Returns the name of the class in cgroups; `None` for guaranteed pods, which have no cgroup of their class.
    fn cgroup_name(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

impl Kubernetes {
    /// Returns the uppermost cgroups that pods can lie in.
    pub fn top_groups(&self) -> Vec<Glob> {
        match &self.cgroup {
            Some(glob) => vec![glob.clone()],
            None => USUAL.iter().map(|path| path.parse().expect("it is a path")).collect(),
        }
    }

    /// Returns the cgroups of pods, with their class.
    pub fn pods(&self) -> Vec<(PodClass, Glob)> {
        let groups = self.top_groups();
        groups.iter().flat_map(|group| PodClass::ALL.map(|class| (class, pods_of(group, class)))).collect()
    }

    /// Returns the cgroups in which the kubelet makes BestEffort pods.
    pub fn groups_of_batch(&self) -> Vec<Glob> {
        self.top_groups().iter().map(|group| class_group(group, PodClass::BestEffort)).collect()
    }
}

/// Returns the cgroup in which pods of the class lie.
fn class_group(group: &Glob, class: PodClass) -> Glob {
    match (group.last_part().strip_suffix(".slice"), class.cgroup_name()) {
        (_, None) => group.clone(),
        (None, Some(class)) => group.join(class),
        (Some(name), Some(class)) => group.join(&format!("{name}-{class}.slice")),
    }
}

fn pods_of(group: &Glob, class: PodClass) -> Glob {
    let of_class = class_group(group, class);
    match of_class.last_part().strip_suffix(".slice") {
        None => of_class.join("pod*"),
        Some(name) => of_class.join(&format!("{name}-pod*.slice")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::glob::PathMatch;
    use super::*;

    fn class_of(path: &str) -> Option<PodClass> {
        let usual = Kubernetes { cgroup: None, exclude: Vec::new(), settings: Default::default() };
        usual.pods().into_iter().find(|(_, glob)| glob.match_path(path) == PathMatch::Matches).map(|(class, _)| class)
    }

    #[test]
    fn pods_of_both_cgroup_drivers_and_kind_have_their_class() {
        for (path, class) in [
            ("/kubepods/pod1-2", PodClass::Guaranteed),
            ("/kubepods/burstable/pod1-2", PodClass::Burstable),
            ("/kubepods/besteffort/pod1-2", PodClass::BestEffort),
            ("/kubepods.slice/kubepods-pod1_2.slice", PodClass::Guaranteed),
            ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice", PodClass::Burstable),
            ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice", PodClass::BestEffort),
            ("/kubelet/kubepods/besteffort/pod1-2", PodClass::BestEffort),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
                 kubelet-kubepods-burstable-pod1_2.slice",
                PodClass::Burstable,
            ),
        ] {
            assert_eq!(class_of(path), Some(class), "{path}");
        }
        for path in ["/kubepods", "/kubepods/burstable", "/kubepods.slice/kubepods-burstable.slice", "/system.slice"] {
            assert_eq!(class_of(path), None, "{path}");
        }
    }
}
