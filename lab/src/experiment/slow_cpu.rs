//! A little core on a machine whose cores are all equal: a CPU that `sidelane-lab slow-cpu` makes slow.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::sibling::Carrier;
use crate::note::LabNote;
use crate::programs::{Lab, Service};

/// A CPU that is slow for as long as this lives.
pub struct SlowCpu {
    service: Service,
    carrier: Carrier,
    at: String,
    cpu: u32,
    speed: f64,
}

impl SlowCpu {
    /// Makes `cpu` as slow as `speed` says, of 1. Starts nothing if the CPU is slow by itself ([`Carrier::None`]).
    pub fn start(lab: &Lab, cpu: u32, speed: f64, carrier: Carrier) -> Result<Option<Self>> {
        let (cpu_word, speed_word) = (cpu.to_string(), speed.to_string());
        let mut words = vec!["slow-cpu", "--cpu", &cpu_word, "--speed", &speed_word];
        match carrier {
            Carrier::None => return Ok(None),
            // Programs make up for their loss themselves; others are not what is measured.
            Carrier::BuiltIn => words.push("--no-thief"),
            Carrier::Thief => {}
        }
        let service = lab.start(words).context("cannot make a CPU slow")?;
        let at = format!("{}:{}", service.ready("pid")?, service.ready("fd")?);
        Ok(Some(Self { service, carrier, at, cpu, speed }))
    }

    /// For a program of the lab that can make up for its loss itself.
    pub(super) fn options(&self) -> Vec<String> {
        match self.carrier {
            Carrier::BuiltIn => vec!["--sibling".to_owned(), self.at.clone()],
            Carrier::None | Carrier::Thief => Vec::new(),
        }
    }

    /// From now on it is as fast as it is.
    pub fn end(&mut self) -> Result<()> {
        let answer = self.service.ask("off").context("the slow CPU's emulation has ended")?;
        ensure!(answer == "off", "the slow CPU's emulation was told `off`, and said `{answer}`");
        Ok(())
    }

    /// Returns how fast it was so far for the programs that are slow there, of 1; `None` if no program worked.
    pub fn speed(&mut self) -> Result<Option<f64>> {
        let answer = self.service.ask("report").context("the slow CPU's emulation has ended")?;
        let report: Value =
            serde_json::from_str(&answer).with_context(|| format!("the slow CPU's emulation reported `{answer}`"))?;
        Ok(report["speed"].as_f64())
    }

    /// Returns the note on its meaning for the results.
    pub fn note(&self) -> LabNote {
        let (cpu, loss) = (self.cpu, (100.0 * (1.0 - self.speed)).round() as u64);
        match self.carrier {
            Carrier::Thief => LabNote::EmulatedLittleCoreByThief { cpu, loss },
            Carrier::None | Carrier::BuiltIn => LabNote::EmulatedLittleCore { cpu, loss },
        }
    }
}
