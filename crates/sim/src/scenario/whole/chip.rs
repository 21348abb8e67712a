//! Memory of a chip, as a scenario describes it.

use crate::machine::chip::ChipMemory;
use crate::scenario::inputs::Result;
use crate::scenario::parts::find_class;
use crate::smt::Interference;
use sidelane_toml::Reader;

/// Reads `[chip]`: `slowdown` has the points, `[chip.intensity]` the traffic of classes.
pub(super) fn read_chip_memory(reader: Reader, smt: &Interference) -> Result<ChipMemory> {
    let points = read_slowdown_points(&reader)?;
    let mut intensity = vec![0.0; smt.names().len()];
    let table = reader.table("intensity");
    for (name, at, _) in table.entries() {
        intensity[find_class(&table, name, at, smt)?] = table.required_number(name, 0.0..=1e6)?;
    }
    reader.record_unknown_keys();
    Ok(ChipMemory { points, intensity })
}

fn read_slowdown_points(reader: &Reader) -> Result<Vec<(f64, f64)>> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for point in reader.numbered_tables("slowdown") {
        let above = points.last().map_or(0.0, |(pressure, _)| *pressure);
        let pressure = point.required_number("pressure", above..=1e6)?;
        if !points.is_empty() && pressure <= above {
            return Err(point.record_problem(
                "pressure",
                format!("is {pressure}"),
                "write a higher number than at the point \
                                                                          before",
            ));
        }
        points.push((pressure, point.required_number("times", 1.0..=100.0)?));
        point.record_unknown_keys();
    }
    Ok(points)
}
