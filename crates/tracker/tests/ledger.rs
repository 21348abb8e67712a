//! Tests of how a turn on a batch lane is entered into the ledger: `bpf/lane/ledger.h` as an ordinary program.

mod as_program;

use as_program::Program;

/// Turn of batch: its length, and the time of it in which the service was busy, that the hypervisor took, and that
/// interrupts took, in ns.
type Turn = [u64; 4];

/// Accounts of a turn: idle, busy, then interrupts and steal time, each beside the idle and the busy service, in ns.
type Accounts = [u64; 6];

fn enter(program: &Program, turns: &[Turn]) -> Vec<Accounts> {
    let numbers = program.run(turns.iter().flatten().map(u64::to_string));
    numbers.chunks(6).map(|accounts| accounts.try_into().unwrap()).collect()
}

#[test]
fn turn_is_split_by_what_the_service_did() {
    let Some(program) = Program::compile("lane/ledger.c", "ledger_split") else { return };
    let turns = [[1_000, 400, 0, 0], [1_000, 9_999, 0, 0], [1_000, 400, 100, 200], [1_000, 0, 2_000, 300]];
    let accounts = [
        [600, 400, 0, 0, 0, 0],
        [0, 1_000, 0, 0, 0, 0],
        // What is taken is spread evenly.
        [420, 280, 120, 80, 60, 40],
        [0, 0, 0, 0, 1_000, 0],
    ];
    assert_eq!(enter(&program, &turns), accounts);
}

#[test]
fn accounts_of_a_turn_of_seconds_add_up() {
    let Some(program) = Program::compile("lane/ledger.c", "ledger_seconds") else { return };
    const LONG: u64 = 1 << 33;
    // A share of a long turn is computed in steps of 65,536 ns, and must not be longer than the part of the turn.
    let whole = [LONG - 1, LONG / 2, LONG - 1, 0];
    assert_eq!(enter(&program, &[whole]), [[0, 0, 0, 0, LONG / 2 - 1, LONG / 2]]);
    const DAY: u64 = LONG << 13;
    assert_eq!(enter(&program, &[[DAY, DAY / 4, 0, DAY]]), [[0, 0, DAY / 4 * 3, DAY / 4, 0, 0]]);
    let lengths = [LONG - 1, LONG, LONG + 0xffff, 3 * LONG + 0x1_0001, LONG << 10];
    let turns: Vec<Turn> = lengths
        .into_iter()
        .flat_map(|turn| [0, 1, turn / 2, turn / 2 + 1, turn / 3, turn - 1, turn].map(|part| (turn, part)))
        .flat_map(|(turn, busy)| [0, 1, turn / 3, turn / 2, turn - 1, turn].map(|taken| (turn, busy, taken)))
        .flat_map(|(turn, busy, taken)| [[turn, busy, taken, 0], [turn, busy, 0, taken], [turn, busy, taken, taken]])
        .collect();
    for (turn, accounts) in turns.iter().zip(enter(&program, &turns)) {
        assert!(accounts.iter().all(|ns| *ns <= turn[0]), "{turn:?}: {accounts:?}");
        assert_eq!(accounts.iter().sum::<u64>(), turn[0], "{turn:?}: {accounts:?}");
    }
}
