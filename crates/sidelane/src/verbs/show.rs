//! Output of results, for all verbs: checks that files can be written, writes them, and prints.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::cli::{JsonFile, ResultFiles, TableArgs};
use sidelane_report::{Column, ResultFile, Style, check_directory_exists, html, table, terminal, write_atomically};

pub fn check_json_writable(json: &JsonFile) -> Result<()> {
    Ok(json.file.as_deref().map_or(Ok(()), check_directory_exists)?)
}

pub fn check_csv_writable(table: &TableArgs) -> Result<()> {
    Ok(table.csv.as_deref().map_or(Ok(()), check_directory_exists)?)
}

pub fn check_files_writable(files: &ResultFiles) -> Result<()> {
    Ok(files.paths().try_for_each(check_directory_exists)?)
}

/// Checks the files of an observation or a trace: those of any result, and one for Perfetto.
pub fn check_outputs_writable(files: &ResultFiles, perfetto: Option<&Path>) -> Result<()> {
    check_files_writable(files)?;
    Ok(perfetto.map_or(Ok(()), check_directory_exists)?)
}

/// Writes a result as a page to the file `page`. Without `page`, writes it to the file `opened`. If `opened` is given,
/// opens the page in the browser; prints the path of a page that was not opened.
pub fn write_and_open_page(result: &ResultFile, page: Option<PathBuf>, page_to_open: Option<&str>) -> Result<()> {
    let Some(page) = page.or_else(|| page_to_open.map(PathBuf::from)) else { return Ok(()) };
    html::write_page(result, &page)?;
    if page_to_open.is_none_or(|_| !html::open_page(&page)) {
        terminal::print(&format!("\npage: {}\n", page.display()))?;
    }
    Ok(())
}

/// First error of several outputs: a failed output, as on a full disk, does not prevent the others.
#[derive(Default)]
pub struct FirstError(Option<anyhow::Error>);

impl FirstError {
    /// Stores the error of an output, unless an earlier one failed.
    pub fn keep_error<E: Into<anyhow::Error>>(&mut self, output: Result<(), E>) {
        if let Err(error) = output {
            self.0.get_or_insert(error.into());
        }
    }

    /// Returns `value`, unless an output failed.
    pub fn into_result<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// Writes a result, and prints a table for each kind of its rows. Files are written first, because the measurement took
/// long and the terminal may be closed.
pub fn show_tables(result: &ResultFile, is_column_shown: impl Fn(&Column) -> bool, files: &ResultFiles) -> Result<u8> {
    let mut failed = FirstError::default();
    failed.keep_error(files.json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(files.table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    failed.keep_error(files.page.as_deref().map_or(Ok(()), |path| html::write_page(result, path)));
    failed.keep_error(terminal::print(&table::render_tables(result, is_column_shown, style(&files.table))));
    failed.into_result(result.exit_code())
}

/// Writes a value as JSON to a file, before anything is printed.
pub fn write_json(json: Option<&Path>, value: &impl Serialize) -> Result<()> {
    let Some(path) = json else { return Ok(()) };
    Ok(write_atomically(path, &serde_json::to_vec_pretty(value)?)?)
}

/// Writes a result to the wanted files, and prints nothing.
pub fn write_files(result: &ResultFile, json: &JsonFile, table: &TableArgs) -> Result<()> {
    let mut failed = FirstError::default();
    failed.keep_error(json.file.as_deref().map_or(Ok(()), |path| result.write_json(path)));
    failed.keep_error(table.csv.as_deref().map_or(Ok(()), |path| result.write_csv(path)));
    failed.into_result(())
}

/// Writes a result as JSON, and prints it as a table.
pub fn write_json_and_print_table(
    result: &ResultFile,
    columns: &[Column],
    json: &JsonFile,
    table: &TableArgs,
) -> Result<u8> {
    let mut failed = FirstError::default();
    failed.keep_error(write_files(result, json, table));
    failed.keep_error(terminal::print(&table::render(result, columns, style(table))));
    failed.into_result(result.exit_code())
}

/// Returns the style of tables on this terminal, or in this pipe.
pub fn style(table: &TableArgs) -> Style {
    Style { width: terminal::stdout_width(), color: terminal::should_use_color(), detail: table.detail.into() }
}
