//! Tests of the report on a rank that other ranks have waited for in vain.

use super::*;

#[test]
fn the_state_is_the_letter_behind_the_name() {
    for (state, life) in [('T', Life::Stopped), ('t', Life::Stopped), ('Z', Life::Gone), ('S', Life::Runs)] {
        assert_eq!(Life::in_stat(&format!("7 (a) T (b) {state} 1 7")), life);
    }
    assert_eq!(Life::in_stat(""), Life::Unknown);
}

#[test]
fn a_process_is_asked_for_its_life() {
    assert_eq!(Life::of(Some(std::process::id())), Life::Own);
    assert_eq!(Life::of(Some(1)), Life::Runs);
    assert_eq!(Life::of(Some(u32::MAX)), Life::Gone);
    assert_eq!(Life::of(None), Life::Unknown);
}

#[test]
fn code_z0402_says_who_is_missing_and_who_waits() {
    let silent = Silent {
        rank: 2,
        pid: Some(77),
        life: Life::Stopped,
        host: "here".to_owned(),
        doing: "op 3 of 9 of the step, `forward mlp`".to_owned(),
        waiting: 0,
        wait: "rank 1, which waits for rank 2, in op 4 of 9 of the step, `wait mlp`".to_owned(),
        waited: Duration::from_millis(1500),
    };
    let lines = silent.to_string();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "error[Z0402]: after 1.5 s, rank 2 (pid 77 on here) has not answered: it is stopped",
            "  --> rank 2 was last in op 3 of 9 of the step, `forward mlp`",
            "  --> rank 0 waits for rank 1, which waits for rank 2, in op 4 of 9 of the step, `wait mlp`",
        ]
    );
    assert!(lines.len() == 4 && lines[3].contains("kill -CONT"), "{lines:?}");
    let unknown = Silent { pid: None, life: Life::Unknown, ..silent }.to_string();
    assert!(unknown.contains("rank 2 (a process that has not begun its work on here)"), "{unknown}");
}
