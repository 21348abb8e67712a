//! Energy of processors that RAPL counts: `class/powercap/intel-rapl:N`, also on AMD.
//!
//! The zones of packages are added up. Their subzones (`intel-rapl:0:1`: cores, graphics) are parts of them, and
//! `psys` contains them. `intel-rapl-mmio` shows the same packages again. The zone of memory stands below its package
//! but is no part of its energy. It is left out, since not every machine has one.

use super::meter::Meter;
use crate::sysfs::{ReadError, Sysfs};

const DIR: &str = "class/powercap";

pub fn open_powercap_meters(sys: &Sysfs<'_>) -> Result<Result<Vec<Meter>, String>, ReadError> {
    let zones = package_zones(sys)?;
    let mut meters = Vec::new();
    for (zone, name) in &zones {
        let range_uj = sys.number(&format!("{DIR}/{zone}/max_energy_range_uj"))?;
        meters.push(Meter::open(name.clone(), sys.path(&format!("{DIR}/{zone}/energy_uj")), range_uj)?);
    }
    Ok(if meters.is_empty() { Err("no package in powercap".to_owned()) } else { Ok(meters) })
}

/// Returns the zones of packages with their names, each name once.
fn package_zones(sys: &Sysfs<'_>) -> Result<Vec<(String, String)>, ReadError> {
    let mut zones: Vec<(String, String)> = Vec::new();
    for zone in sys.names(DIR)?.into_iter().filter(|zone| is_top_level_zone(zone)) {
        let name = sys.text(&format!("{DIR}/{zone}/name"))?.unwrap_or_default();
        if name.starts_with("package-") && zones.iter().all(|(_, known)| *known != name) {
            zones.push((zone, name));
        }
    }
    zones.sort_by(|one, other| one.1.cmp(&other.1));
    Ok(zones)
}

fn is_top_level_zone(zone: &str) -> bool {
    zone.strip_prefix("intel-rapl:").is_some_and(|number| number.parse::<u32>().is_ok())
}
