//! Hurry-up (Nishtala et al.): statements of its evaluation, checked on a simulated Juno r1.
//!
//! Figs. 6 to 8 are runs at the same loads and use one scenario; Fig. 9 uses another one. Statements on the paper's
//! rule are about Algorithm 1 as printed. Statements that contain "ours" are about `sidelane_policy::hurryup` with its
//! defaults.

mod evidence;
mod fig8;
mod fig9;

use super::machine::MachineFigure;
use evidence::HurryEvidence;

pub(super) const FIGURES: [MachineFigure<HurryEvidence>; 2] = [
    MachineFigure {
        name: "Hurry-up, Figs. 6 to 8",
        file: "lab/scenarios/hurry-fig8.toml",
        text: include_str!("../../../../scenarios/hurry-fig8.toml"),
        statements: &[&fig8::STATEMENTS],
    },
    MachineFigure {
        name: "Hurry-up, Fig. 9",
        file: "lab/scenarios/hurry-fig9.toml",
        text: include_str!("../../../../scenarios/hurry-fig9.toml"),
        statements: &[&fig9::STATEMENTS],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::papers::machine::assert_statements_sound;

    #[test]
    fn statements_need_evidence_and_have_unique_names() {
        assert_statements_sound(&FIGURES);
    }
}
