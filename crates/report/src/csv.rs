//! Rows of a result as CSV (RFC 4180), for spreadsheets and data frames.
//!
//! One table has all rows. It has a column for each key that some row has, in the order in which the rows first have
//! them. The keys are those of the JSON, so each ends in its unit. A number that was not measured is an empty cell.

use std::path::Path;

use crate::result::ResultFile;
use crate::row::Row;
use crate::whole_file::{WriteError, write_atomically};

impl ResultFile {
    /// Returns the rows as CSV.
    pub fn to_csv(&self) -> String {
        let keys = distinct_keys(&self.rows);
        let head = std::iter::once("setting").chain(keys.iter().copied());
        let lines = self.rows.iter().map(|row| csv_line(cells(row, &keys)));
        std::iter::once(csv_line(head.map(str::to_owned))).chain(lines).collect()
    }

    /// Writes the rows as CSV to `path`, completely or not at all.
    pub fn write_csv(&self, path: &Path) -> Result<(), WriteError> {
        write_atomically(path, self.to_csv().as_bytes())
    }
}

fn distinct_keys(rows: &[Row]) -> Vec<&str> {
    let mut keys: Vec<&str> = Vec::new();
    for key in rows.iter().flat_map(Row::keys) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn cells<'a>(row: &'a Row, keys: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let number = |key: &&str| row.get(key).map_or_else(String::new, |value| value.to_string());
    std::iter::once(row.setting().to_owned()).chain(keys.iter().map(number))
}

fn csv_line(cells: impl Iterator<Item = String>) -> String {
    cells.map(|cell| quote_if_needed(&cell)).collect::<Vec<_>>().join(",") + "\r\n"
}

/// Returns a cell in quotes if a comma, a quote or a line end in it would be misread.
fn quote_if_needed(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn csv_is_one_table_with_empty_cells_for_missing_values() {
        let mut result = sample::demo();
        let mut first = Row::new("search, \"hot\"");
        first.put("p99_us", 812.5).put("memory_stall_per_access_cycles", None);
        let mut second = Row::new("alone");
        second.put("overlap_percent", 3.0);
        result.rows = vec![first, second];
        let wanted = "setting,p99_us,memory_stall_per_access_cycles,overlap_percent\r\n\"search, \
                      \"\"hot\"\"\",812.5,,\r\nalone,,,3\r\n";
        assert_eq!(result.to_csv(), wanted);
    }
}
