//! What the page draws without a script: means with their intervals, lines in small multiples, heat
//! maps, and bars.
//!
//! Like curves and timelines these are optional keys of a results file and hold what was measured,
//! as it was measured. A number from elsewhere, such as a paper, carries no interval, and its series
//! says where it is from; it is drawn so that nobody takes it for a measurement.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Means with their intervals, by name: Elfen's Fig. 8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The unit of all numbers.
    pub unit: Unit,
    /// What the axis counts.
    pub across: String,
    /// One line of the picture each.
    pub groups: Vec<IntervalGroup>,
}

/// What is compared under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalGroup {
    /// The name.
    pub name: String,
    /// A mean for each series that has one.
    pub means: Vec<Mean>,
}

/// A mean and its confidence interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Of what.
    pub series: String,
    /// The mean.
    pub mean: f64,
    /// It lies so far on either side with 95 % confidence. Nothing: it was not measured here.
    pub half_width: Option<f64>,
}

/// The same axes many times over: Elfen's Figs. 10 and 11.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Multiples {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What the axis across counts, with its unit.
    pub across: String,
    /// The unit of that axis.
    pub across_unit: Unit,
    /// By rows, left to right.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
}

/// One of the small pictures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// The unit of the axis up.
    pub unit: Unit,
    /// How the axis up grows.
    pub scale: ScaleKind,
    /// The axis up goes this far at least.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// A line across: what should not be exceeded.
    pub limit: Option<Limit>,
    /// A line each.
    pub lines: Vec<Line>,
}

/// How an axis grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleKind {
    /// From zero, in equal steps.
    Linear,
    /// In equal factors.
    Log,
}

/// What should not be exceeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// In the unit of the axis up.
    pub value: f64,
}

/// What was measured under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The setting.
    pub setting: String,
    /// Across and up, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How often two numbers were seen together (thesis "SHIM and Its Applications", Figure 3.14).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The number across.
    pub across: Quantity,
    /// The number up.
    pub up: Quantity,
    /// Where anything was seen.
    pub cells: Vec<Cell>,
}

/// A number with a name and a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
}

/// One cell of a heat map.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// From, included, and to, excluded, across. From zero lies all that is too small for a cell of
    /// its own, and nothing.
    pub across: (f64, f64),
    /// From and to, up.
    pub up: (f64, f64),
    /// So often both were within.
    pub count: u64,
}

/// Numbers by name, as bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// What is in the rows.
    pub of: String,
    /// What is told of each.
    pub columns: Vec<Quantity>,
    /// From top to bottom.
    pub rows: Vec<BarRow>,
}

/// One line of bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarRow {
    /// Its name.
    pub name: String,
    /// A number for each column; nothing where it was not measured.
    pub values: Vec<Option<f64>>,
}
