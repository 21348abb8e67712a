//! Tests of signals from variables of C and C++ programs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use sidelane_channels::signal::{Kind, Signal, Source};
use sidelane_channels::{ChannelEnd, Reader, memory};
use sidelane_host::shared_mapping::SharedMapping;

use crate::program::{Program, compile, read, run_tool_if_installed};

pub const POSITION_INDEPENDENT: &[&str] = &["-g", "-fPIE", "-pie"];
const FIXED: &[&str] = &["-g", "-fno-pie", "-no-pie"];
const WITHOUT_DEBUG: &[&str] = &["-g0"];

/// Compiles the C program with these flags, and starts it.
pub fn start_variables_program(flags: &[&str]) -> Option<Program> {
    let (dir, program) = compile("cc", &["variables.c", "twin.c"], flags)?;
    Some(Program::start(&mut Command::new(program), dir))
}

#[test]
fn variables_of_every_width_are_read_at_any_load_address() {
    for flags in [POSITION_INDEPENDENT, FIXED, WITHOUT_DEBUG] {
        let Some(mut program) = start_variables_program(flags) else { return };
        let mut phase = program.channel("tag:mem:runtime.gcphase");
        assert_eq!((phase.name.as_str(), phase.kind), ("tag:mem:runtime.gcphase", Kind::Tag));
        assert_eq!([program.value("small"), program.value("static_counter")], [200, 7], "{flags:?}");
        assert_eq!(program.value("table+6/u16"), 3);
        let mut counter = program.channel("rate:mem:global_counter");
        assert_eq!(counter.kind, Kind::Counter);
        for count in 1..=3 {
            program.send_command("count");
            assert_eq!(read(&mut counter).unwrap(), 40 + count);
            assert_eq!(read(&mut phase).unwrap(), count % 3);
        }
        assert_eq!(program.value("static_counter"), 10);
    }
}

#[test]
fn a_variable_of_a_library_is_found() {
    let Some(program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    assert_ne!(program.value("environ"), 0);
}

#[test]
fn fields_and_elements_are_found_by_debug_information() {
    // Debug information differs by version, with link-time optimisation, compressed, and with separate type units.
    for flags in [&["-g"][..], &["-gdwarf-3"], &["-g", "-flto"], &["-g", "-gz"], &["-g", "-fdebug-types-section"]] {
        let Some(program) = start_variables_program(flags) else { return };
        fields_and_elements_are_found(program);
    }
}

fn fields_and_elements_are_found(mut program: Program) {
    assert_eq!(program.value("server.commands"), 1);
    program.send_command("count");
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
fn unknown_field_is_refused_with_the_existing_ones() {
    let Some(program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    let says = |variable: &str, words: &str| {
        let refusal = program.variable_error(variable);
        assert!(refusal.contains(words), "{variable}: {refusal}");
    };
    says("server.comands", "server has no field comands; did you mean commands?");
    says("server.first.length", "cannot find length: server.first is a pointer");
    says("server.first->length", "the target of a pointer changes its place");
    says("server.commands.x", "server.commands is a number");
    says("server.queues[3].total", "server.queues has 3 elements");
    says("server.bits", "bits is a bit field");
    says("server.queues", "has 48 bytes; name a field, or a width");
    says("small/u64", "cannot read 8 bytes at offset 0 of small: it has 1 bytes");
}

#[test]
fn invalid_variable_is_refused_with_the_reason() {
    let Some(program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    let says = |variable: &str, words: &str| {
        let refusal = program.variable_error(variable);
        assert!(refusal.contains(words), "{variable}: {refusal}");
    };
    says("global_conter", "has no variable global_conter; did you mean global_counter?");
    says("main", "main is a function of program");
    says("per_thread", "cannot observe per_thread of program: it is thread-local");
    says("twin", "twin may be any of these: twin at 0x");
    says("0x10/u8", "nothing is mapped there");
}

#[test]
fn variables_of_a_stripped_program_are_in_its_debug_file() {
    let Some((dir, program)) = compile("cc", &["variables.c", "twin.c"], POSITION_INDEPENDENT) else { return };
    let debug = dir.path().join("program.debug");
    let all = |first: &str, rest: &[&Path]| {
        let mut arguments = vec![OsStr::new(first).to_owned()];
        arguments.extend(rest.iter().map(|path| path.as_os_str().to_owned()));
        arguments
    };
    let Some(()) = run_tool_if_installed("objcopy", &all("--only-keep-debug", &[&program, &debug])) else { return };
    run_tool_if_installed("strip", &[&program]).unwrap();
    let bare = Program::start(&mut Command::new(&program), tempfile::tempdir().unwrap());
    assert!(bare.variable_error("static_counter").contains("its executable is stripped"));
    assert!(bare.variable_error("environ[1]").contains("are not known; install the debug symbols"));
    drop(bare);
    run_tool_if_installed("objcopy", &all(&format!("--add-gnu-debuglink={}", debug.display()), &[&program])).unwrap();
    let linked = Program::start(&mut Command::new(&program), dir);
    assert_eq!([linked.value("static_counter"), linked.value("server.queues[1].total")], [7, 10]);
}

#[test]
fn cpp_variables_are_found_by_their_source_names() {
    let Some((dir, program)) = compile("c++", &["names.cpp"], &["-g"]) else { return };
    let program = Program::start(&mut Command::new(program), dir);
    assert_eq!([program.value("app::hits"), program.value("hits"), program.value("_ZN3app4hitsE")], [11; 3]);
    assert_eq!(program.value("hidden"), 12);
    assert_eq!(program.value("app::pool.inherited"), 13);
    assert_eq!(program.value("pool.used"), 14);
    assert_eq!(program.value("Pool::limit"), 15);
}

#[test]
fn rust_variables_are_found_by_their_source_names() {
    static HITS: AtomicU32 = AtomicU32::new(0);
    let signal: Signal = "counter:mem:rust_variables_are_found_by_their_source_names::HITS".parse().unwrap();
    let Source::Memory { place, .. } = &signal.source else { unreachable!("it is mem:") };
    let mut hits =
        memory::channels(&signal, None, place, None, &BTreeSet::from([std::process::id()])).unwrap().remove(0);
    HITS.store(16, Ordering::Relaxed);
    assert_eq!(read(&mut hits).unwrap(), 16);
}

#[test]
fn end_of_the_program_is_an_error() {
    let Some(mut program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    let mut counter = program.channel("counter:mem:global_counter");
    let mut faults = program.channel(&format!("counter:file:/proc/{}/stat#10", program.pid()));
    assert!(read(&mut counter).unwrap() == 40 && read(&mut faults).unwrap() > 0);
    program.close_input_and_wait();
    assert!(matches!(read(&mut counter), Err(ChannelEnd::Target)));
    assert!(matches!(read(&mut faults), Err(ChannelEnd::Target)));
    assert!(program.variable_error("global_counter").contains("there is no process"));
}

#[test]
fn unmapped_memory_is_an_error() {
    let Some(mut program) = start_variables_program(POSITION_INDEPENDENT) else { return };
    let address = program.first.clone();
    let mut word = program.channel(&format!("tag:mem:{}:{address}/u64", program.pid()));
    assert_eq!(read(&mut word).unwrap(), 99);
    program.send_command("unmap");
    let Err(ChannelEnd::Error(error)) = read(&mut word) else { panic!("the page is gone") };
    assert!(error.to_string().contains(&format!("has unmapped the memory at {address}")), "{error}");
}

#[test]
fn memory_that_is_shared_is_read_in_place_and_survives_its_file() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let mut shared = File::options().read(true).write(true).open(path.path()).unwrap();
    shared.write_all(&[3; 64]).unwrap();
    let channel_of_own = |file: &File| {
        let place = Box::leak(Box::new(SharedMapping::<AtomicU8>::read_only(file, 0, 64).unwrap())).as_ptr();
        let signal: Signal = format!("tag:mem:0x{:x}/u16", place.addr() + 8).parse().unwrap();
        let Source::Memory { place, width, .. } = &signal.source else { unreachable!("it is mem:") };
        memory::channels(&signal, None, place, *width, &BTreeSet::from([std::process::id()])).unwrap().remove(0)
    };
    let mut channel = channel_of_own(&shared);
    assert!(matches!(&channel.reader, Reader::Word(word) if !word.is_page_lost()));
    assert_eq!(read(&mut channel).unwrap(), 0x0303);
    shared.write_all_at(&[4; 64], 0).unwrap();
    assert_eq!(read(&mut channel).unwrap(), 0x0404);
    shared.set_len(0).unwrap();
    assert_eq!(read(&mut channel).unwrap(), 0);
    assert!(matches!(&channel.reader, Reader::Word(word) if word.is_page_lost()));
}
