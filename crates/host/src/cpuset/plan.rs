//! Order in which the CPUs of a tree of groups are written, so that no write can fail half-way.
//!
//! The kernel requires that a group's CPUs are among those of the group above it (version 1 refuses anything else, in
//! either direction). So each group first gets its current and its target CPUs, from the top down. Then it gets its
//! target CPUs, from the bottom up. If the writer dies after any write, the kernel accepts the tree in its state then.
//! Each task still has all CPUs that are in its current and its target set.

use crate::cpulist::CpuSet;

/// A control group in a tree, with its current and its target CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index of the parent group, which precedes this group in the list; `None` for the root.
    pub parent: Option<usize>,
    /// CPUs that the group has now.
    pub now: CpuSet,
    /// CPUs that the group has after the last write.
    pub target: CpuSet,
}

/// A write of a CPU list to one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the group in the tree.
    pub node: usize,
    /// CPUs that are written to the group.
    pub cpus: CpuSet,
}

/// Returns the writes that lead from the current CPUs to the target CPUs. Current and target CPUs must be valid: a
/// group's CPUs are among those of the group above it.
pub fn plan(nodes: &[Node]) -> Vec<Step> {
    let wide: Vec<CpuSet> = nodes.iter().map(|node| node.now.union(&node.target)).collect();
    let widen = nodes.iter().enumerate().filter(|(at, node)| wide[*at] != node.now);
    let widen = widen.map(|(node, _)| Step { node, cpus: wide[node].clone() });
    let narrow = nodes.iter().enumerate().rev().filter(|(at, node)| wide[*at] != node.target);
    let narrow = narrow.map(|(at, node)| Step { node: at, cpus: node.target.clone() });
    widen.chain(narrow).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu_set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn a_container_and_the_group_above_it_move_to_other_cpus() {
        let node = |parent, now, target| Node { parent, now: cpu_set(now), target: cpu_set(target) };
        let step = |node, cpus| Step { node, cpus: cpu_set(cpus) };
        let tree = [node(None, "0", "1"), node(Some(0), "0", "1")];
        assert_eq!(plan(&tree), [step(0, "0-1"), step(1, "0-1"), step(1, "1"), step(0, "1")]);
        let narrower = [node(None, "0-3", "0-1"), node(Some(0), "0-3", "1"), node(Some(0), "0", "0")];
        assert_eq!(plan(&narrower), [step(1, "1"), step(0, "0-1")]);
        let same = [node(None, "0-3", "0-3"), node(Some(0), "1", "1")];
        assert_eq!(plan(&same), []);
    }

    /// Whether version 1 of cgroups accepts a write: the CPUs are within the group above, include the groups below,
    /// and are not empty.
    fn kernel_allows(nodes: &[Node], current_cpus: &[CpuSet], step: &Step) -> bool {
        let above = nodes[step.node].parent.is_none_or(|parent| step.cpus.is_subset(&current_cpus[parent]));
        let is_child = |(_, node): &(usize, &Node)| node.parent == Some(step.node);
        let below =
            nodes.iter().enumerate().filter(is_child).all(|(child, _)| current_cpus[child].is_subset(&step.cpus));
        above && below && !step.cpus.is_empty()
    }

    /// Returns some of the CPUs in `above`, at least one.
    fn nonempty_subset(parent_cpus: &CpuSet, choice_bits: u16) -> CpuSet {
        let some: CpuSet = parent_cpus.iter().filter(|cpu| choice_bits >> (cpu % 16) & 1 == 1).collect();
        if some.is_empty() { parent_cpus.iter().take(1).collect() } else { some }
    }

    /// Generates valid trees of any shape.
    fn valid_group_trees() -> impl Strategy<Value = Vec<Node>> {
        let group = (any::<prop::sample::Index>(), any::<u16>(), any::<u16>());
        prop::collection::vec(group, 1..12).prop_map(|groups| {
            let mut nodes: Vec<Node> = Vec::new();
            for (above, now, target) in groups {
                let parent = (!nodes.is_empty()).then(|| above.index(nodes.len()));
                let all = cpu_set("0-11");
                let (now_above, target_above) =
                    parent.map_or((&all, &all), |parent| (&nodes[parent].now, &nodes[parent].target));
                let (now, target) = (nonempty_subset(now_above, now), nonempty_subset(target_above, target));
                nodes.push(Node { parent, now, target });
            }
            nodes
        })
    }

    proptest! {
        #[test]
        fn kernel_allows_each_step_and_the_last_reaches_the_target(nodes in valid_group_trees()) {
            let mut has: Vec<CpuSet> = nodes.iter().map(|node| node.now.clone()).collect();
            for step in plan(&nodes) {
                prop_assert!(kernel_allows(&nodes, &has, &step), "{step:?} on {has:?}");
                has[step.node] = step.cpus;
            }
            let targets: Vec<CpuSet> = nodes.iter().map(|node| node.target.clone()).collect();
            prop_assert_eq!(has, targets);
        }

        #[test]
        fn group_is_written_at_most_twice(nodes in valid_group_trees()) {
            let steps = plan(&nodes);
            prop_assert!((0..nodes.len()).all(|node| steps.iter().filter(|step| step.node == node).count() <= 2));
        }
    }
}
