//! Tests of the value of a window of the interference counters, worked out by hand: `bpf/guard/window.h` as an ordinary
//! program.

mod as_program;

use as_program::Program;

struct Window(Program);

/// Result of one window.
#[derive(Debug, PartialEq)]
enum Came {
    /// Window that has not ended.
    On,
    /// Window that has ended without activity.
    Empty,
    /// Window that has ended with this value, in thousandths.
    To(u64),
}

impl Window {
    fn compile(name: &str) -> Option<Self> {
        Program::compile("window", name).map(Self)
    }

    /// Lets the service run for `ran_us` µs, with this number of stall cycles and of loads and stores. `least` is the
    /// number of events from which there is activity.
    fn of(&self, stalls: u64, accesses: u64, ran_us: u64, least: u64) -> Came {
        let numbers = [stalls, accesses, ran_us * 1000, least].map(|number| number.to_string());
        let numbers = self.0.run(numbers);
        match numbers[..] {
            [0, ..] => Came::On,
            [_, value, 1, 0] => Came::To(value),
            [_, _, 0, 1] => Came::Empty,
            _ => panic!("{numbers:?}"),
        }
    }
}

#[test]
fn a_service_that_stands_still_is_disturbed_the_most() {
    let Some(window) = Window::compile("stands-still") else { return };
    // The service stalls for 49 of 50 µs at 3 GHz and makes 80 loads, which count as 100. Without that minimum the
    // value would be 1837.5.
    assert_eq!(window.of(147_000, 80, 50, 100), Came::To(1_470_000));
    assert_eq!(window.of(147_000, 100, 50, 100), Came::To(1_470_000));
    assert_eq!(window.of(147_000, 0, 50, 100), Came::To(1_470_000), "not one access has come to its end");
    assert_eq!(window.of(3, 0, 50, 1), Came::To(3_000), "events of the kernel, each of which matters");
}

#[test]
fn a_few_accesses_by_chance_are_no_interference() {
    let Some(window) = Window::compile("by-chance") else { return };
    assert_eq!(window.of(99, 3, 50, 100), Came::Empty);
    assert_eq!(window.of(0, 0, 50, 1), Came::Empty);
    assert_eq!(window.of(300, 1, 50, 100), Came::To(3_000), "one miss is not 300");
    assert_eq!(window.of(0, 100, 50, 100), Came::To(0));
}

#[test]
fn a_window_ends_early_only_on_enough_activity() {
    let Some(window) = Window::compile("early") else { return };
    assert_eq!(window.of(60_000, 200, 20, 100), Came::To(300_000));
    assert_eq!(window.of(60_000, 80, 20, 100), Came::On);
    assert_eq!(window.of(600, 200, 20, 100), Came::On);
}
