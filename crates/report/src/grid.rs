//! Text layout for a terminal: aligned columns, wrapped lines, colours.

/// Space between columns.
pub const GAP: &str = "  ";

/// A table for a terminal: the first column has the settings, aligned left; numbers are aligned right.
pub struct Grid {
    /// Lines of each column's title.
    titles: Vec<Vec<String>>,
    /// Lines of cells; a row with a long setting has several.
    lines: Vec<Vec<String>>,
    widths: Vec<usize>,
}

/// Largest width of settings, in fifths of the table's width.
const SETTING_FIFTHS: usize = 2;
/// Indentation of the further lines of a long setting.
const SETTING_INDENT: &str = "  ";

impl Grid {
    /// Aligns `cells`; each row has one cell for each of `titles`. Settings are broken so that numbers have room in
    /// `width`.
    pub fn new(titles: &[&str], cells: Vec<Vec<String>>, width: usize) -> Grid {
        let cells: Vec<Vec<String>> =
            cells.into_iter().flat_map(|row| lines_of_row(row, width * SETTING_FIFTHS / 5)).collect();
        let columns = titles.iter().enumerate();
        let (titles, widths) = columns
            .map(|(index, title)| {
                let cell_width = max_display_width(cells.iter().map(|row| row[index].as_str()));
                let title = wrap(title, cell_width);
                let width = cell_width.max(max_display_width(title.iter().map(String::as_str)));
                (title, width)
            })
            .unzip();
        Grid { titles, lines: cells, widths }
    }

    /// Aligns `cells` as [`Grid::new`] does. A table that is wider than `width` is split into several, each with the
    /// settings.
    pub fn split_to_fit(titles: &[&str], cells: &[Vec<String>], width: usize) -> Vec<Grid> {
        let part = |from: usize, to: usize| {
            let titles = [&titles[..1], &titles[from..to]].concat();
            Grid::new(&titles, cells.iter().map(|row| [&row[..1], &row[from..to]].concat()).collect(), width)
        };
        let (mut grids, mut from) = (Vec::new(), 1);
        while from < titles.len() {
            let fits = |to: &usize| part(from, *to).width() <= width;
            let to = (from + 1..=titles.len()).rev().find(fits).unwrap_or(from + 1);
            grids.push(part(from, to));
            from = to;
        }
        grids
    }

    /// Draws `cells` indented by `indent`, as one table or several that fit in `width`: see [`Grid::split_to_fit`].
    pub fn draw_indented(titles: &[&str], cells: &[Vec<String>], width: usize, indent: &str, ink: Ink) -> String {
        let grids = Self::split_to_fit(titles, cells, width - indent.len());
        let tables: Vec<String> = grids.iter().map(|grid| grid.draw(ink)).collect();
        tables.join("\n").lines().map(|line| format!("{indent}{line}\n")).collect()
    }

    /// Returns the number of terminal columns that the table needs.
    pub fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + GAP.len() * self.widths.len().saturating_sub(1)
    }

    /// Draws the titles, a rule and the rows, each with a line end.
    pub fn draw(&self, ink: Ink) -> String {
        let mut text = String::new();
        for line in self.title_lines() {
            text += &ink.bold(&self.aligned_line(&line));
            text.push('\n');
        }
        text += &ink.dim(&"─".repeat(self.width()));
        text.push('\n');
        for line in &self.lines {
            text += &self.aligned_line(line);
            text.push('\n');
        }
        text
    }

    /// Returns the title lines from top to bottom; short titles are on the last line.
    fn title_lines(&self) -> Vec<Vec<String>> {
        let height = self.titles.iter().map(Vec::len).max().unwrap_or(0);
        let line_of = |title: &Vec<String>, line: usize| {
            let in_title = line.checked_sub(height - title.len());
            in_title.map_or_else(String::new, |line| title[line].clone())
        };
        let titles_at = |line| self.titles.iter().map(|t| line_of(t, line)).collect();
        (0..height).map(titles_at).collect()
    }

    fn aligned_line(&self, cells: &[String]) -> String {
        let pad = |(index, (cell, &width)): (usize, (&String, &usize))| match index {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        let padded: Vec<String> = cells.iter().zip(&self.widths).enumerate().map(pad).collect();
        padded.join(GAP).trim_end().to_owned()
    }
}

/// Splits a row whose setting is wider than `width` into lines; further lines have no numbers.
fn lines_of_row(mut row: Vec<String>, width: usize) -> Vec<Vec<String>> {
    if display_width(&row[0]) <= width {
        return vec![row];
    }
    let mut parts = fold(&row[0], width.saturating_sub(SETTING_INDENT.len())).into_iter();
    let empty = vec![String::new(); row.len() - 1];
    row[0] = parts.next().unwrap_or_default();
    let below = parts.map(|part| std::iter::once(SETTING_INDENT.to_owned() + &part).chain(empty.clone()).collect());
    std::iter::once(row).chain(below.collect::<Vec<_>>()).collect()
}

/// Breaks the lines of a text that already has a layout at `width`. The rest of a longer line follows below, indented
/// further than the line's beginning.
pub fn fit_to_width(text: &str, width: usize) -> String {
    text.lines().map(|line| fit_line_to_width(line, width)).collect()
}

fn fit_line_to_width(line: &str, width: usize) -> String {
    if display_width(line) <= width {
        return format!("{line}\n");
    }
    let begin = display_width(line) - display_width(line.trim_start());
    let indent = " ".repeat((begin + 2 * SETTING_INDENT.len()).min(width / 2));
    let (first, rest) = line.split_at(break_position(line, width));
    let below = fold(rest, width - indent.len()).into_iter().map(|part| format!("{indent}{part}\n"));
    format!("{}\n{}", first.trim_end(), below.collect::<String>())
}

/// Returns the position of the last blank up to which the line fits into `width`. If the first word is longer, the
/// position is within that word.
fn break_position(line: &str, width: usize) -> usize {
    let end = line.char_indices().nth(width).map_or(line.len(), |(at, _)| at);
    let begin = line.len() - line.trim_start().len();
    // A blank right after the last character that fits is a good break, too.
    let fits = &line[..end + line[end..].chars().next().map_or(0, char::len_utf8)];
    let mut blanks = fits.rmatch_indices(' ').map(|(at, _)| at).take_while(|at| *at > begin);
    blanks.find(|at| !is_within_quantity(line, *at)).unwrap_or_else(|| last_break_before(line, end))
}

/// Breaks `text` into lines of at most `width`, between words. A longer word gets a line of its own. A number and its
/// unit are one word.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    words_to_lines(split_words(text), width)
}

/// Breaks `text` as [`wrap`] does, and also breaks a word longer than `width`, so no line is longer.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    words_to_lines(split_words(text).flat_map(|word| split_word(word, width.max(1))), width)
}

fn words_to_lines<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if display_width(line) + 1 + display_width(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Splits `text` into words; a number and its unit are one word.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let blanks = rest.char_indices().filter(|(_, letter)| letter.is_whitespace()).map(|(at, _)| at);
        let end = blanks.into_iter().find(|at| !is_within_quantity(rest, *at)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// Signs that stand before a number and stay with it.
const SIGNS: [&str; 6] = ["≤", "<", "≥", ">", "=", "±"];
const UNITS: [&str; 19] =
    ["ns", "µs", "ms", "s", "min", "h", "%", "/s", "cycles", "M", "J", "W", "B", "kB", "KiB", "MB", "MiB", "GB", "GiB"];

/// Returns whether the blank at `at` is between a number and its unit or its sign.
fn is_within_quantity(text: &str, at: usize) -> bool {
    let (before, after) = text.split_at(at);
    let Some(after) = after.strip_prefix(' ') else { return false };
    let last = before.rsplit(char::is_whitespace).next().unwrap_or_default().trim_start_matches(['(', '[']);
    let next = after.split(char::is_whitespace).next().unwrap_or_default();
    let unit = next.trim_end_matches([',', ';', '.', ':', ')', ']']);
    let is_number = last.ends_with(|letter: char| letter.is_ascii_digit());
    is_number && UNITS.contains(&unit)
        || SIGNS.contains(&last) && next.starts_with(|letter: char| letter.is_ascii_digit())
        || last == "M" && unit == "cycles"
}

/// Characters after which a long word is best broken: they end a part of a path or of a name.
const JOINTS: [char; 6] = ['/', '-', '_', '.', ':', ' '];

/// Splits `word` into pieces of at most `width`. A number and its unit are split at the blank, if they have to be.
fn split_word(word: &str, width: usize) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let end = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| last_break_before(rest, at));
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece.trim_end())
    })
}

/// Returns the position after the last of `JOINTS` before `end`. If that would leave a piece of less than half of
/// `end`, returns `end`.
fn last_break_before(word: &str, end: usize) -> usize {
    if word[end..].starts_with(' ') {
        return end;
    }
    word[..end].rfind(JOINTS).map(|at| at + 1).filter(|at| *at > end / 2).unwrap_or(end)
}

/// Returns the length of `text` in terminal columns. All characters printed here are one column wide.
pub fn display_width(text: &str) -> usize {
    text.chars().count()
}

/// Returns the length of the longest of `texts`.
pub fn max_display_width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(display_width).max().unwrap_or(0)
}

/// Choice of plain or coloured output.
#[derive(Clone, Copy)]
pub struct Ink {
    /// Whether to write colours at all.
    pub color: bool,
}

impl Ink {
    /// Returns the text without colour.
    pub fn plain(text: &str) -> String {
        text.to_owned()
    }

    /// Returns the text in bold, for titles and names.
    pub fn bold(self, text: &str) -> String {
        self.with_color_code("1", text)
    }

    /// Returns the text dimmed, for rules.
    pub fn dim(self, text: &str) -> String {
        self.with_color_code("2", text)
    }

    /// Returns the text in red, for checks that are missed.
    pub fn red(self, text: &str) -> String {
        self.with_color_code("31", text)
    }

    /// Returns the text in green, for checks that hold.
    pub fn green(self, text: &str) -> String {
        self.with_color_code("32", text)
    }

    /// Returns the text in yellow, for warnings.
    pub fn yellow(self, text: &str) -> String {
        self.with_color_code("33", text)
    }

    fn with_color_code(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn short_titles_align_with_the_last_line_of_a_long_one() {
        let cells = vec![strings(&["a", "1 µs"]), strings(&["longer", "22 µs"])];
        let grid = Grid::new(&["name", "batch off"], cells, 80);
        let expected = "        batch\nname      off\n─────────────\na        1 µs\nlonger  22 µs\n";
        assert_eq!(grid.draw(Ink { color: false }), expected);
        assert_eq!(grid.width(), 13);
    }

    #[test]
    fn lines_break_between_words_only() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable x", 4), ["unbreakable", "x"]);
        assert!(wrap("  ", 4).is_empty());
    }

    #[test]
    fn line_that_fits_keeps_its_layout() {
        let text = "  server time p50 9.0 µs  p95 12.0 µs\n  short   as   it is\n";
        assert_eq!(fit_to_width(text, 40), text);
        assert_eq!(fit_to_width(text, 26), "  server time p50 9.0 µs\n      p95 12.0 µs\n  short   as   it is\n");
        assert_eq!(fit_to_width("abcdefgh", 5), "abcde\n  fgh\n");
        for width in 10..60 {
            assert!(fit_to_width(text, width).lines().all(|line| display_width(line) <= width), "{width}");
        }
    }

    #[test]
    fn a_number_stays_with_its_unit_and_its_sign() {
        assert_eq!(wrap("p99 of 12.5 ms", 11), ["p99 of", "12.5 ms"]);
        assert_eq!(wrap("bound (≤ 1 %), then", 8), ["bound", "(≤ 1 %),", "then"]);
        assert_eq!(wrap("it took 2.5 M cycles.", 14), ["it took", "2.5 M cycles."]);
        assert_eq!(wrap("on 2 CPUs", 4), ["on 2", "CPUs"]);
        assert_eq!(fit_to_width("latency p50 9.0 µs", 15), "latency p50\n    9.0 µs\n");
        assert_eq!(fold("123456 ms", 6), ["123456", "ms"]);
    }

    #[test]
    fn too_long_word_is_broken() {
        assert_eq!(fold("a /path/of/it", 6), ["a", "/path/", "of/it"]);
        assert_eq!(fold("≤≤≤ ≥", 2), ["≤≤", "≤", "≥"]);
        assert_eq!(fold("lucene+loop/dynamic-refresh", 16), ["lucene+loop/", "dynamic-refresh"]);
    }
}
