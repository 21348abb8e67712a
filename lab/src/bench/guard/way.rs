//! The ways of sharing the machine that are compared.

use clap::ValueEnum;

/// Who decides where batch may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// There is no batch.
    Alone,
    /// Nobody.
    Unmanaged,
    /// The agent, with PerfIso.
    #[value(name = "perfiso")]
    PerfIso,
    /// The agent, with Holmes.
    Holmes,
    /// The agent, with Holmes, and a gate that keeps batch off its lanes while requests run.
    #[value(name = "holmes-gate")]
    HolmesGate,
}

impl Way {
    /// In the order of the tables.
    pub(super) const ALL: [Self; 5] = [Self::Alone, Self::Unmanaged, Self::PerfIso, Self::Holmes, Self::HolmesGate];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "unmanaged",
            Self::PerfIso => "perfiso",
            Self::Holmes => "holmes",
            Self::HolmesGate => "holmes_gate",
        }
    }

    /// Its name for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "batch unmanaged",
            Self::PerfIso => "PerfIso",
            Self::Holmes => "Holmes",
            Self::HolmesGate => "Holmes + lane gate",
        }
    }

    pub(super) fn has_batch(self) -> bool {
        self != Self::Alone
    }

    pub(super) fn has_agent(self) -> bool {
        matches!(self, Self::PerfIso | Self::Holmes | Self::HolmesGate)
    }
}
