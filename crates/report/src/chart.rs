//! Charts that the page draws without a script: means with their intervals, lines in small multiples, heat maps, and
//! bars.
//!
//! Like curves and timelines, these charts are optional keys of a results file, and hold values as they were measured.
//! A number from another source, such as a paper, has no interval, and its series names the source. It is drawn
//! differently from a measurement.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// A chart of means with their confidence intervals, by name, like Elfen's Fig. 8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Heading of the chart.
    pub title: String,
    /// Text that explains how to read the chart.
    pub caption: String,
    /// Unit of all numbers in the chart.
    pub unit: Unit,
    /// Quantity on the horizontal axis.
    pub across: String,
    /// Groups of the chart, each with one line per mean.
    pub groups: Vec<IntervalGroup>,
}

/// Means that are compared under one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalGroup {
    /// Name of the group.
    pub name: String,
    /// Mean of each series that has one.
    pub means: Vec<Mean>,
}

/// A mean with its confidence interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Name of the series.
    pub series: String,
    /// Value of the mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval; `None` if the mean is from another source, such as a paper.
    pub half_width: Option<f64>,
}

/// A chart of ratios of two variants, on an axis whose middle is "no difference".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Heading of the chart.
    pub title: String,
    /// Text that explains how to read the chart.
    pub caption: String,
    /// Names of the baseline, and of the variant that is compared with it.
    pub of: [String; 2],
    /// Figures of the chart, from top to bottom.
    pub lines: Vec<RatioLine>,
}

/// Ratio of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RatioLine {
    /// Name of the figure.
    pub name: String,
    /// Values of the figure: of the baseline, and of the variant, with their units.
    pub values: [String; 2],
    /// Measured ratio.
    pub ratio: f64,
    /// Ends of the 95 % confidence interval; `None` if there were too few pairs of runs.
    pub ends: Option<[f64; 2]>,
}

/// A chart of several panels with the same horizontal axis, like Elfen's Figs. 10 and 11.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Multiples {
    /// Heading of the chart.
    pub title: String,
    /// Text that explains how to read the chart.
    pub caption: String,
    /// Quantity on the horizontal axis, with its unit.
    pub across: String,
    /// Unit of the horizontal axis.
    pub across_unit: Unit,
    /// Panels of the chart, row by row, left to right.
    pub panels: Vec<Panel>,
    /// Number of panels in a row.
    pub columns: usize,
}

/// One panel of a chart of small multiples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Heading of the panel.
    pub title: String,
    /// Unit of the vertical axis.
    pub unit: Unit,
    /// Scale of the vertical axis.
    pub scale: ScaleKind,
    /// Value to which the vertical axis reaches at least.
    #[serde(default)]
    pub up_to: Option<f64>,
    /// Horizontal line at a limit of the values.
    pub limit: Option<Limit>,
    /// Lines of the panel, one for each setting.
    pub lines: Vec<Line>,
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleKind {
    /// Linear scale, from zero.
    Linear,
    /// Logarithmic scale, on which equal factors have equal distances.
    Log,
}

/// Limit that values should not exceed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Name of the limit.
    pub name: String,
    /// Value of the limit, in the unit of the vertical axis.
    pub value: f64,
}

/// Values measured with one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name of the setting.
    pub setting: String,
    /// Points (horizontal, vertical), from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A heat map: how often two numbers occurred together (thesis "SHIM and Its Applications", Figure 3.14).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// Heading of the chart.
    pub title: String,
    /// Text that explains how to read the chart.
    pub caption: String,
    /// Quantity on the horizontal axis.
    pub across: Quantity,
    /// Quantity on the vertical axis.
    pub up: Quantity,
    /// Cells with at least one sample.
    pub cells: Vec<Cell>,
}

/// Name and unit of a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// Name of the quantity.
    pub name: String,
    /// Unit of the quantity.
    pub unit: Unit,
}

/// One cell of a heat map.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Horizontal range of the cell: start included, end excluded. A cell that starts at zero has all values, zero
    /// included, that are too small for a cell of their own.
    pub across: (f64, f64),
    /// Vertical range of the cell: start included, end excluded.
    pub up: (f64, f64),
    /// Number of samples in the cell.
    pub count: u64,
}

/// A table of numbers by name, drawn as bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Heading of the chart.
    pub title: String,
    /// Text that explains how to read the chart.
    pub caption: String,
    /// Heading of the column that has the names of the rows.
    pub of: String,
    /// Quantities of the chart, one column each.
    pub columns: Vec<Quantity>,
    /// Rows of the chart, from top to bottom.
    pub rows: Vec<BarRow>,
}

/// One row of bars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarRow {
    /// Name of the row.
    pub name: String,
    /// Number for each column; `None` if it was not measured.
    pub values: Vec<Option<f64>>,
}
