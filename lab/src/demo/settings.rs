//! The settings of the demo, and their order in each round.

use crate::experiment::setting::Setting;

/// Returns the settings in the order of the results.
pub(super) fn compared_settings() -> [Setting; 4] {
    [Setting::ALONE, Setting::UNMANAGED, Setting::SCHED_IDLE, Setting::borrow_idle()]
}

/// Returns the settings of a round. Each round begins with another setting, so that none always runs first.
pub(super) fn settings_of_round(round: u64) -> impl Iterator<Item = Setting> {
    let taking_part = move |setting: &Setting| round.is_multiple_of(2) || is_judged(setting);
    let all = compared_settings();
    let first = round as usize % all.len();
    all.into_iter().cycle().skip(first).take(all.len()).filter(taking_part)
}

/// Returns whether a check or the printed finding uses the setting; such settings take part in every round.
fn is_judged(setting: &Setting) -> bool {
    *setting != Setting::SCHED_IDLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_settings_run_every_round_and_rotate_first_place() {
        let (alone, borrow_idle) = (Setting::ALONE, Setting::borrow_idle());
        for round in 0..8 {
            let order: Vec<Setting> = settings_of_round(round).collect();
            assert!([alone, Setting::UNMANAGED, borrow_idle].iter().all(|judged| order.contains(judged)), "{order:?}");
            assert_eq!(order.len(), if round % 2 == 0 { 4 } else { 3 });
        }
        let firsts: Vec<Setting> = (0..4).filter_map(|round| settings_of_round(round).next()).collect();
        assert!(firsts.contains(&alone) && firsts.contains(&borrow_idle), "{firsts:?}");
    }
}
