//! Holmes (HPDC'22): statements of its evaluation, checked on a simulated server.
//!
//! Figs. 7 to 13 and Tables 3 and 4 are runs of the same workloads and use one scenario; Fig. 14 uses another one.

mod evidence;
mod fig11;
mod fig12;
mod fig14;
mod fig7;

use super::machine::MachineFigure;
use evidence::HolmesEvidence;

pub(super) const FIGURES: [MachineFigure<HolmesEvidence>; 2] = [
    MachineFigure {
        name: "Holmes",
        file: "lab/scenarios/holmes-workloads.toml",
        text: include_str!("../../../../scenarios/holmes-workloads.toml"),
        statements: &[fig7::REDUCED.as_flattened(), &fig7::ALIKE, &fig11::STATEMENTS, &fig12::STATEMENTS],
    },
    MachineFigure {
        name: "Holmes, Fig. 14",
        file: "lab/scenarios/holmes-fig14.toml",
        text: include_str!("../../../../scenarios/holmes-fig14.toml"),
        statements: &[&fig14::STATEMENTS],
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
