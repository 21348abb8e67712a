//! CPUs for the tool's own threads: if possible none on which the observed services run.

use crate::Nanos;
use crate::cpus::CpuMask;

/// Choice of CPUs for the tool's own threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Chosen CPUs.
    pub cpus: CpuMask,
    /// Whether the services run elsewhere, so that the tool's threads delay none of the services' threads.
    pub is_apart: bool,
}

/// Chooses CPUs from `own_cpus`, the CPUs that the tool may use. CPUs outside `service_cpus`, where the services may
/// run, are preferred. If there are none, CPUs with less than `busy_ns` of services (`ran_ns`) are chosen, provided
/// that services are busy on others. If services are busy on all or on none of them, the tool takes the CPUs with the
/// least time of services.
pub fn choose_own_cpus(
    own_cpus: &CpuMask,
    service_cpus: &CpuMask,
    ran_ns: impl Fn(usize) -> Nanos,
    busy_ns: Nanos,
) -> Placement {
    let outside = own_cpus.without(service_cpus);
    if !outside.is_empty() {
        return Placement { cpus: outside, is_apart: true };
    }
    let busy: CpuMask = service_cpus.iter().filter(|cpu| ran_ns(*cpu) >= busy_ns).collect();
    let quiet = own_cpus.without(&busy);
    if !quiet.is_empty() && !busy.is_empty() {
        return Placement { cpus: quiet, is_apart: true };
    }
    let least_ns = own_cpus.iter().map(&ran_ns).min().unwrap_or(0);
    Placement { cpus: own_cpus.iter().filter(|cpu| ran_ns(*cpu) == least_ns).collect(), is_apart: false }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(cpus: &[usize]) -> CpuMask {
        cpus.iter().copied().collect()
    }

    fn placed(own: &[usize], allowed: &[usize], ran_ns: &[Nanos]) -> (CpuMask, bool) {
        let ran_ns = |cpu: usize| ran_ns.get(cpu).copied().unwrap_or(0);
        let placement = choose_own_cpus(&mask(own), &mask(allowed), ran_ns, 100);
        (placement.cpus, placement.is_apart)
    }

    #[test]
    fn a_confined_service_keeps_its_cpus_even_when_idle() {
        assert_eq!(placed(&[0, 1, 2], &[0, 2], &[]), (mask(&[1]), true));
    }

    #[test]
    fn a_floating_service_keeps_the_cpus_where_it_ran() {
        assert_eq!(placed(&[0, 1, 2], &[0, 1, 2, 3], &[0, 900, 99]), (mask(&[0, 2]), true));
    }

    #[test]
    fn a_service_that_ran_everywhere_leaves_its_least_busy_cpu() {
        assert_eq!(placed(&[0, 1, 2], &[0, 1, 2], &[700, 300, 900]), (mask(&[1]), false));
    }

    #[test]
    fn only_cpu_is_shared_and_reported_as_shared() {
        assert_eq!(placed(&[0], &[0], &[0]), (mask(&[0]), false));
        assert_eq!(placed(&[0], &[0], &[900]), (mask(&[0]), false));
        assert_eq!(placed(&[0], &[0, 1], &[0, 900]), (mask(&[0]), true), "it runs on the other CPU");
    }

    #[test]
    fn nothing_is_known_of_a_service_that_has_not_run() {
        assert_eq!(placed(&[0, 1], &[0, 1], &[]), (mask(&[0, 1]), false));
    }

    proptest! {
        #[test]
        fn at_least_one_own_cpu_is_left_and_no_other_one(
            own in prop::collection::vec(0_usize..9, 1..9),
            allowed in prop::collection::vec(0_usize..9, 0..9),
            ran_ns in prop::collection::vec(0_u64..200, 9),
        ) {
            let (cpus, is_apart) = placed(&own, &allowed, &ran_ns);
            prop_assert!(!cpus.is_empty() && cpus.is_subset(&mask(&own)));
            let is_served = |cpu: usize| allowed.contains(&cpu) && ran_ns[cpu] >= 100;
            prop_assert!(!is_apart || cpus.iter().all(|cpu| !is_served(cpu)));
        }
    }
}
