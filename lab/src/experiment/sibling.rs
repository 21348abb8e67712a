//! The emulated sibling: two CPUs that slow each other as the lanes of one core do, if the machine has no such core.
//! `sidelane-lab sibling` emulates it; this module chooses, starts and describes it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use tempfile::TempPath;

use super::place::ExperimentCpus;
use crate::note::LabNote;
use crate::programs::{LabBinary, LabProcess};
use sidelane_host::topology::PairKind;

/// Default slowdown factors of the emulated sibling. In Elfen's Fig. 4 requests lose 40 % and more to a busy lane.
const SLOWDOWN: Slowdown = Slowdown { service: 1.67, batch: 1.4, nap: 1.0 };

/// Mechanism that makes programs as slow as beside a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SlowdownMechanism {
    /// None: the lanes are as the machine has them
    None,
    /// The lab's programs themselves, and a steal emulator for others
    BuiltIn,
    /// A steal emulator, for all programs
    Steal,
}

/// Factors by which the time of a program grows beside the other lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// Factor of the service while batch runs on the sibling lane.
    pub service: f64,
    /// Factor of batch while the service runs on the sibling lane.
    pub batch: f64,
    /// Factor of the service while a holder naps on the sibling lane.
    pub nap: f64,
}

impl Slowdown {
    /// Returns the service's loss of speed beside batch, in percent.
    pub fn service_loss_percent(self) -> f64 {
        100.0 * (1.0 - 1.0 / self.service)
    }

    /// Returns batch's loss of speed beside the service, in percent.
    pub fn batch_loss_percent(self) -> f64 {
        100.0 * (1.0 - 1.0 / self.batch)
    }

    /// Returns the factors in the form that `sidelane-lab sibling` reads.
    pub fn to_option(self) -> String {
        format!("service:batch={},batch:service={},service:nap={}", self.service, self.batch, self.nap)
    }
}

/// Emulation that makes two CPUs behave as the lanes of one core until it is dropped.
pub struct EmulatedSibling {
    /// Library that `LD_PRELOAD` loads into a program outside the lab, so that the program emulates the slowdown
    /// itself.
    preload: Option<TempPath>,
    service: LabProcess,
    carrier: SlowdownMechanism,
    at: String,
    slowdown: Slowdown,
}

impl EmulatedSibling {
    /// Starts the chosen emulation for `place`. Without a choice it emulates only lanes that share no core.
    pub fn start_chosen(
        choice: Option<SlowdownMechanism>,
        place: ExperimentCpus,
        lab: &LabBinary,
    ) -> Result<Option<Self>> {
        let carrier = match (choice, place.kind) {
            (Some(SlowdownMechanism::None), _) | (None, PairKind::Smt) => return Ok(None),
            (Some(_), PairKind::Smt) => bail!(
                "CPUs {} are real lanes of one core: what they do to each other is real, and is not emulated; leave \
                 --sibling out",
                place.lanes()
            ),
            (chosen, PairKind::Declared) => chosen.unwrap_or(SlowdownMechanism::BuiltIn),
        };
        let mut sibling = Self::start(place, lab, carrier)?;
        sibling.begin(SLOWDOWN)?;
        Ok(Some(sibling))
    }

    /// Starts an emulation that slows no lane until [`EmulatedSibling::begin`].
    pub fn start(place: ExperimentCpus, lab: &LabBinary, mechanism: SlowdownMechanism) -> Result<Self> {
        let service = lab.start(["sibling", "--lanes", &place.lanes()]).context("cannot start the emulated sibling")?;
        Ok(Self { preload: None, at: emulator_address(&service)?, service, carrier: mechanism, slowdown: SLOWDOWN })
    }

    /// Starts an emulation like [`EmulatedSibling::start_chosen`], but threads also make page faults while they spin to
    /// emulate the slowdown; the faults stand in for memory stalls. With [`SlowdownMechanism::BuiltIn`] this includes
    /// programs that get [`EmulatedSibling::environment_variables`].
    pub fn start_chosen_with_stand_in(
        choice: Option<SlowdownMechanism>,
        place: ExperimentCpus,
        lab: &LabBinary,
    ) -> Result<Option<Self>> {
        let Some(plain) = Self::start_chosen(choice, place, lab)? else { return Ok(None) };
        let carrier = plain.carrier;
        drop(plain);
        let mut words = ["sibling", "--lanes", &place.lanes(), "--stand-in"].map(OsString::from).to_vec();
        let preload = (carrier == SlowdownMechanism::BuiltIn).then(create_preload_file).transpose()?;
        if let Some(file) = &preload {
            // Starts a steal emulator only on the batch lane, since services emulate their slowdown themselves. On the
            // services' lane it would also take the time that other threads there should lose. Services would then wait
            // 0.5 ms and more at a time.
            words.extend(["--preload".into(), file.into(), "--steal".into(), "batch".into()]);
        }
        let service = lab.start(words).context("cannot start the emulated sibling")?;
        let mut sibling = Self { preload, at: emulator_address(&service)?, service, carrier, slowdown: SLOWDOWN };
        sibling.begin(SLOWDOWN)?;
        Ok(Some(sibling))
    }

    /// Returns the environment variables with which a program outside the lab emulates the slowdown itself.
    pub(super) fn environment_variables(&self) -> Vec<(&'static str, OsString)> {
        let pairs = |file: &TempPath| [("LD_PRELOAD", file.into()), ("SIDELANE_LAB_SIBLING", self.at.clone().into())];
        self.preload.iter().flat_map(pairs).collect()
    }

    /// Makes the CPUs slow each other by the factors of `slowdown` from now on.
    pub fn begin(&mut self, slowdown: Slowdown) -> Result<()> {
        self.slowdown = slowdown;
        self.send_command(&format!("on {}", slowdown.to_option()), "on")
    }

    /// Ends the slowdown: the CPUs are independent again.
    pub fn end(&mut self) -> Result<()> {
        self.send_command("off", "off")
    }

    fn send_command(&mut self, command: &str, expected_answer: &str) -> Result<()> {
        let answer = self.service.query(command).context("the emulated sibling has ended")?;
        ensure!(
            answer == expected_answer,
            "`sidelane-lab sibling` answered `{answer}` to the line `{command}`, not `{expected_answer}`"
        );
        Ok(())
    }

    /// Returns the emulator's counts so far, as `sidelane-lab sibling` reports them: first for the request lane, then
    /// for the batch lane.
    pub fn report(&mut self) -> Result<[LaneReport; 2]> {
        let answer = self.service.query("report").context("the emulated sibling has ended")?;
        serde_json::from_str(&answer).with_context(|| format!("the emulated sibling reported `{answer}`"))
    }

    /// Returns the share of time that the service loses while batch runs beside it, as a fraction of 1.
    pub fn service_loss(&self) -> f64 {
        self.slowdown.service_loss_percent() / 100.0
    }

    /// Returns whether programs emulate the slowdown themselves, rather than a steal emulator.
    pub fn is_built_in(&self) -> bool {
        self.carrier == SlowdownMechanism::BuiltIn
    }

    /// Returns the options with which a lab program emulates the slowdown itself; none for other mechanisms.
    pub(super) fn options(&self) -> Vec<String> {
        match self.carrier {
            SlowdownMechanism::BuiltIn => vec!["--sibling".to_owned(), self.at.clone()],
            SlowdownMechanism::None | SlowdownMechanism::Steal => Vec::new(),
        }
    }

    /// Adds the options to `command` with which a lab program emulates the slowdown itself.
    pub fn add_options(&self, command: &mut Command) {
        command.args(self.options());
    }

    /// Returns the emulation's name for a title, such as `emulated sibling, 40 %`.
    pub fn title(&self) -> String {
        format!("emulated sibling, {:.0} %", self.slowdown.service_loss_percent())
    }

    /// Returns the note that explains the emulation in results.
    pub fn note(&self) -> LabNote {
        let service_loss = self.slowdown.service_loss_percent().round() as u64;
        let batch_loss = self.slowdown.batch_loss_percent().round() as u64;
        match self.carrier {
            SlowdownMechanism::Steal => LabNote::EmulatedSiblingBySteal { service_loss, batch_loss },
            _ if self.preload.is_some() => LabNote::EmulatedSiblingInside { service_loss, batch_loss },
            SlowdownMechanism::None | SlowdownMechanism::BuiltIn => {
                LabNote::EmulatedSibling { service_loss, batch_loss }
            }
        }
    }

    /// Returns a text that tells which parts of a result are real and which are emulated.
    pub fn explanation(&self, lanes: &str) -> String {
        format!(
            "CPUs {lanes} are declared to be a pair: they are not known to share a core. What lanes of one core take \
             from each other is emulated: while both work, the service loses {:.0} % and batch {:.0} %. Real are the \
             service, the load, the batch job, the kernel's accounting, the reactions, the overlap and batch's share of \
             the idle time.",
            self.slowdown.service_loss_percent(),
            self.slowdown.batch_loss_percent()
        )
    }
}

/// Makes an empty temporary file for the library to preload.
fn create_preload_file() -> Result<TempPath> {
    Ok(tempfile::NamedTempFile::new().context("cannot make a file for a library")?.into_temp_path())
}

fn emulator_address(service: &LabProcess) -> Result<String> {
    Ok(format!("{}:{}", service.ready_number("pid")?, service.ready_number("fd")?))
}

/// Description of an emulated sibling, for a result after the emulation's end.
#[derive(Clone, Debug)]
pub struct SiblingDescription {
    /// Short name, from [`EmulatedSibling::title`].
    pub title: String,
    /// Text on the real and the emulated parts, from [`EmulatedSibling::explanation`].
    pub explanation: String,
    /// Note for the results, from [`EmulatedSibling::note`].
    pub note: LabNote,
}

impl SiblingDescription {
    /// Describes the sibling on `lanes`; `None` without a sibling.
    pub fn from_sibling(sibling: Option<&EmulatedSibling>, lanes: &str) -> Option<Self> {
        let sibling = sibling?;
        Some(Self { title: sibling.title(), explanation: sibling.explanation(lanes), note: sibling.note() })
    }
}

/// Figures that the emulator counted on one lane.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct LaneReport {
    /// Time in which programs ran on the lane.
    pub worked_ns: u64,
    /// Part of `worked_ns` in which the sibling lane worked too.
    pub both_ns: u64,
    /// Slowdown factor that the emulator itself measured.
    pub slowdown: Option<f64>,
    /// Time that programs spun to emulate the slowdown by the sibling lane.
    pub spun_ns: u64,
    /// Time that the steal emulator took from the lane.
    pub taken_ns: u64,
    /// Number of wakeups of the steal emulator.
    pub wake_ups: u64,
    /// Number of context switches on the lane.
    pub switches: u64,
    /// Mean time that the kernel program took in a context switch, over the timed switches.
    pub switch_ns: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_shown_as_an_option_and_as_a_loss() {
        let slowdown = Slowdown { service: 1.6, batch: 1.25, nap: 1.0 };
        assert_eq!(slowdown.to_option(), "service:batch=1.6,batch:service=1.25,service:nap=1");
        assert_eq!((slowdown.service_loss_percent().round(), slowdown.batch_loss_percent().round()), (38.0, 20.0));
        assert_eq!(SLOWDOWN.service_loss_percent().round(), 40.0);
    }

    #[test]
    fn real_siblings_are_not_emulated() {
        let lab = LabBinary::with_path("/nonexistent".into());
        let place = ExperimentCpus { request: 0, batch: 1, client: 1, kind: PairKind::Smt };
        assert!(EmulatedSibling::start_chosen(None, place, &lab).unwrap().is_none());
        assert!(EmulatedSibling::start_chosen(Some(SlowdownMechanism::None), place, &lab).unwrap().is_none());
        let refused =
            EmulatedSibling::start_chosen(Some(SlowdownMechanism::Steal), place, &lab).err().unwrap().to_string();
        assert!(refused.contains("real lanes"), "{refused}");
    }
}
