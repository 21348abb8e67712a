//! Terminal table: a result as text, in as many columns as the terminal has.
//!
//! The finding comes first, then the verdict and the checks that do not hold, so that the first lines say what
//! matters. The tables follow, then the checks that hold, and the notes.
//!
//! Titles and settings are longer than cells, so they are broken into lines. If the table is still too wide, it is
//! split: the remaining columns follow below, with the settings repeated. A table is never cut off at the side. Long
//! tables end with the number of rows that are left out, unless everything is asked for.

use crate::check::{Check, Verdict};
use crate::grid::{GAP, Grid, Ink, display_width, fold, max_display_width};
use crate::result::ResultFile;
use crate::row::{Row, split_into_tables};
use crate::unit::{Unit, title_of_key};

/// Amount of a result that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The finding, the verdict and the checks that do not hold.
    Quiet,
    /// Also the tables, with at most 40 rows each, and at most 12 checks that hold.
    #[default]
    Usual,
    /// All rows and all checks.
    All,
}

/// A column of the table: a key of the rows, and its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Key in the rows. Its unit determines the format of the cells.
    pub key: String,
    /// Title above the cells.
    pub title: String,
}

impl Column {
    /// Creates a column titled `title`.
    pub fn new(key: impl Into<String>, title: impl Into<String>) -> Column {
        Column { key: key.into(), title: title.into() }
    }

    /// Creates a column whose title is made from the words of its key.
    pub fn from_key(key: &str) -> Column {
        Column::new(key, title_of_key(key))
    }

    /// Returns a column for every key for which some row has a number, in the order in which the rows first have the
    /// keys.
    pub fn from_rows(rows: &[Row]) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        let is_measured = |key: &&str| rows.iter().any(|row| row.get(key).is_some());
        for key in rows.iter().flat_map(Row::keys).filter(is_measured) {
            if columns.iter().all(|column| column.key != key) {
                columns.push(Column::from_key(key));
            }
        }
        columns
    }

    /// Returns the cell of `row` in this column, for users.
    pub fn cell(&self, row: &Row) -> String {
        Unit::from_key(&self.key).unwrap_or_default().human_or_missing(row.get(&self.key))
    }
}

/// Style in which a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Width of the terminal, in columns.
    pub width: usize,
    /// Whether to use colours; the caller decides, by the terminal and `NO_COLOR`.
    pub color: bool,
    /// Amount of the result that is shown.
    pub detail: Detail,
}

impl Style {
    fn ink(self) -> Ink {
        Ink { color: self.color }
    }
}

/// Most rows of a table, unless everything is shown.
const ROWS_SHOWN: usize = 40;
/// Most checks that hold and are listed, unless everything is shown.
const HOLDING_SHOWN: usize = 12;

/// Renders `result` as [`render`] does, with one table for each kind of rows. Each table has the columns of its own
/// rows for which `wanted` returns true.
pub fn render_tables(result: &ResultFile, is_wanted: impl Fn(&Column) -> bool, style: Style) -> String {
    let table = |of: &[Row]| {
        let columns: Vec<Column> = Column::from_rows(of).into_iter().filter(|column| is_wanted(column)).collect();
        render_rows(of, &columns, style)
    };
    render_with(|| split_into_tables(&result.rows).into_iter().map(table).collect(), result, style)
}

/// Renders the rows, checks and notes of `result` as text with lines of at most the style's width.
pub fn render(result: &ResultFile, columns: &[Column], style: Style) -> String {
    render_with(|| vec![render_rows(&result.rows, columns, style)], result, style)
}

/// Joins the finding, the verdict and the checks that do not hold; then the tables, the checks that hold, and the
/// notes.
fn render_with(tables: impl Fn() -> Vec<String>, result: &ResultFile, style: Style) -> String {
    let (width, ink) = (style.width, style.ink());
    let (holding, failing): (Vec<Check>, Vec<Check>) = result.checks.iter().cloned().partition(|check| check.ok);
    let finding = result.finding().into_iter().map(|sentence| paragraph(sentence, width, Ink::plain)).collect();
    let mut parts = vec![finding, verdict_line(result, width, ink) + &render_checks(&failing, width, ink)];
    if style.detail != Detail::Quiet {
        parts.push(result.title().map_or_else(String::new, |title| paragraph(&title, width, |text| ink.bold(text))));
        parts.extend(tables());
        parts.push(checks_that_hold(&holding, style));
        parts.push(render_notes(&result.notes, width, ink));
    }
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn paragraph(text: &str, width: usize, ink: impl Fn(&str) -> String) -> String {
    fold(text, width).iter().map(|line| ink(line) + "\n").collect()
}

fn render_rows(rows: &[Row], columns: &[Column], style: Style) -> String {
    if rows.is_empty() || columns.is_empty() {
        return String::new();
    }
    let shown = if style.detail == Detail::All { rows.len() } else { rows.len().min(ROWS_SHOWN) };
    let grids = split_into_grids(&rows[..shown], columns, style.width);
    let text = grids.iter().map(|grid| grid.draw(style.ink())).collect::<Vec<_>>().join("\n");
    match rows.len() - shown {
        0 => text,
        more => format!("{text}… and {more} more rows; -v shows them\n"),
    }
}

/// Splits the table into grids that fit, as few as possible.
fn split_into_grids(rows: &[Row], columns: &[Column], width: usize) -> Vec<Grid> {
    let names = columns.iter().map(|column| column.title.as_str());
    let titles: Vec<&str> = std::iter::once("setting").chain(names).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells_of(row, columns)).collect();
    Grid::split_to_fit(&titles, &cells, width)
}

fn cells_of(row: &Row, columns: &[Column]) -> Vec<String> {
    std::iter::once(row.setting().to_owned()).chain(columns.iter().map(|column| column.cell(row))).collect()
}

/// Lists the checks that hold, or writes their number if there are many.
fn checks_that_hold(holding: &[Check], style: Style) -> String {
    let (width, ink) = (style.width, style.ink());
    if holding.len() <= HOLDING_SHOWN || style.detail == Detail::All {
        return render_checks(holding, width, ink);
    }
    let many = format!("{} checks hold; -v shows them", holding.len());
    with_mark(verdict_mark(Verdict::Holds, ink), &fold(&many, width.saturating_sub(MARK_WIDTH)))
}

fn render_checks(checks: &[Check], width: usize, ink: Ink) -> String {
    let cells: Vec<[String; 4]> = checks.iter().map(check_cells).collect();
    let widths: Vec<usize> =
        (0..3).map(|column| max_display_width(cells.iter().map(|cells| cells[column].as_str()))).collect();
    let lines: Vec<String> = cells.iter().map(|cells| aligned_check(cells, &widths)).collect();
    let all_fit = lines.iter().all(|line| MARK_WIDTH + display_width(line) <= width);
    let of_check = |(check, line): (&Check, String)| {
        let lines = if all_fit { vec![line] } else { stacked_check(check, width) };
        with_mark(verdict_mark(check.verdict, ink), &lines)
    };
    checks.iter().zip(lines).map(of_check).collect()
}

/// Returns the cells of a check: name, measurement, its interval if it has one, and the bound.
fn check_cells(check: &Check) -> [String; 4] {
    [check.name.clone(), check.measured_text(), check.interval_text().unwrap_or_default(), check.bound_text()]
}

fn aligned_check([name, measured, interval, wanted]: &[String; 4], widths: &[usize]) -> String {
    let (name_width, measured_width, interval_width) = (widths[0], widths[1], widths[2]);
    let interval = match interval_width {
        0 => String::new(),
        width => format!("{GAP}{interval:<width$}"),
    };
    format!("{name:<name_width$}{GAP}{measured:>measured_width$}{interval}{GAP}{wanted}")
}

/// Returns a check for a narrow terminal: its name, and below it the numbers.
fn stacked_check(check: &Check, width: usize) -> Vec<String> {
    let interval = check.interval_text().map(|interval| format!(" ({interval})")).unwrap_or_default();
    let numbers = format!("{}{interval}, wanted {}", check.measured_text(), check.bound_text());
    [&check.name, &numbers].into_iter().flat_map(|text| fold(text, width.saturating_sub(MARK_WIDTH))).collect()
}

fn verdict_mark(verdict: Verdict, ink: Ink) -> String {
    match verdict {
        Verdict::Holds => ink.green("✓"),
        Verdict::Missed => ink.red("✗"),
        Verdict::Undecided => ink.yellow("?"),
    }
}

/// Writes the verdict of all checks in one line, with advice on what would decide the undecided checks.
fn verdict_line(result: &ResultFile, width: usize, ink: Ink) -> String {
    if result.checks.is_empty() {
        return String::new();
    }
    let lines = fold(&result.verdict(), width.saturating_sub(MARK_WIDTH));
    with_mark(verdict_mark(result.outcome(), ink), &lines)
}

fn render_notes(notes: &[String], width: usize, ink: Ink) -> String {
    let lines = |note: &String| fold(note, width.saturating_sub(MARK_WIDTH));
    notes.iter().map(|note| with_mark(ink.yellow("!"), &lines(note))).collect()
}

/// Width of a mark and the space after it.
const MARK_WIDTH: usize = 2;

/// Writes `lines` with `mark` before the first line, and the other lines indented by the mark's width.
fn with_mark(mark: String, lines: &[String]) -> String {
    let before_others = format!("\n{:MARK_WIDTH$}", "");
    format!("{mark} {}\n", lines.join(&before_others))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::super::unit::MISSING;
    use super::*;

    fn few_columns() -> Vec<Column> {
        vec![
            Column::from_key("p99_us"),
            Column::from_key("p99_over_alone"),
            Column::new("reaction_off_p50_ns", "batch off after"),
            Column::from_key("overlap_percent"),
        ]
    }

    fn style(width: usize, detail: Detail) -> Style {
        Style { width, color: false, detail }
    }

    fn render_usual(result: &ResultFile, width: usize) -> String {
        render(result, &few_columns(), style(width, Detail::Usual))
    }

    #[test]
    fn verdict_and_failed_checks_come_before_the_table() {
        let text = render_usual(&sample::demo(), 80);
        let expected = "✗ 1 of 4 checks does not hold
✗ overlap with borrow_idle  0.24 %  ≤ 0.20 %

Sidelane demo

                       p99   batch
                      over     off
setting         p99  alone   after  overlap
───────────────────────────────────────────
alone        812 µs  1.00×       —        —
unmanaged    3.1 ms  3.82×       —   27.4 %
sched_idle   1.5 ms  1.80×       —   26.9 %
borrow_idle  861 µs  1.06×  4.4 µs   0.24 %

✓ p99 with borrow_idle, over alone                   1.06×  ≤ 1.10×
✓ batch off its lane after the service starts, p50  4.4 µs  ≤ 5.0 µs
✓ idle time given to batch                          91.0 %  ≥ 80.0 %

! No hardware counters in this machine: stalls per access are not measured.
! The two lanes are declared a pair and share no core, so batch slows the
  service only through caches and memory; on SMT lanes the unmanaged p99 is
  worse.
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn quiet_shows_only_the_finding_and_failed_checks() {
        let text = render(&sample::demo(), &few_columns(), style(80, Detail::Quiet));
        assert_eq!(text, "✗ 1 of 4 checks does not hold\n✗ overlap with borrow_idle  0.24 %  ≤ 0.20 %\n");
    }

    #[test]
    fn table_wider_than_the_terminal_is_split() {
        let mut result = sample::demo();
        (result.checks, result.notes) = Default::default();
        let text = render_usual(&result, 30);
        let expected = "Sidelane demo

                       p99
                      over
setting         p99  alone
──────────────────────────
alone        812 µs  1.00×
unmanaged    3.1 ms  3.82×
sched_idle   1.5 ms  1.80×
borrow_idle  861 µs  1.06×

              batch
                off
setting       after  overlap
────────────────────────────
alone             —        —
unmanaged         —   27.4 %
sched_idle        —   26.9 %
borrow_idle  4.4 µs   0.24 %
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn long_setting_continues_on_the_next_line() {
        let mut result = sample::demo();
        result.rows =
            vec![result.rows[0].clone().named("search beside matrix, dynamic refresh"), result.rows[1].clone()];
        (result.checks, result.notes) = Default::default();
        let text = render_usual(&result, 44);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("search") || line.starts_with("  m")).collect();
        assert_eq!(lines[..2], ["search beside      812 µs  1.00×      —", "  matrix, dynamic"], "{text}");
        assert!(text.lines().all(|line| display_width(line) <= 44), "{text}");
    }

    #[test]
    fn number_of_omitted_rows_and_checks_is_shown() {
        let mut result = sample::demo();
        result.rows = (0..50).map(|number| result.rows[0].clone().named(format!("row {number}"))).collect();
        result.checks = (0..20).map(|_| result.checks[0].clone()).collect();
        let text = render_usual(&result, 100);
        assert!(text.contains("… and 10 more rows; -v shows them"), "{text}");
        assert!(
            text.starts_with("✓ all 20 checks hold\n") && text.contains("✓ 20 checks hold; -v shows them"),
            "{text}"
        );
        let all = render(&result, &few_columns(), style(100, Detail::All));
        assert!(all.contains("row 49") && all.matches("p99 with borrow_idle").count() == 20, "{all}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let result = sample::undecided_result();
        let columns = Column::from_rows(&result.rows);
        for width in [40, 60, 80, 100, 120, 200] {
            let text = render(&result, &columns, style(width, Detail::All));
            let widest = text.lines().map(display_width).max().unwrap();
            assert!(widest <= width, "{widest} characters for {width}:\n{text}");
        }
    }

    #[test]
    fn finding_and_undecided_checks_come_first() {
        let mut result = sample::undecided_result();
        result.rows.clear();
        result.notes.clear();
        let text = render_usual(&result, 80);
        let expected = "Batch beside search made p99 3.8 times as long; with Sidelane it stayed as it
was.

? 1 of 2 checks is undecided; what would decide it: run it without --quick
? p99 over alone  1.06×  1.01× to 1.11×  ≤ 1.10×

Sidelane demo (emulated sibling, 40 %)

✓ overlap  0.24 %  ≤ 1.0 %
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn colour_is_used_only_on_request() {
        let colored = render(&sample::demo(), &few_columns(), Style { color: true, ..style(100, Detail::Usual) });
        assert!(colored.contains("\x1b[32m✓\x1b[0m"));
        assert!(!render_usual(&sample::demo(), 100).contains('\x1b'));
    }

    #[test]
    fn each_measured_key_of_the_rows_has_a_column() {
        let columns = Column::from_rows(&sample::demo().rows);
        assert_eq!(columns[0], Column::new("p50_us", "p50"));
        assert!(columns.iter().any(|column| column.title == "batch share of idle"));
        assert_eq!(columns[0].cell(&Row::new("nothing measured")), MISSING);
        let mut unmeasured = Row::new("nothing measured");
        unmeasured.put("p50_us", None);
        assert_eq!(Column::from_rows(&[unmeasured]), []);
    }
}
