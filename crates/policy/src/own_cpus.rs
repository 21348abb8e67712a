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

    fn chosen_cpus(own: &[usize], allowed: &[usize], ran_ns: &[Nanos]) -> (CpuMask, bool) {
        let ran_ns = |cpu: usize| ran_ns.get(cpu).copied().unwrap_or(0);
        let placement = choose_own_cpus(&mask(own), &mask(allowed), ran_ns, 100);
        (placement.cpus, placement.is_apart)
    }

    #[test]
    fn tool_avoids_cpus_of_a_confined_idle_service() {
        assert_eq!(chosen_cpus(&[0, 1, 2], &[0, 2], &[]), (mask(&[1]), true));
    }

    #[test]
    fn tool_avoids_cpus_where_an_unconfined_service_ran() {
        assert_eq!(chosen_cpus(&[0, 1, 2], &[0, 1, 2, 3], &[0, 900, 99]), (mask(&[0, 2]), true));
    }

    #[test]
    fn tool_takes_least_busy_cpu_if_service_ran_everywhere() {
        assert_eq!(chosen_cpus(&[0, 1, 2], &[0, 1, 2], &[700, 300, 900]), (mask(&[1]), false));
    }

    #[test]
    fn only_cpu_is_shared_and_reported_as_shared() {
        assert_eq!(chosen_cpus(&[0], &[0], &[0]), (mask(&[0]), false));
        assert_eq!(chosen_cpus(&[0], &[0], &[900]), (mask(&[0]), false));
        assert_eq!(chosen_cpus(&[0], &[0, 1], &[0, 900]), (mask(&[0]), true), "it runs on the other CPU");
    }

    #[test]
    fn tool_takes_all_its_cpus_if_no_service_has_run() {
        assert_eq!(chosen_cpus(&[0, 1], &[0, 1], &[]), (mask(&[0, 1]), false));
    }

    proptest! {
        #[test]
        fn tool_gets_at_least_one_of_its_cpus_and_no_other(
            own in prop::collection::vec(0_usize..9, 1..9),
            allowed in prop::collection::vec(0_usize..9, 0..9),
            ran_ns in prop::collection::vec(0_u64..200, 9),
        ) {
            let (cpus, is_apart) = chosen_cpus(&own, &allowed, &ran_ns);
            prop_assert!(!cpus.is_empty() && cpus.is_subset(&mask(&own)));
            let is_served = |cpu: usize| allowed.contains(&cpu) && ran_ns[cpu] >= 100;
            prop_assert!(!is_apart || cpus.iter().all(|cpu| !is_served(cpu)));
        }
    }
}
