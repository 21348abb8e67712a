//! Tests of the value of a window of the interference counters, worked out by hand: `bpf/guard/window.h` as an ordinary
//! program.

mod as_program;

use as_program::Program;

struct Window(Program);

/// Result of one window.
#[derive(Debug, PartialEq)]
enum WindowOutcome {
    /// Window that has not ended.
    Open,
    /// Window that has ended without activity.
    Empty,
    /// Window that has ended with this value, in thousandths.
    Value(u64),
}

impl Window {
    fn compile(name: &str) -> Option<Self> {
        Program::compile("window/main.c", name).map(Self)
    }

    /// Lets the service run for `ran_us` µs, with this number of stall cycles and of loads and stores. `activity_min`
    /// is the number of events from which there is activity.
    fn run_service(&self, stalls: u64, accesses: u64, ran_us: u64, activity_min: u64) -> WindowOutcome {
        let numbers = [stalls, accesses, ran_us * 1000, activity_min].map(|number| number.to_string());
        let numbers = self.0.run(numbers);
        match numbers[..] {
            [0, ..] => WindowOutcome::Open,
            [_, value, 1, 0] => WindowOutcome::Value(value),
            [_, _, 0, 1] => WindowOutcome::Empty,
            _ => panic!("{numbers:?}"),
        }
    }
}

#[test]
fn service_without_progress_has_the_highest_value() {
    let Some(window) = Window::compile("stands-still") else { return };
    // The service stalls for 49 of 50 µs at 3 GHz and makes 80 loads, which count as 100. Without that minimum the
    // value would be 1837.5.
    assert_eq!(window.run_service(147_000, 80, 50, 100), WindowOutcome::Value(1_470_000));
    assert_eq!(window.run_service(147_000, 100, 50, 100), WindowOutcome::Value(1_470_000));
    assert_eq!(
        window.run_service(147_000, 0, 50, 100),
        WindowOutcome::Value(1_470_000),
        "not one access has come to its end"
    );
    assert_eq!(
        window.run_service(3, 0, 50, 1),
        WindowOutcome::Value(3_000),
        "events of the kernel, each of which matters"
    );
}

#[test]
fn a_few_accesses_by_chance_are_no_interference() {
    let Some(window) = Window::compile("by-chance") else { return };
    assert_eq!(window.run_service(99, 3, 50, 100), WindowOutcome::Empty);
    assert_eq!(window.run_service(0, 0, 50, 1), WindowOutcome::Empty);
    assert_eq!(window.run_service(300, 1, 50, 100), WindowOutcome::Value(3_000), "one miss is not 300");
    assert_eq!(window.run_service(0, 100, 50, 100), WindowOutcome::Value(0));
}

#[test]
fn a_window_ends_early_only_on_enough_activity() {
    let Some(window) = Window::compile("early") else { return };
    assert_eq!(window.run_service(60_000, 200, 20, 100), WindowOutcome::Value(300_000));
    assert_eq!(window.run_service(60_000, 80, 20, 100), WindowOutcome::Open);
    assert_eq!(window.run_service(600, 200, 20, 100), WindowOutcome::Open);
}
