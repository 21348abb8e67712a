//! Writes the man pages and shell completions of `sidelane`, and the man pages of `sidelane-lab`, into a folder such as
//! `/usr/share`, from their command lines.
//!
//! Programs of their own, so that the product does not carry what is written once for each package.
//!
//! # Invariants
//!
//! - Each verb has a man page, those of the product with examples (`src/lib.rs`:
//!   `each_verb_has_a_page_with_examples`, `each_verb_of_the_laboratory_has_a_page`).
//! - No page and no script has an error (`src/lib.rs`: `man_pages_have_no_warnings`,
//!   `completions_are_valid_for_each_shell`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use sidelane::cli::{Cli, Shell};
use sidelane::verbs::completions::completions;

/// Begin of the exit codes in a verb's help.
const EXIT_CODES: &str = "Exit code: ";
/// Shells, each with the file of its completions below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/sidelane"),
    (Shell::Fish, "fish/vendor_completions.d/sidelane.fish"),
    (Shell::Zsh, "zsh/vendor-completions/_sidelane"),
];

/// Writes man pages and completions into a folder such as `/usr/share`.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write_pages_and_completions(share: &Path) -> Result<()> {
    write_man_pages(&Cli::command(), share)?;
    write_completions(share)
}

/// Writes a page for the command and for each of its verbs that users see, into a folder such as `/usr/share`.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write_man_pages(command: &Command, share: &Path) -> Result<()> {
    let folder = &share.join("man/man1");
    let context = || format!("cannot write man pages into {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    let mut whole = command.clone().disable_help_subcommand(true);
    whole.build();
    let version = whole.get_version().unwrap_or_default().to_owned();
    for verb in visible_commands(&whole) {
        let page = Man::new(verb.clone());
        let text = man_page(&page, verb, command.get_name(), &version).with_context(context)?;
        fs::write(folder.join(page.get_filename()), text).with_context(context)?;
    }
    Ok(())
}

/// Returns the command and all its verbs that users see.
fn visible_commands(command: &Command) -> Vec<&Command> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    [command].into_iter().chain(shown.flat_map(visible_commands)).collect()
}

/// Returns a page with the verb's examples and exit codes in the sections where readers look for them.
fn man_page(page: &Man, verb: &Command, command: &str, version: &str) -> io::Result<Vec<u8>> {
    let name = verb.get_display_name().unwrap_or(command);
    // `Man::render_title` leaves an empty date out, and what comes behind takes its place.
    let mut text = format!(".TH \"{name}\" 1 \"\" \"{command} {version}\" Sidelane\n").into_bytes();
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if verb.get_subcommands().any(|verb| !verb.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::default();
    add_examples(&mut rest, verb);
    add_exit_codes(&mut rest, verb);
    if verb.get_name() != command {
        rest.control("SH", ["SEE ALSO"]).text([bold(command), roman("(1)")]);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// Adds the commands that the help begins with, each below the line that says what it does.
fn add_examples(page: &mut Roff, verb: &Command) {
    let Some(examples) = verb.get_before_help().map(ToString::to_string) else { return };
    page.control("SH", ["EXAMPLES"]);
    for line in examples.lines() {
        match line.strip_prefix("  ") {
            Some(command) => page.control("RS", ["4"]).text([bold(command)]).control("RE", []).control("PP", []),
            None => page.text([roman(line)]),
        };
    }
}

/// Adds the end of the help: exit codes, and other notes before them.
fn add_exit_codes(page: &mut Roff, verb: &Command) {
    let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, codes) = help.split_once(EXIT_CODES).unwrap_or((&help, ""));
    for (heading, text) in [("NOTES", notes), ("EXIT STATUS", codes)] {
        if !text.trim().is_empty() {
            page.control("SH", [heading]).text([roman(text.trim())]);
        }
    }
}

fn write_completions(share: &Path) -> Result<()> {
    for (shell, file) in COMPLETIONS {
        let file = share.join(file);
        let folder = file.parent().expect("it lies below `share`");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, completions(shell)))
            .with_context(|| format!("cannot write completions into {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command as Program, Output, Stdio};

    use sidelane_testing::skip;

    use super::*;

    /// Writes everything of the product into a folder.
    fn written() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write_pages_and_completions(folder.path()).unwrap();
        folder
    }

    /// Writes the pages of the laboratory into a folder.
    fn written_of_laboratory() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write_man_pages(&sidelane_lab::cli::Cli::command(), folder.path()).unwrap();
        folder
    }

    fn man_pages(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder.join("man/man1")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Runs a program that may not be installed: then the test is skipped.
    fn run_or_skip(program: &str, args: &[&str], file: &Path) -> Option<Output> {
        let run = Program::new(program).args(args).arg(file).env("MANROFFSEQ", "").stdin(Stdio::null()).output();
        run.map_err(|error| skip(format!("{program}: {error}"))).ok()
    }

    #[test]
    fn each_verb_has_a_page_with_examples() {
        let folder = written();
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let verbs = visible_commands(&command);
        assert!(verbs.len() > 15 && verbs.len() == man_pages(folder.path()).len(), "{}", verbs.len());
        for verb in verbs {
            let name = verb.get_display_name().unwrap_or(verb.get_name());
            let page = fs::read_to_string(folder.path().join(format!("man/man1/{name}.1"))).unwrap();
            for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES"] {
                assert!(page.contains(section), "{name}: {section} is missing");
            }
            let hidden = command.get_subcommands().filter(|verb| verb.is_hide_set());
            hidden.for_each(|hidden| assert!(!page.contains(&format!("sidelane\\-{}", hidden.get_name())), "{name}"));
        }
        let run = fs::read_to_string(folder.path().join("man/man1/sidelane-run.1")).unwrap();
        assert!(run.contains(".SH \"EXIT STATUS\""), "{run}");
    }

    #[test]
    fn each_verb_of_the_laboratory_has_a_page() {
        let folder = written_of_laboratory();
        let mut command = sidelane_lab::cli::Cli::command().disable_help_subcommand(true);
        command.build();
        let verbs = visible_commands(&command);
        assert!(verbs.len() > 12 && verbs.len() == man_pages(folder.path()).len(), "{}", verbs.len());
        let hold = fs::read_to_string(folder.path().join("man/man1/sidelane-lab-bench-hold.1")).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"EXIT STATUS\""] {
            assert!(hold.contains(section), "{section} is missing: {hold}");
        }
    }

    #[test]
    fn man_pages_have_no_warnings() {
        let folders = [written(), written_of_laboratory()];
        for page in folders.iter().flat_map(|folder| man_pages(folder.path())) {
            let Some(output) = run_or_skip("man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"], &page) else {
                return;
            };
            let warnings = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
        }
    }

    #[test]
    fn completions_are_valid_for_each_shell() {
        let folder = written();
        for (shell, path) in [
            ("bash", "bash-completion/completions/sidelane"),
            ("zsh", "zsh/vendor-completions/_sidelane"),
            ("fish", "fish/vendor_completions.d/sidelane.fish"),
        ] {
            let Some(output) = run_or_skip(shell, &["-n"], &folder.path().join(path)) else { continue };
            assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
        }
    }

    #[test]
    fn bash_completes_verbs_and_options() {
        let folder = written();
        let script = "source \"$1\"; COMP_WORDS=(sidelane $2); COMP_CWORD=1; [ -z \"$3\" ] || { COMP_WORDS+=(\"$3\"); COMP_CWORD=2; }; \
                      _sidelane sidelane \"${COMP_WORDS[COMP_CWORD]}\" \"$2\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        for (verb, word, expected) in [("do", "", "doctor"), ("run", "--serv", "--service")] {
            let file = folder.path().join("bash-completion/completions/sidelane");
            let run = Program::new("bash").args(["-c", script, "bash"]).arg(file).args([verb, word]).output();
            let Ok(output) = run else { return skip("bash is not installed") };
            let reply = String::from_utf8_lossy(&output.stdout);
            assert!(reply.lines().any(|line| line == expected), "{verb} {word}: {output:?}");
        }
    }
}
