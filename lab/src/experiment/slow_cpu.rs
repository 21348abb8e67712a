//! A little core on a machine whose cores are all equal: a CPU that `sidelane-lab slow-cpu` makes slow.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::sibling::Carrier;
use crate::note::LabNote;
use crate::programs::{Lab, Service};

/// Emulation that makes a CPU slow until it is dropped.
pub struct SlowCpu {
    service: Service,
    carrier: Carrier,
    at: String,
    cpu: u32,
    speed: f64,
}

impl SlowCpu {
    /// Makes `cpu` run at `speed`, a fraction of its full speed. Starts nothing if the CPU is slow by itself
    /// ([`Carrier::None`]).
    pub fn start(lab: &Lab, cpu: u32, speed: f64, carrier: Carrier) -> Result<Option<Self>> {
        let (cpu_word, speed_word) = (cpu.to_string(), speed.to_string());
        let mut words = vec!["slow-cpu", "--cpu", &cpu_word, "--speed", &speed_word];
        match carrier {
            Carrier::None => return Ok(None),
            // Needs no thief: the measured programs emulate their loss themselves, and the speed of other programs is
            // not measured.
            Carrier::BuiltIn => words.push("--no-steal"),
            Carrier::Steal => {}
        }
        let service = lab.start(words).context("cannot make a CPU slow")?;
        let at = format!("{}:{}", service.ready("pid")?, service.ready("fd")?);
        Ok(Some(Self { service, carrier, at, cpu, speed }))
    }

    /// Returns the options for a lab program that can emulate its own loss.
    pub(super) fn options(&self) -> Vec<String> {
        match self.carrier {
            Carrier::BuiltIn => vec!["--sibling".to_owned(), self.at.clone()],
            Carrier::None | Carrier::Steal => Vec::new(),
        }
    }

    /// Ends the slowdown: the CPU runs at full speed again.
    pub fn end(&mut self) -> Result<()> {
        let answer = self.service.ask("off").context("the slow CPU's emulation has ended")?;
        ensure!(answer == "off", "the slow CPU's emulation was told `off`, and said `{answer}`");
        Ok(())
    }

    /// Returns the measured speed of the slowed programs so far, as a fraction of full speed; `None` if no program
    /// worked.
    pub fn speed(&mut self) -> Result<Option<f64>> {
        let answer = self.service.ask("report").context("the slow CPU's emulation has ended")?;
        let report: Value =
            serde_json::from_str(&answer).with_context(|| format!("the slow CPU's emulation reported `{answer}`"))?;
        Ok(report["speed"].as_f64())
    }

    /// Returns the note that explains the emulation in results.
    pub fn note(&self) -> LabNote {
        let (cpu, loss) = (self.cpu, (100.0 * (1.0 - self.speed)).round() as u64);
        match self.carrier {
            Carrier::Steal => LabNote::EmulatedLittleCoreBySteal { cpu, loss },
            Carrier::None | Carrier::BuiltIn => LabNote::EmulatedLittleCore { cpu, loss },
        }
    }
}
