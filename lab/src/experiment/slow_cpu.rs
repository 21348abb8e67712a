//! A little core on a machine whose cores are all equal: a CPU that `sidelane-lab slow-cpu` makes slow.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::sibling::SlowdownMechanism;
use crate::note::LabNote;
use crate::programs::{LabBinary, LabProcess};

/// Emulation that makes a CPU slow until it is dropped.
pub struct SlowCpu {
    service: LabProcess,
    carrier: SlowdownMechanism,
    at: String,
    cpu: u32,
    speed: f64,
}

impl SlowCpu {
    /// Makes `cpu` run at `speed`, a fraction of its full speed. Starts nothing if the CPU is slow by itself
    /// ([`SlowdownMechanism::None`]).
    pub fn start(lab: &LabBinary, cpu: u32, speed: f64, mechanism: SlowdownMechanism) -> Result<Option<Self>> {
        let (cpu_word, speed_word) = (cpu.to_string(), speed.to_string());
        let mut words = vec!["slow-cpu", "--cpu", &cpu_word, "--speed", &speed_word];
        match mechanism {
            SlowdownMechanism::None => return Ok(None),
            // Needs no steal emulator: the measured programs spin for their lost time themselves, and the speed of
            // other programs is not measured.
            SlowdownMechanism::BuiltIn => words.push("--no-steal"),
            SlowdownMechanism::Steal => {}
        }
        let service = lab.start(words).context("cannot make a CPU slow")?;
        let at = format!("{}:{}", service.ready_number("pid")?, service.ready_number("fd")?);
        Ok(Some(Self { service, carrier: mechanism, at, cpu, speed }))
    }

    /// Returns the options with which a lab program emulates the slow CPU itself.
    pub(super) fn options(&self) -> Vec<String> {
        match self.carrier {
            SlowdownMechanism::BuiltIn => vec!["--sibling".to_owned(), self.at.clone()],
            SlowdownMechanism::None | SlowdownMechanism::Steal => Vec::new(),
        }
    }

    /// Ends the slowdown: the CPU runs at full speed again.
    pub fn end(&mut self) -> Result<()> {
        let answer = self.service.query("off").context("the slow CPU's emulation has ended")?;
        ensure!(answer == "off", "the emulation of the slow CPU answered `{answer}` to the line `off`, not `off`");
        Ok(())
    }

    /// Returns the measured speed of the slowed programs so far, as a fraction of full speed; `None` if no program
    /// worked.
    pub fn measured_speed(&mut self) -> Result<Option<f64>> {
        let answer = self.service.query("report").context("the slow CPU's emulation has ended")?;
        let report: Value =
            serde_json::from_str(&answer).with_context(|| format!("the slow CPU's emulation reported `{answer}`"))?;
        Ok(report["speed"].as_f64())
    }

    /// Returns the note that explains the emulation in results.
    pub fn note(&self) -> LabNote {
        let (cpu, loss) = (self.cpu, (100.0 * (1.0 - self.speed)).round() as u64);
        match self.carrier {
            SlowdownMechanism::Steal => LabNote::EmulatedLittleCoreBySteal { cpu, loss },
            SlowdownMechanism::None | SlowdownMechanism::BuiltIn => LabNote::EmulatedLittleCore { cpu, loss },
        }
    }
}
