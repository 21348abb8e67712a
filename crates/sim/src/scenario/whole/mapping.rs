//! Mapping of services' threads to big and little cores, as a scenario describes it.

use sidelane_policy::hurryup::{Config, Learning, Mapping, Options, ScanTimes, Threshold};

use crate::model::Machine;
use crate::scenario::inputs::Result;
use crate::scenario::parts::{LONGER, ms_to_ns};
use sidelane_toml::Reader;

const MILLISECONDS: std::ops::RangeInclusive<f64> = 0.0..=1e9;

/// Reads the parameters of a setting with this mapping. Without `sampling_ms` it reacts to events, without
/// `threshold_ms` it learns the threshold.
pub(super) fn read_mapping_config(reader: &Reader, mapping: Mapping, machine: &Machine) -> Result<Config> {
    if machine.lanes_per_core > 1 || machine.big_cores().count() == machine.cores() {
        return Err(reader.record_problem(
            "policy",
            "binds threads to big and little cores",
            "describe a machine with lanes_per_core = 1 and cores of two speeds (core_speed)",
        ));
    }
    if mapping != Mapping::HurryUp {
        return Ok(Config { mapping, ..Config::PAPER });
    }
    let looks =
        reader.number("sampling_ms", LONGER).map_or(ScanTimes::Events, |number| ScanTimes::Sampling(ms_to_ns(number)));
    let given = reader.number("threshold_ms", MILLISECONDS);
    let learning = read_learning(reader, machine)?;
    let threshold = given.map_or(Threshold::Learnt(learning), |number| Threshold::Given(ms_to_ns(number)));
    Ok(Config { mapping, scan_times: looks, threshold, options: read_hurry_up_options(reader)? })
}

/// Reads the options of Hurry-up: the defaults, or those of the paper with `as_printed`; single keys change them.
fn read_hurry_up_options(reader: &Reader) -> Result<Options> {
    let usual = if reader.flag("as_printed").unwrap_or(false) { Options::PAPER } else { Options::default() };
    Ok(Options {
        spare_longer: reader.flag("spare_longer").unwrap_or(usual.spare_longer),
        empty_first: reader.flag("empty_first").unwrap_or(usual.empty_first),
        between_first: reader.flag("between_first").unwrap_or(usual.between_first),
        preplace: reader.flag("preplace").unwrap_or(usual.preplace),
        rest_ns: reader.number("rest_ms", MILLISECONDS).map_or(usual.rest_ns, ms_to_ns),
        ..usual
    })
}

fn read_learning(reader: &Reader, machine: &Machine) -> Result<Learning> {
    let usual = Learning::default();
    let speeds = (0..machine.cores()).map(|core| machine.speed_of(core));
    let (slowest, fastest) = speeds.fold((f64::MAX, 0.0_f64), |(low, high), speed| (low.min(speed), high.max(speed)));
    Ok(Learning {
        percentile_e2: reader.number("percentile", 1.0..=99.99).map_or(usual.percentile_e2, |at| (at * 100.0) as u32),
        little_speed_milli: (slowest / fastest * 1000.0) as u32,
        move_ns: machine.migration_ns,
        ..usual
    })
}
