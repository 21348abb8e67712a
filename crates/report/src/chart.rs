//! The charts that the page draws without a script: means with their intervals, lines in small
//! multiples, heat maps, and bars.
//!
//! Like curves and timelines these are optional keys of a results file, and hold values as they
//! were measured. A number from another source, such as a paper, has no interval, and its series
//! names the source; it is drawn differently from a measurement.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Means with their intervals, by name: Elfen's Fig. 8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// The chart's heading.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The unit of all numbers.
    pub unit: Unit,
    /// The quantity on the horizontal axis.
    pub across: String,
    /// The groups, one line of the chart each.
    pub groups: Vec<IntervalGroup>,
}

/// The means that are compared under one name.
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
    /// The series.
    pub series: String,
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval. `None`: not measured here.
    pub half_width: Option<f64>,
}

/// Several panels with the same horizontal axis: Elfen's Figs. 10 and 11.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Multiples {
    /// The chart's heading.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The quantity on the horizontal axis, with its unit.
    pub across: String,
    /// The unit of the horizontal axis.
    pub across_unit: Unit,
    /// The panels, row by row, left to right.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
}

/// One panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The panel's heading.
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: Unit,
    /// The scale of the vertical axis.
    pub scale: ScaleKind,
    /// The vertical axis reaches at least to this value.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// A horizontal line at a limit of the values.
    pub limit: Option<Limit>,
    /// The lines of the panel.
    pub lines: Vec<Line>,
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleKind {
    /// Linear, from zero.
    Linear,
    /// Logarithmic.
    Log,
}

/// A limit that values should not exceed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// The limit, in the unit of the vertical axis.
    pub value: f64,
}

/// The values measured with one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The setting.
    pub setting: String,
    /// Points (horizontal, vertical), from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How often two numbers were seen together (thesis "SHIM and Its Applications", Figure 3.14).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// The chart's heading.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The quantity on the horizontal axis.
    pub across: Quantity,
    /// The quantity on the vertical axis.
    pub up: Quantity,
    /// The cells with at least one sample.
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
    /// Horizontal range: start included, end excluded. A cell that starts at zero has all values,
    /// zero included, that are too small for a cell of their own.
    pub across: (f64, f64),
    /// Vertical range.
    pub up: (f64, f64),
    /// Number of samples in the cell.
    pub count: u64,
}

/// Numbers by name, as bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// The chart's heading.
    pub title: String,
    /// How to read the chart.
    pub caption: String,
    /// The heading of the row names.
    pub of: String,
    /// The quantities, one column each.
    pub columns: Vec<Quantity>,
    /// The rows, from top to bottom.
    pub rows: Vec<BarRow>,
}

/// One line of bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarRow {
    /// Its name.
    pub name: String,
    /// A number for each column; `None` where it was not measured.
    pub values: Vec<Option<f64>>,
}
