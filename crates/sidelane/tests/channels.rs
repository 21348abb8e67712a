//! Signals of real programs, read while they run: variables, HotSpot's counters, files of /proc.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::wait_until;
use sidelane::observe::channel::{Channel, Gone, Reader, file, hsperf, memory};
use sidelane::observe::list;
use sidelane::observe::signal::{Kind, Signal, Source};
use tempfile::TempDir;

const POSITION_INDEPENDENT: &[&str] = &["-g", "-fPIE", "-pie"];
const FIXED: &[&str] = &["-g", "-fno-pie", "-no-pie"];
const WITHOUT_DEBUG: &[&str] = &["-g0"];

/// A program under way. Ended when dropped.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What it said first.
    first: String,
    _dir: TempDir,
}

impl Program {
    fn start(command: &mut Command, dir: TempDir) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, input, output, first: String::new(), _dir: dir };
        program.first = program.line();
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the program has ended");
        line.trim_end().to_owned()
    }

    /// Has it do something, to the end.
    fn ask(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        assert!(self.line().starts_with("done"));
    }

    fn end(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The channels of a signal, as a user writes it.
    fn channels(&self, signal: &str) -> Result<Vec<Channel>, String> {
        let signal: Signal = signal.parse().unwrap_or_else(|error| panic!("{error}"));
        let pids = BTreeSet::from([self.pid()]);
        match &signal.source {
            Source::Memory { pid, place, width } => {
                memory::channels(&signal, *pid, place, *width, &pids).map_err(|error| error.to_string())
            }
            Source::Jvm(name) => hsperf::channels(&signal, name.as_deref(), &pids).map_err(|error| error.to_string()),
            Source::File { path, field } => {
                file::channel(&signal, path, field.as_deref()).map(|channel| vec![channel]).map_err(|e| e.to_string())
            }
            _ => panic!("not one of these channels"),
        }
    }

    #[track_caller]
    fn channel(&self, signal: &str) -> Channel {
        self.channels(signal).unwrap_or_else(|error| panic!("{signal}: {error}")).remove(0)
    }

    /// A variable's value now.
    #[track_caller]
    fn value(&self, variable: &str) -> u64 {
        read(&mut self.channel(&format!("tag:mem:{variable}"))).unwrap()
    }

    /// Why a variable cannot be observed.
    #[track_caller]
    fn refusal(&self, variable: &str) -> String {
        self.channels(&format!("tag:mem:{variable}")).expect_err(variable)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(channel: &mut Channel) -> Result<u64, Gone> {
    match &mut channel.reader {
        Reader::Word(word) => Ok(word.read()),
        Reader::Call(call) => call.read(),
        Reader::Pmc(pmc) => Ok(pmc.read()),
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/channels").join(name)
}

/// Runs a tool on files; None, with the reason printed, where it is not installed.
fn run<S: AsRef<OsStr>>(tool: &str, arguments: &[S]) -> Option<()> {
    let Ok(status) = Command::new(tool).args(arguments).status() else {
        println!("skipped: there is no {tool} here");
        return None;
    };
    assert!(status.success(), "{tool}: {status}");
    Some(())
}

fn compile(compiler: &str, sources: &[&str], flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let warnings = ["-O1", "-Wall", "-Werror"].map(OsStr::new).into_iter();
    let mut arguments: Vec<&OsStr> = warnings.chain(flags.iter().map(OsStr::new)).collect();
    let sources: Vec<PathBuf> = sources.iter().map(|name| fixture(name)).collect();
    arguments.extend([OsStr::new("-o"), program.as_os_str()]);
    arguments.extend(sources.iter().map(|source| source.as_os_str()));
    run(compiler, &arguments)?;
    Some((dir, program))
}

/// The C program, compiled in this way and started.
fn variables(flags: &[&str]) -> Option<Program> {
    let (dir, program) = compile("cc", &["variables.c", "twin.c"], flags)?;
    Some(Program::start(&mut Command::new(program), dir))
}

#[test]
fn variables_of_every_width_are_read_wherever_the_program_is_loaded() {
    for flags in [POSITION_INDEPENDENT, FIXED, WITHOUT_DEBUG] {
        let Some(mut program) = variables(flags) else { return };
        let mut phase = program.channel("tag:mem:runtime.gcphase");
        assert_eq!((phase.name.as_str(), phase.kind), ("tag:mem:runtime.gcphase", Kind::Tag));
        assert_eq!([program.value("small"), program.value("static_counter")], [200, 7], "{flags:?}");
        assert_eq!(program.value("table+6/u16"), 3);
        let mut counter = program.channel("rate:mem:global_counter");
        assert_eq!(counter.kind, Kind::Counter);
        for count in 1..=3 {
            program.ask("count");
            assert_eq!(read(&mut counter).unwrap(), 40 + count);
            assert_eq!(read(&mut phase).unwrap(), count % 3);
        }
        assert_eq!(program.value("static_counter"), 10);
    }
}

#[test]
fn a_variable_of_a_library_is_found() {
    let Some(program) = variables(POSITION_INDEPENDENT) else { return };
    assert_ne!(program.value("environ"), 0);
}

#[test]
fn fields_and_elements_are_found_by_debug_information() {
    let Some(mut program) = variables(POSITION_INDEPENDENT) else { return };
    assert_eq!(program.value("server.commands"), 1);
    program.ask("count");
    assert_eq!(program.value("server.commands"), 2);
    assert_eq!(program.value("server.port"), 6379, "in a part without a name");
    assert_eq!(program.value("server.flags[2]"), 3);
    assert_eq!(program.value("server.queues[2].total"), 20);
    assert_eq!(program.value("server.both.word"), 0x0102_0304);
    assert_eq!(program.value("server.both.bytes[0]"), 4);
    assert_eq!(program.value("server.both.word+1/u8"), 3);
    assert_eq!(program.value("table[4]"), 4);
}

#[test]
fn a_field_that_cannot_be_is_refused_with_what_can() {
    let Some(program) = variables(POSITION_INDEPENDENT) else { return };
    let says = |variable: &str, words: &str| {
        let refusal = program.refusal(variable);
        assert!(refusal.contains(words), "{variable}: {refusal}");
    };
    says("server.comands", "server has no field comands; did you mean commands?");
    says("server.first.length", "server.first is a pointer, so length cannot be followed");
    says("server.commands.x", "server.commands is a number");
    says("server.queues[3].total", "server.queues has 3 elements");
    says("server.bits", "bits is a bit field");
    says("server.queues", "has 48 bytes: say a field, or a width");
    says("small/u64", "small has 1 bytes: 8 bytes at offset 0 are not all in it");
}

#[test]
fn what_is_no_variable_is_refused_with_the_reason() {
    let Some(program) = variables(POSITION_INDEPENDENT) else { return };
    let says = |variable: &str, words: &str| {
        let refusal = program.refusal(variable);
        assert!(refusal.contains(words), "{variable}: {refusal}");
    };
    says("global_conter", "has no variable global_conter; did you mean global_counter?");
    says("main", "main is a function of program");
    says("per_thread", "per_thread of program is thread-local");
    says("twin", "twin may be any of these: twin at 0x");
    says("0x10/u8", "nothing is mapped there");
}

#[test]
fn a_stripped_program_has_what_its_debug_file_has() {
    let Some((dir, program)) = compile("cc", &["variables.c", "twin.c"], POSITION_INDEPENDENT) else { return };
    let debug = dir.path().join("program.debug");
    let all = |first: &str, rest: &[&Path]| {
        let mut arguments = vec![OsStr::new(first).to_owned()];
        arguments.extend(rest.iter().map(|path| path.as_os_str().to_owned()));
        arguments
    };
    let Some(()) = run("objcopy", &all("--only-keep-debug", &[&program, &debug])) else { return };
    run("strip", &[&program]).unwrap();
    let bare = Program::start(&mut Command::new(&program), tempfile::tempdir().unwrap());
    assert!(bare.refusal("static_counter").contains("its executable is stripped"));
    drop(bare);
    run("objcopy", &all(&format!("--add-gnu-debuglink={}", debug.display()), &[&program])).unwrap();
    let linked = Program::start(&mut Command::new(&program), dir);
    assert_eq!([linked.value("static_counter"), linked.value("server.queues[1].total")], [7, 10]);
}

#[test]
fn names_of_cpp_are_found_as_they_stand_in_the_source() {
    let Some((dir, program)) = compile("c++", &["names.cpp"], &["-g"]) else { return };
    let program = Program::start(&mut Command::new(program), dir);
    assert_eq!([program.value("app::hits"), program.value("hits"), program.value("_ZN3app4hitsE")], [11; 3]);
    assert_eq!(program.value("hidden"), 12);
    assert_eq!(program.value("app::pool.inherited"), 13);
    assert_eq!(program.value("pool.used"), 14);
    assert_eq!(program.value("Pool::limit"), 15);
}

#[test]
fn the_end_of_the_program_is_told() {
    let Some(mut program) = variables(POSITION_INDEPENDENT) else { return };
    let mut counter = program.channel("counter:mem:global_counter");
    let mut faults = program.channel(&format!("counter:file:/proc/{}/stat#10", program.pid()));
    assert!(read(&mut counter).unwrap() == 40 && read(&mut faults).unwrap() > 0);
    program.end();
    assert!(matches!(read(&mut counter), Err(Gone::Target)));
    assert!(matches!(read(&mut faults), Err(Gone::Target)));
    assert!(program.refusal("global_counter").contains("there is no process"));
}

#[test]
fn memory_that_is_unmapped_is_told() {
    let Some(mut program) = variables(POSITION_INDEPENDENT) else { return };
    let address = program.first.clone();
    let mut word = program.channel(&format!("tag:mem:{}:{address}/u64", program.pid()));
    assert_eq!(read(&mut word).unwrap(), 99);
    program.ask("unmap");
    let Err(Gone::Error(error)) = read(&mut word) else { panic!("the page is gone") };
    assert!(error.to_string().contains(&format!("has unmapped the memory at {address}")), "{error}");
}

/// A JVM that collects when it is asked to. None, with the reason printed, where there is none.
fn jvm(flags: &[&str]) -> Option<Program> {
    let dir = tempfile::tempdir().unwrap();
    let classes = dir.path().as_os_str().to_owned();
    run("javac", &[OsStr::new("-d"), &classes, fixture("Collects.java").as_os_str()])?;
    let mut java = Command::new("java");
    java.args(flags).arg("-cp").arg(classes).arg("Collects");
    Some(Program::start(&mut java, dir))
}

#[test]
fn the_counters_of_a_jvm_are_read_where_it_keeps_them() {
    let Some(mut jvm) = jvm(&["-XX:+UseSerialGC", "-Xmx64m"]) else { return };
    let mut safepoints = jvm.channel("jvm:sun.rt.safepoints");
    let mut collections = jvm.channel("rate:jvm:sun.gc.collector.1.invocations");
    assert_eq!([safepoints.kind, collections.kind], [Kind::Counter; 2]);
    let before = [read(&mut safepoints).unwrap(), read(&mut collections).unwrap()];
    jvm.ask("");
    wait_until("the collection was counted", || read(&mut collections).unwrap() == before[1] + 1);
    assert!(read(&mut safepoints).unwrap() > before[0]);
    let usual = jvm.channels("jvm").unwrap();
    assert!(usual.len() <= 8 && usual.iter().any(|channel| channel.name == "jvm:java.threads.live"), "{usual:?}");
}

#[test]
fn the_cause_of_a_collection_is_a_text() {
    let Some(mut jvm) = jvm(&["-XX:+UseG1GC", "-Xmx64m"]) else { return };
    let mut causes = ["jvm:sun.gc.cause", "jvm:sun.gc.lastCause"].map(|signal| jvm.channel(signal));
    let mut now =
        || causes.each_mut().map(|channel| (channel.meaning.clone().unwrap())(read(channel).unwrap()).unwrap());
    assert_eq!(now()[0], "No GC");
    jvm.ask("");
    wait_until("the last cause was what it was", || now() == ["No GC", "System.gc()"]);
    assert!(jvm.channels("counter:jvm:sun.gc.cause").unwrap_err().contains("is a text"));
}

#[test]
fn a_jvm_without_counters_is_told_from_what_is_no_jvm() {
    if let Some(jvm) = jvm(&["-XX:-UsePerfData"]) {
        assert!(jvm.channels("jvm").unwrap_err().contains("-XX:-UsePerfData"));
    }
    let Some(program) = variables(POSITION_INDEPENDENT) else { return };
    assert!(program.channels("jvm").unwrap_err().contains("is no JVM"));
}

#[test]
fn counters_of_a_jvm_that_has_ended_stay_readable() {
    let Some(mut jvm) = jvm(&[]) else { return };
    assert!(jvm.channels("jvm:sun.rt.safepoint").unwrap_err().contains("did you mean sun.rt.safepoints"));
    let mut threads = jvm.channel("jvm:java.threads.live");
    assert!(read(&mut threads).unwrap() > 0);
    jvm.end();
    assert!(read(&mut threads).is_ok());
}

#[test]
fn a_listing_names_what_can_be_asked_for() {
    let Some(program) = variables(POSITION_INDEPENDENT) else { return };
    let listing = list::list(program.pid(), None);
    let all: Vec<&list::Listed> = listing.groups.iter().flat_map(|group| &group.signals).collect();
    let value = |signal: &str| {
        let listed = all.iter().find(|listed| listed.signal == signal).unwrap_or_else(|| panic!("{signal}: {all:#?}"));
        serde_json::to_value(&listed.value).unwrap()
    };
    assert_eq!(value("tag:mem:global_counter"), 40);
    assert!(value(&format!("counter:file:/proc/{}/stat#20", program.pid())) == 1);
    assert!(all.iter().any(|listed| listed.signal == "tag:mem:server.FIELD"));
    // All that is named can be asked for.
    for listed in all.iter().filter(|listed| listed.value.is_some()) {
        read(&mut program.channel(&listed.signal)).unwrap();
    }
    let text = listing.render(100, false);
    assert!(text.contains("is no JVM") && text.contains("(program)"), "{text}");
    let filtered = list::list(program.pid(), Some("static_c"));
    assert!(filtered.render(100, false).contains("tag:mem:static_counter"));
}
