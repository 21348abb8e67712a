//! The emulated sibling: two CPUs that slow each other as the lanes of one core do, if the machine has no such core.
//! `sidelane-lab sibling` does it; here it is chosen, started and described.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use tempfile::TempPath;

use super::place::ExperimentCpus;
use crate::note::LabNote;
use crate::programs::{Lab, Service};
use sidelane_host::topology::PairKind;

/// Default slowdown of the service by batch, and of batch by the service. In Elfen's Fig. 4 requests lose 40 % and more
/// to a busy lane.
const SLOWDOWN: Slowdown = Slowdown { service: 1.67, batch: 1.4, nap: 1.0 };

/// Who makes programs as slow as beside a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// None: the lanes are as the machine has them
    None,
    /// The lab's programs themselves, and a thief for others
    BuiltIn,
    /// A thief, for all programs
    Thief,
}

/// How many times as long each takes beside the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// The service beside batch.
    pub service: f64,
    /// Batch beside the service.
    pub batch: f64,
    /// The service beside a holder that naps.
    pub nap: f64,
}

impl Slowdown {
    /// Returns the service's loss beside batch, in percent.
    pub fn service_loss_percent(self) -> f64 {
        100.0 * (1.0 - 1.0 / self.service)
    }

    /// Returns batch's loss beside the service, in percent.
    pub fn batch_loss_percent(self) -> f64 {
        100.0 * (1.0 - 1.0 / self.batch)
    }

    /// Returns it in the form of `sidelane-lab sibling`.
    pub fn words(self) -> String {
        format!("service:batch={},batch:service={},service:nap={}", self.service, self.batch, self.nap)
    }
}

/// Two CPUs that are one core for as long as this lives.
pub struct Sibling {
    /// A library that makes a program that is not the lab's make up for its loss itself.
    preload: Option<TempPath>,
    service: Service,
    carrier: Carrier,
    at: String,
    slowdown: Slowdown,
}

impl Sibling {
    /// Returns the chosen emulation for `place`: by default there is one if its lanes share no core.
    pub fn choose(choice: Option<Carrier>, place: ExperimentCpus, lab: &Lab) -> Result<Option<Self>> {
        let carrier = match (choice, place.kind) {
            (Some(Carrier::None), _) | (None, PairKind::Smt) => return Ok(None),
            (Some(_), PairKind::Smt) => bail!(
                "CPUs {} are real lanes of one core: what they do to each other is real, and is not emulated; leave \
                 --sibling out",
                place.lanes()
            ),
            (chosen, PairKind::Declared) => chosen.unwrap_or(Carrier::BuiltIn),
        };
        let mut sibling = Self::start(place, lab, carrier)?;
        sibling.begin(SLOWDOWN)?;
        Ok(Some(sibling))
    }

    /// Starts one that does nothing yet.
    pub fn start(place: ExperimentCpus, lab: &Lab, carrier: Carrier) -> Result<Self> {
        let service = lab.start(["sibling", "--lanes", &place.lanes()]).context("cannot start the emulated sibling")?;
        Ok(Self { preload: None, at: place_of(&service)?, service, carrier, slowdown: SLOWDOWN })
    }

    /// As [`Sibling::choose`], but threads that make up for their loss make page faults while they do so, which stand
    /// in for stalls. With [`Carrier::BuiltIn`] these are also programs that get [`Sibling::variables`].
    pub fn choose_with_stand_in(choice: Option<Carrier>, place: ExperimentCpus, lab: &Lab) -> Result<Option<Self>> {
        let Some(plain) = Self::choose(choice, place, lab)? else { return Ok(None) };
        let carrier = plain.carrier;
        drop(plain);
        let mut words = ["sibling", "--lanes", &place.lanes(), "--stand-in"].map(OsString::from).to_vec();
        let preload = (carrier == Carrier::BuiltIn).then(library).transpose()?;
        if let Some(file) = &preload {
            // Services make up for their loss themselves. A thief on their lane would take the losses of other threads
            // that run there for a moment, 0.5 ms and more at a time, while services wait.
            words.extend(["--preload".into(), file.into(), "--thief".into(), "batch".into()]);
        }
        let service = lab.start(words).context("cannot start the emulated sibling")?;
        let mut sibling = Self { preload, at: place_of(&service)?, service, carrier, slowdown: SLOWDOWN };
        sibling.begin(SLOWDOWN)?;
        Ok(Some(sibling))
    }

    /// The environment of a program that is not the lab's and makes up for its loss itself.
    pub(super) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let pairs = |file: &TempPath| [("LD_PRELOAD", file.into()), ("SIDELANE_LAB_SIBLING", self.at.clone().into())];
        self.preload.iter().flat_map(pairs).collect()
    }

    /// From now on the CPUs are one core whose lanes slow each other so much.
    pub fn begin(&mut self, slowdown: Slowdown) -> Result<()> {
        self.slowdown = slowdown;
        self.tell(&format!("on {}", slowdown.words()), "on")
    }

    /// From now on they are two again.
    pub fn end(&mut self) -> Result<()> {
        self.tell("off", "off")
    }

    fn tell(&mut self, what: &str, wanted: &str) -> Result<()> {
        let answer = self.service.ask(what).context("the emulated sibling has ended")?;
        ensure!(answer == wanted, "the emulated sibling was told `{what}`, and said `{answer}`");
        Ok(())
    }

    /// Returns its result so far, as `sidelane-lab sibling` reports it: the request lane, then the batch lane.
    pub fn report(&mut self) -> Result<[LaneReport; 2]> {
        let answer = self.service.ask("report").context("the emulated sibling has ended")?;
        serde_json::from_str(&answer).with_context(|| format!("the emulated sibling reported `{answer}`"))
    }

    /// Returns the service's loss for each moment beside batch, as a fraction of 1.
    pub fn service_loss(&self) -> f64 {
        self.slowdown.service_loss_percent() / 100.0
    }

    /// Whether programs make up for their loss themselves.
    pub fn is_built_in(&self) -> bool {
        self.carrier == Carrier::BuiltIn
    }

    /// For a program of the lab that can make up for its overlap itself.
    pub(super) fn options(&self) -> Vec<String> {
        match self.carrier {
            Carrier::BuiltIn => vec!["--sibling".to_owned(), self.at.clone()],
            Carrier::None | Carrier::Thief => Vec::new(),
        }
    }

    /// The same, for a command.
    pub fn add_options(&self, command: &mut Command) {
        command.args(self.options());
    }

    /// In a title: `emulated sibling, 40 %`.
    pub fn title(&self) -> String {
        format!("emulated sibling, {:.0} %", self.slowdown.service_loss_percent())
    }

    /// Returns the note on its meaning for the results.
    pub fn note(&self) -> LabNote {
        let service_loss = self.slowdown.service_loss_percent().round() as u64;
        let batch_loss = self.slowdown.batch_loss_percent().round() as u64;
        match self.carrier {
            Carrier::Thief => LabNote::EmulatedSiblingByThief { service_loss, batch_loss },
            _ if self.preload.is_some() => LabNote::EmulatedSiblingInside { service_loss, batch_loss },
            Carrier::None | Carrier::BuiltIn => LabNote::EmulatedSibling { service_loss, batch_loss },
        }
    }

    /// Returns which parts are real if lanes share no core and their contention cost is emulated.
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

/// A file for the library that is preloaded.
fn library() -> Result<TempPath> {
    Ok(tempfile::NamedTempFile::new().context("cannot make a file for a library")?.into_temp_path())
}

fn place_of(service: &Service) -> Result<String> {
    Ok(format!("{}:{}", service.ready("pid")?, service.ready("fd")?))
}

/// Description of an emulated sibling, for a result after its end.
#[derive(Clone, Debug)]
pub struct Emulated {
    /// See [`Sibling::title`].
    pub title: String,
    /// See [`Sibling::explanation`].
    pub explanation: String,
    /// See [`Sibling::note`].
    pub note: LabNote,
}

impl Emulated {
    /// Describes the sibling on `lanes`, if there is one.
    pub fn of(sibling: Option<&Sibling>, lanes: &str) -> Option<Self> {
        let sibling = sibling?;
        Some(Self { title: sibling.title(), explanation: sibling.explanation(lanes), note: sibling.note() })
    }
}

/// Figures of one lane.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct LaneReport {
    /// Time in which programs ran there.
    pub worked_ns: u64,
    /// The part in which the sibling lane worked, too.
    pub both_ns: u64,
    /// The slowdown by the emulator's own account.
    pub slowdown: Option<f64>,
    /// Time that programs spun.
    pub spun_ns: u64,
    /// Time that a thief took.
    pub taken_ns: u64,
    /// How often it was woken.
    pub wake_ups: u64,
    /// Context switches.
    pub switches: u64,
    /// Mean time of the kernel program in a switch, over those that were timed.
    pub switch_ns: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_shown_as_an_option_and_as_a_loss() {
        let slowdown = Slowdown { service: 1.6, batch: 1.25, nap: 1.0 };
        assert_eq!(slowdown.words(), "service:batch=1.6,batch:service=1.25,service:nap=1");
        assert_eq!((slowdown.service_loss_percent().round(), slowdown.batch_loss_percent().round()), (38.0, 20.0));
        assert_eq!(SLOWDOWN.service_loss_percent().round(), 40.0);
    }

    #[test]
    fn real_siblings_are_not_emulated() {
        let lab = Lab::at("/nonexistent".into());
        let place = ExperimentCpus { request: 0, batch: 1, client: 1, kind: PairKind::Smt };
        assert!(Sibling::choose(None, place, &lab).unwrap().is_none());
        assert!(Sibling::choose(Some(Carrier::None), place, &lab).unwrap().is_none());
        let refused = Sibling::choose(Some(Carrier::Thief), place, &lab).err().unwrap().to_string();
        assert!(refused.contains("real lanes"), "{refused}");
    }
}
