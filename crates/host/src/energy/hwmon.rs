//! Energy of boards with meters: `class/hwmon/hwmonN/energyM_input`, in µJ since the boot.
//!
//! Such meters measure anything: graphics cards, power supplies, parts of each other. So only known chips are used:
//! those whose meters add up to the CPUs with their memory controllers, or less.

use super::meter::Meter;
use crate::sysfs::{ReadError, Sysfs};

const DIR: &str = "class/hwmon";

/// A chip with energy meters of known meaning.
struct Chip {
    /// Name that the driver gives the chip.
    name: &'static str,
    /// Whether the meter with this label is added to the energy of the CPUs.
    takes: fn(&str) -> bool,
}

const CHIPS: [Chip; 3] = [
    // Arm's Juno has meters of the big and the little cluster, the rest of the chip, and graphics. The Hurry-up paper
    // (§IV-A) adds up the first three.
    Chip { name: "scpi_sensors", takes: |label| !label.contains("GPU") },
    // Arm's Versatile Express has a chip for each cluster.
    Chip { name: "vexpress_energy", takes: |_| true },
    // AMD's driver in kernels 5.8 to 5.12 has meters of sockets, and of the cores in them.
    Chip { name: "amd_energy", takes: |label| label.starts_with("Esocket") },
];

pub fn open_hwmon_meters(sys: &Sysfs<'_>) -> Result<Result<Vec<Meter>, String>, ReadError> {
    let (mut meters, mut others) = (Vec::new(), Vec::new());
    for folder in sorted(sys.names(DIR)?) {
        let inputs = meter_files(sys, &folder)?;
        let name = sys.text(&format!("{DIR}/{folder}/name"))?.unwrap_or_default();
        match CHIPS.iter().find(|chip| chip.name == name) {
            Some(chip) => meters.extend(open_chip_meters(sys, chip, &folder, &inputs)?),
            None if !inputs.is_empty() => others.push(name),
            None => {}
        }
    }
    Ok(match (meters.is_empty(), others.is_empty()) {
        (false, _) => Ok(meters),
        (true, true) => Err("no energy meter in hwmon".to_owned()),
        (true, false) => Err(format!("no energy meter in hwmon that is known to measure CPUs ({})", others.join(", "))),
    })
}

/// Returns the files of energy meters in `folder`.
fn meter_files(sys: &Sysfs<'_>, folder: &str) -> Result<Vec<String>, ReadError> {
    let mut files = sorted(sys.names(&format!("{DIR}/{folder}"))?);
    files.retain(|file| file.starts_with("energy") && file.ends_with("_input"));
    Ok(files)
}

/// Opens the meters of a chip that are added to the energy of the CPUs.
fn open_chip_meters(sys: &Sysfs<'_>, chip: &Chip, folder: &str, inputs: &[String]) -> Result<Vec<Meter>, ReadError> {
    let mut meters = Vec::new();
    for input in inputs {
        let label = sys.text(&format!("{DIR}/{folder}/{}", input.replace("_input", "_label")))?;
        let label = label.unwrap_or_else(|| format!("{folder}/{input}"));
        if (chip.takes)(&label) {
            meters.push(Meter::open(label, sys.path(&format!("{DIR}/{folder}/{input}")), None)?);
        }
    }
    Ok(meters)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
