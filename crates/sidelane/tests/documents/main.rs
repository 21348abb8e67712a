//! Commands of README, the tutorial and the guides, run as printed.
//!
//! A block of commands has the language `sh`. The blocks of a page run in its order, in one shell, in a copy of the
//! repository, on a pseudo-terminal and in a network of their own. Each command has to exit with 0, and each process
//! has to end with the page. A comment on the line before a block, which readers do not see, changes that:
//!
//! | comment | the block |
//! |---|---|
//! | `<!-- not run: REASON -->` | cannot run in a test, for a reason in [`page::REASONS`] |
//! | `<!-- run by PAGE -->` | is not run again: each of its lines begins a line of a block that PAGE runs |
//! | `<!-- run by make test-kubernetes -->`, `make test-slurm` | is run by that test, on a node of its own |
//! | `<!-- exits with 0 or 99 -->` | ends with a command that may exit with each of these codes |
//! | `<!-- Ctrl-C after 5 s -->` | ends with a command that runs until Ctrl-C |

#[path = "../common/mod.rs"]
mod common;
mod page;
mod session;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use common::{can_observe_requests, holds_within, lock_lanes, process};
use page::{Page, Rule, root};
use session::Session;

/// Commands that run the blocks that need a cluster.
const CLUSTER_TESTS: [&str; 2] = ["make test-kubernetes", "make test-slurm"];
/// Largest number of blocks that no machine runs.
const NOT_RUN_MAX: usize = 12;
/// Time limit for processes that a page's commands have told to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Defines a test for each page, and the list of all pages.
macro_rules! pages {
    ($($test:ident: $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];

        $(
            #[test]
            fn $test() {
                run_page_commands($path);
            }
        )*
    };
}

pages! {
    readme: "README.md",
    batch_beside_jvm: "docs/guides/batch-beside-jvm.md",
    batch_beside_redis: "docs/guides/batch-beside-redis.md",
    big_little: "docs/guides/big-little.md",
    compare_runs: "docs/guides/compare-runs.md",
    containers: "docs/guides/containers.md",
    estimate: "docs/guides/estimate.md",
    gc_backup: "docs/guides/gc-backup.md",
    haproxy: "docs/guides/haproxy.md",
    install: "docs/guides/install.md",
    kubernetes: "docs/guides/kubernetes.md",
    messages: "docs/guides/messages.md",
    objective: "docs/guides/objective.md",
    questions: "docs/guides/questions.md",
    slow_service: "docs/guides/slow-service.md",
    slurm: "docs/guides/slurm.md",
    watch_live: "docs/guides/watch-live.md",
    whole_machine: "docs/guides/whole-machine.md",
    first_hour: "docs/tutorial/first-hour.md",
    one_liners: "docs/tutorial/one-liners.md",
}

/// Runs the commands of a page, if this machine can.
fn run_page_commands(path: &str) {
    let page = Page::read(path);
    for block in page.commands() {
        match &block.rule {
            Rule::NotRun(reason) if !block.is_tested_here() => block.lines.iter().for_each(|line| {
                println!("{path}:{}: not run, {reason}: {line}", block.line);
            }),
            Rule::RunBy(other) => println!("{path}:{}: run by {other}", block.line),
            _ => {}
        }
    }
    if !page.commands().any(page::Block::is_tested_here) {
        return;
    }
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    if let Some(missing) = missing_requirement(&page) {
        return sidelane_testing::skip(missing);
    }
    let session = Session::start(&page);
    let shown = session.wait_for_completion().unwrap_or_else(|error| panic!("{path}: {error}"));
    println!("{shown}");
    let is_over = holds_within(END_TIMEOUT, || process::marked_pids().is_empty());
    let left: Vec<String> =
        process::marked_pids().into_iter().map(|pid| process::command_line(pid).join(" ")).collect();
    assert!(is_over, "{path} leaves running: {}", left.join("; "));
}

/// Returns what the commands of a page need and this machine lacks.
fn missing_requirement(page: &Page) -> Option<String> {
    let mut depends = page.commands().filter(|block| block.depends_on_machine()).peekable();
    if depends.peek().is_some() && !depends.any(page::Block::is_tested_here) {
        return Some("needs control groups that can be changed".to_owned());
    }
    let is_installed = |package: &str| {
        let asked = Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]).output();
        asked.is_ok_and(|answer| answer.stdout == b"install ok installed")
    };
    let missing: Vec<String> = page.packages().into_iter().filter(|package| !is_installed(package)).collect();
    (!missing.is_empty()).then(|| format!("needs Debian's packages: apt-get install {}", missing.join(" ")))
}

#[test]
fn each_page_has_a_test() {
    let folders = ["docs/tutorial", "docs/guides"];
    let names = folders.into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder of documents").flatten();
        entries.map(move |entry| format!("{folder}/{}", entry.file_name().to_string_lossy()))
    });
    let found: BTreeSet<String> = names.chain(["README.md".to_owned()]).collect();
    assert_eq!(found, PAGES.iter().map(ToString::to_string).collect());
}

#[test]
fn each_block_says_whether_it_runs() {
    let pages: Vec<Page> = PAGES.iter().map(|path| Page::read(path)).collect();
    let mut problems: Vec<String> = pages.iter().flat_map(|page| page.problems.clone()).collect();
    for page in &pages {
        for block in page.commands() {
            let Rule::RunBy(path) = &block.rule else { continue };
            if CLUSTER_TESTS.contains(&path.as_str()) {
                continue;
            }
            let Some(other) = pages.iter().find(|page| page.path == *path) else {
                problems.push(format!("{}:{}: {path} is no page with a test", page.path, block.line));
                continue;
            };
            let missing = block.lines.iter().filter(|line| !other.test_runs_line(line));
            problems.extend(missing.map(|line| format!("{}:{}: {path} does not run {line}", page.path, block.line)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let never = pages.iter().flat_map(Page::commands).filter(|block| matches!(block.rule, Rule::NotRun(_)));
    let count = never.filter(|block| !block.depends_on_machine()).count();
    assert!(count <= NOT_RUN_MAX, "{count} blocks are not run; {NOT_RUN_MAX} are allowed");
}
