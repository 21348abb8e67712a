//! Pages: their blocks, and the comment before each.

use std::fs;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Reasons why commands cannot run in a test.
pub const REASONS: [&str; 9] = [
    "builds for minutes",
    "takes minutes",
    "needs four CPUs",
    "needs two kinds of cores",
    "needs docker",
    "needs Kubernetes",
    "needs systemd",
    CGROUP_1,
    CGROUP_2,
];
/// Reason for commands that run only on machines with cgroup version 1.
const CGROUP_1: &str = "needs cgroup version 1";
const CGROUP_2: &str = "needs cgroup version 2";
/// Languages of blocks: commands, output, and parts of files.
const LANGUAGES: [&str; 4] = [COMMANDS, "text", "toml", "yaml"];
const COMMANDS: &str = "sh";
const FENCE: &str = "```";

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rule by which a block is run, from the comment before the block.
#[derive(Debug)]
pub enum Rule {
    /// No comment: each command exits with 0.
    Plain,
    NotRun(String),
    RunBy(String),
    ExitsWith(Vec<String>),
    CtrlC {
        after_s: u64,
    },
}

impl Rule {
    /// Returns the rule that a line sets for the block after it; `None` for a comment that is no rule.
    fn parse(line: &str) -> Option<Self> {
        let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else {
            return Some(Self::Plain);
        };
        let codes = |text: &str| text.replace(" or ", ", ").split(", ").map(str::to_owned).collect();
        let reason = comment.strip_prefix("not run: ").filter(|reason| REASONS.contains(reason));
        let after = comment.strip_prefix("Ctrl-C after ").and_then(|rest| rest.strip_suffix(" s")?.parse().ok());
        reason
            .map(|reason| Self::NotRun(reason.to_owned()))
            .or_else(|| comment.strip_prefix("run by ").map(|page| Self::RunBy(page.to_owned())))
            .or_else(|| comment.strip_prefix("exits with ").map(|list| Self::ExitsWith(codes(list))))
            .or_else(|| after.map(|after_s| Self::CtrlC { after_s }))
    }
}

/// Block of a page: the lines between two fences.
#[derive(Debug)]
pub struct Block {
    /// Line number of the opening fence, from 1.
    pub line: usize,
    pub rule: Rule,
    pub lines: Vec<String>,
    language: String,
}

impl Block {
    /// Returns whether the test of the page runs the block on this machine.
    pub fn is_tested_here(&self) -> bool {
        match &self.rule {
            Rule::NotRun(reason) if reason == CGROUP_1 => has_cgroup_1(),
            Rule::NotRun(reason) if reason == CGROUP_2 => has_cgroup_2(),
            Rule::NotRun(_) | Rule::RunBy(_) => false,
            Rule::Plain | Rule::ExitsWith(_) | Rule::CtrlC { .. } => true,
        }
    }

    /// Returns whether only some machines can run the block.
    pub fn depends_on_machine(&self) -> bool {
        matches!(&self.rule, Rule::NotRun(reason) if [CGROUP_1, CGROUP_2].contains(&reason.as_str()))
    }

    /// Returns the shell code before the block's first command, and after its last command.
    fn shell_prologue_and_epilogue(&self) -> (String, String) {
        let begin = format!("begins {}", self.line);
        match &self.rule {
            Rule::ExitsWith(codes) => (format!("{begin}; set +e"), format!("exits_with {}", codes.join(" "))),
            Rule::CtrlC { after_s } => (format!("{begin}; interrupt_after {after_s}"), "is_interrupted".to_owned()),
            Rule::Plain | Rule::NotRun(_) | Rule::RunBy(_) => (begin, String::new()),
        }
    }
}

fn has_cgroup_1() -> bool {
    ["cpuset/cpuset.cpus", "freezer/cgroup.procs"].iter().all(|file| is_writable(file))
}

/// Returns whether /sys/fs/cgroup is the kernel's root group of cgroup version 2, and writable. The root group alone
/// has no file `cgroup.type`, and only it can have both processes and delegated controllers.
fn has_cgroup_2() -> bool {
    is_writable("cgroup.subtree_control") && !Path::new("/sys/fs/cgroup/cgroup.type").exists()
}

fn is_writable(file: &str) -> bool {
    OpenOptions::new().write(true).open(Path::new("/sys/fs/cgroup").join(file)).is_ok()
}

/// Page of the documents, with its blocks.
pub struct Page {
    /// Path in the repository.
    pub path: String,
    /// Problems of the page's blocks, each with its place.
    pub problems: Vec<String>,
    blocks: Vec<Block>,
}

impl Page {
    /// Reads a page of the repository.
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        let mut page = Self { path: path.to_owned(), problems: Vec::new(), blocks: Vec::new() };
        let mut open: Option<Block> = None;
        let mut before = "";
        for (line, text) in (1..).zip(text.lines()) {
            match &mut open {
                Some(_) if text == FENCE => page.blocks.extend(open.take()),
                Some(block) => block.lines.push(text.to_owned()),
                None if text.starts_with(FENCE) => open = Some(page.begin_block(line, text, before)),
                None if text.starts_with("    ") && before.is_empty() => {
                    page.add_problem(line, "a block begins without a fence");
                }
                None => {}
            }
            before = text;
        }
        if let Some(block) = open {
            page.add_problem(block.line, "a block does not end");
        }
        page
    }

    /// Begins a block at this fence.
    fn begin_block(&mut self, line: usize, fence: &str, before: &str) -> Block {
        let language = fence.trim_start_matches('`').to_owned();
        if !LANGUAGES.contains(&language.as_str()) {
            self.add_problem(line, &format!("a block has the language {language:?}, which is none of {LANGUAGES:?}"));
        }
        let rule = Rule::parse(before).unwrap_or_else(|| {
            self.add_problem(line, &format!("a block is preceded by {before:?}, which says nothing to the test"));
            Rule::Plain
        });
        if language != COMMANDS && !matches!(rule, Rule::Plain) {
            self.add_problem(line, "a block has no commands to which the comment before it applies");
        }
        Block { line, rule, lines: Vec::new(), language }
    }

    fn add_problem(&mut self, line: usize, text: &str) {
        self.problems.push(format!("{}:{line}: {text}", self.path));
    }

    /// Returns the page's blocks of commands.
    pub fn commands(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.language == COMMANDS)
    }

    /// Returns whether the page's test runs, on each machine, a line that begins with `line`.
    pub fn test_runs_line(&self, line: &str) -> bool {
        let run = self.commands().filter(|block| block.is_tested_here() && !block.depends_on_machine());
        run.flat_map(|block| &block.lines).any(|run| run.starts_with(line))
    }

    /// Returns the packages that the page's commands install.
    pub fn packages(&self) -> Vec<String> {
        let lines = self.commands().filter(|block| block.is_tested_here()).flat_map(|block| &block.lines);
        let lists = lines.filter_map(|line| line.strip_prefix("apt-get install -y "));
        lists.flat_map(|list| list.split(' ')).map(str::to_owned).collect()
    }

    /// Returns the page's commands as a shell script. A command has the same line number in the script as in the page.
    pub fn script(&self) -> String {
        let mut script: Vec<String> = Vec::new();
        for block in self.commands().filter(|block| block.is_tested_here()) {
            let (before, after) = block.shell_prologue_and_epilogue();
            script.resize(block.line - 1, String::new());
            script.push(before);
            script.extend(block.lines.iter().cloned());
            script.push(after);
        }
        script.join("\n") + "\n"
    }
}
