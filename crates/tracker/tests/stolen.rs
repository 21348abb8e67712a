//! Tests of how steal time is accounted, with results worked out by hand: `bpf/lane/stolen.h` as an ordinary program.

mod as_program;

use as_program::Program;

/// CPU of the service's lane; the next constant is the batch lane beside it.
const REQUEST: u32 = 0;
const BATCH: u32 = 1;

/// Step of a test: an event on one of the two lanes.
#[derive(Clone, Copy)]
enum Step {
    /// Steal time in ns that the hypervisor takes from this lane.
    Take(u32, u64),
    /// Read of the steal time by the kernel program on this lane, on which a thread of this class has run.
    Look(u32, Class),
    /// Start of the service on the request lane.
    Starts,
    /// Stop of the service.
    Stops,
    /// Begin of a turn of batch on the batch lane.
    Begin,
    /// End of the turn of batch. `kept`: whether the lane is kept empty beside the service.
    End { kept: bool },
}

/// Class of a thread: `enum sidelane_class`.
#[derive(Clone, Copy)]
enum Class {
    Lc = 1,
    Batch = 2,
}

impl Step {
    fn to_args(self) -> [String; 3] {
        let (name, lane, number) = match self {
            Self::Take(lane, ns) => ("take", lane, ns),
            Self::Look(lane, class) => ("look", lane, class as u64),
            Self::Starts => ("service", REQUEST, 1),
            Self::Stops => ("service", REQUEST, 0),
            Self::Begin => ("begin", BATCH, 0),
            Self::End { kept } => ("lost", BATCH, kept.into()),
        };
        [name.to_owned(), lane.to_string(), number.to_string()]
    }
}

/// Accounting of one lane.
#[derive(Debug, PartialEq)]
struct LaneStolenTime {
    gap_max_ns: u64,
    /// Steal time by class, in the order of `enum sidelane_class`.
    stolen_ns: [u64; 4],
}

/// Returns what was subtracted from the overlap of each ended turn, and the accounting of both lanes.
fn run_steps(program: &Program, steps: &[Step]) -> (Vec<u64>, [LaneStolenTime; 2]) {
    let mut numbers = program.run(steps.iter().flat_map(|step| step.to_args()));
    let lanes = numbers.split_off(numbers.len() - 10);
    let lane =
        |at: usize| LaneStolenTime { gap_max_ns: lanes[at], stolen_ns: lanes[at + 1..at + 5].try_into().unwrap() };
    (numbers, [lane(0), lane(5)])
}

#[test]
fn stolen_time_is_counted_for_the_running_class() {
    let Some(program) = Program::compile("lane/stolen.c", "booked") else { return };
    let steps = [
        Step::Take(REQUEST, 5_000_001),
        Step::Look(REQUEST, Class::Lc),
        Step::Take(REQUEST, 7_000_001),
        Step::Look(REQUEST, Class::Batch),
        Step::Take(REQUEST, 1_999_998),
        Step::Look(REQUEST, Class::Lc),
        Step::Look(REQUEST, Class::Batch),
    ];
    let (_, [request, batch]) = run_steps(&program, &steps);
    assert_eq!(request, LaneStolenTime { gap_max_ns: 7_000_001, stolen_ns: [0, 6_999_999, 7_000_001, 0] });
    assert_eq!(
        batch,
        LaneStolenTime { gap_max_ns: 0, stolen_ns: [0; 4] },
        "what was taken before the first look is nobody's"
    );
}

#[test]
fn time_stolen_beside_the_service_is_no_overlap() {
    let Some(program) = Program::compile("lane/stolen.c", "beside") else { return };
    for kept in [true, false] {
        // Batch is taken away for 3 ms; the service runs in the last 2 ms of them.
        let steps = [
            Step::Begin,
            Step::Take(BATCH, 1_000_000),
            Step::Starts,
            Step::Take(BATCH, 2_000_000),
            Step::Look(BATCH, Class::Batch),
            Step::End { kept },
        ];
        assert_eq!(run_steps(&program, &steps).0, [2_000_000], "kept: {kept}");
    }
}

#[test]
fn longer_stolen_time_of_two_lanes_is_subtracted() {
    let Some(program) = Program::compile("lane/stolen.c", "both") else { return };
    for (from_service, from_batch) in [(2_000_000, 3_000_000), (3_000_000, 2_000_000)] {
        let steps = [
            Step::Starts,
            Step::Begin,
            Step::Take(REQUEST, from_service),
            Step::Take(BATCH, from_batch),
            Step::Look(BATCH, Class::Batch),
            Step::End { kept: true },
        ];
        assert_eq!(run_steps(&program, &steps).0, [3_000_000], "though nothing looked on the service's lane yet");
    }
}

#[test]
fn time_stolen_after_the_service_counts_only_on_held_lanes() {
    let Some(program) = Program::compile("lane/stolen.c", "gone") else { return };
    let steps = |kept| {
        [
            Step::Starts,
            Step::Begin,
            Step::Stops,
            Step::Take(BATCH, 4_000_000),
            Step::Look(BATCH, Class::Batch),
            Step::End { kept },
        ]
    };
    assert_eq!(run_steps(&program, &steps(false)).0, [0]);
    assert_eq!(run_steps(&program, &steps(true)).0, [4_000_000], "batch was there as long because of the gap alone");
}

#[test]
fn stolen_time_of_one_turn_is_not_subtracted_from_the_next() {
    let Some(program) = Program::compile("lane/stolen.c", "next") else { return };
    let turn = [Step::Begin, Step::Look(BATCH, Class::Batch), Step::End { kept: true }];
    let first = [Step::Starts, Step::Begin, Step::Take(BATCH, 1_000_000), Step::Take(REQUEST, 500_000)];
    let ended = [Step::Look(REQUEST, Class::Lc), Step::Look(BATCH, Class::Batch), Step::End { kept: true }];
    let steps: Vec<Step> = first.into_iter().chain(ended).chain(turn).collect();
    assert_eq!(run_steps(&program, &steps).0, [1_000_000, 0]);
}
