//! Tests of resharding by hand: small sets of runs whose moves are written out. Random ones are in `tests/schedule`.

use super::{Mismatch, Move, RunSide, RunSource, Wanted, intersection, prove};

fn source(tensor: usize, start: usize, len: usize) -> RunSource {
    RunSource { tensor, start, len, file: 0, offset_bytes: 0 }
}

fn wanted(tensor: usize, start: usize, len: usize, at: usize) -> Wanted {
    Wanted { tensor, start, len, unit: 0, at }
}

fn moved(wanted: usize, to: usize, source: usize, from: usize, len: usize) -> Move {
    Move { wanted, to, source, from, len }
}

#[test]
fn runs_that_are_cut_elsewhere_are_read_in_parts() {
    let (lens, sources) = ([10, 4], [source(0, 6, 4), source(1, 0, 4), source(0, 0, 6)]);
    let runs = [wanted(0, 4, 5, 0), wanted(1, 1, 2, 5), wanted(0, 0, 6, 7)];
    let moves = intersection(&lens, &sources, &runs).unwrap();
    assert_eq!(moves, [moved(0, 0, 2, 4, 2), moved(0, 2, 0, 0, 3), moved(1, 0, 1, 1, 2), moved(2, 0, 2, 0, 6)]);
    prove(&lens, &sources, &runs, &moves).unwrap();
}

#[test]
fn nothing_is_wanted_of_runs_without_elements() {
    let (lens, sources) = ([0, 3], [source(1, 3, 0), source(0, 0, 0), source(1, 0, 3)]);
    let runs = [wanted(0, 0, 0, 0), wanted(1, 3, 0, 0), wanted(1, 2, 1, 0)];
    let moves = intersection(&lens, &sources, &runs).unwrap();
    assert_eq!(moves, [moved(2, 0, 2, 2, 1)]);
    prove(&lens, &sources, &runs, &moves).unwrap();
}

#[test]
fn sources_that_are_no_cover_are_refused_by_both() {
    let beyond = |tensor, start, len, tensor_len| Mismatch::Beyond {
        side: RunSide::Source,
        index: 0,
        tensor,
        start,
        len,
        tensor_len,
    };
    let missing = |elements| Mismatch::Missing { tensor: 0, elements };
    let doubled = |elements| Mismatch::Doubled { tensor: 0, elements };
    let cases = [
        (vec![source(0, 1, 7)], missing(0..1)),
        (vec![source(0, 0, 7)], missing(7..8)),
        (vec![source(0, 0, 3), source(0, 4, 4)], missing(3..4)),
        (vec![], missing(0..8)),
        (vec![source(0, 0, 8), source(0, 2, 3)], doubled(2..5)),
        (vec![source(0, 0, 4), source(0, 3, 5)], doubled(3..4)),
        (vec![source(0, 0, 8), source(0, 0, 8)], doubled(0..8)),
        (vec![source(0, 1, 8)], beyond(0, 1, 8, Some(8))),
        (vec![source(0, usize::MAX, 2)], beyond(0, usize::MAX, 2, Some(8))),
        (vec![source(1, 0, 8)], beyond(1, 0, 8, None)),
    ];
    for (sources, mismatch) in cases {
        assert_eq!(intersection(&[8], &sources, &[]), Err(mismatch.clone()), "{sources:?}");
        assert_eq!(prove(&[8], &sources, &[], &[]), Err(mismatch), "{sources:?}");
    }
}

#[test]
fn wanted_runs_beyond_their_tensor_are_refused_by_both() {
    for (run, tensor_len) in [(wanted(0, 5, 4, 0), Some(8)), (wanted(1, 0, 1, 0), None)] {
        let Wanted { tensor, start, len, .. } = run;
        let mismatch = Err(Mismatch::Beyond { side: RunSide::Wanted, index: 0, tensor, start, len, tensor_len });
        assert_eq!(intersection(&[8], &[source(0, 0, 8)], &[run]), mismatch);
        assert_eq!(prove(&[8], &[source(0, 0, 8)], &[run], &[]).map(|()| vec![]), mismatch);
    }
}

#[test]
fn wrong_moves_are_refused_for_what_is_wrong() {
    let sources = [source(0, 0, 4), source(0, 4, 4), source(1, 0, 4)];
    let runs = [wanted(0, 2, 4, 0), wanted(1, 0, 4, 4)];
    let right = intersection(&[8, 4], &sources, &runs).unwrap();
    let with = |index: usize, change: fn(&mut Move)| {
        let mut moves = right.clone();
        change(&mut moves[index]);
        prove(&[8, 4], &sources, &runs, &moves).unwrap_err()
    };
    let other = |index, wanted, read| Mismatch::Other { index, wanted, read };
    assert_eq!(with(0, |m| m.from = 1), other(0, (0, 2), (0, 1)));
    assert_eq!(with(2, |m| m.source = 0), other(2, (1, 0), (0, 0)));
    assert_eq!(with(0, |m| m.len = 1), Mismatch::Unfilled { wanted: 0, elements: 1..2 });
    assert_eq!(with(1, |m| *m = moved(0, 0, 0, 2, 2)), Mismatch::Refilled { wanted: 0, elements: 0..2 });
    assert_eq!(with(1, |m| m.len = 3), Mismatch::Outside { index: 1, moved: moved(0, 2, 1, 0, 3) });
    assert_eq!(with(0, |m| m.len = 0), Mismatch::Outside { index: 0, moved: moved(0, 0, 0, 2, 0) });
    assert_eq!(with(0, |m| m.from = usize::MAX), Mismatch::Outside { index: 0, moved: moved(0, 0, 0, usize::MAX, 2) });
    assert_eq!(with(0, |m| m.source = 3), Mismatch::Outside { index: 0, moved: moved(0, 0, 3, 2, 2) });
    assert_eq!(with(0, |m| m.wanted = 2), Mismatch::Outside { index: 0, moved: moved(2, 0, 0, 2, 2) });
}

#[test]
fn one_place_for_two_elements_is_refused() {
    let runs = [wanted(0, 0, 4, 0), wanted(0, 4, 4, 3)];
    let moves = intersection(&[8], &[source(0, 0, 8)], &runs).unwrap();
    let shared = prove(&[8], &[source(0, 0, 8)], &runs, &moves).unwrap_err();
    assert_eq!(shared, Mismatch::Shared { unit: 0, elements: 3..4 });
    let elsewhere = [runs[0], Wanted { unit: 1, ..runs[1] }];
    prove(&[8], &[source(0, 0, 8)], &elsewhere, &moves).unwrap();
}

#[test]
fn a_mismatch_says_which_elements_of_what() {
    let told = |mismatch: Mismatch| mismatch.to_string();
    let beyond =
        |tensor_len| Mismatch::Beyond { side: RunSide::Source, index: 3, tensor: 1, start: 7, len: 2, tensor_len };
    assert_eq!(told(beyond(Some(8))), "source 3 is 2 elements of tensor 1 from element 7 on, and the tensor has 8");
    assert_eq!(told(beyond(None)), "source 3 is 2 elements of tensor 1 from element 7 on, and there is no such tensor");
    assert_eq!(told(Mismatch::Missing { tensor: 1, elements: 4..6 }), "no source has elements 4..6 of tensor 1");
    assert_eq!(
        told(Mismatch::Other { index: 2, wanted: (1, 5), read: (0, 4) }),
        "move 2 fills element 5 of tensor 1 with element 4 of tensor 0"
    );
    assert_eq!(
        told(Mismatch::Outside { index: 0, moved: moved(1, 2, 3, 4, 5) }),
        "move 0 takes 5 elements from 4 of source 3 to 2 of wanted run 1, which do not both have them"
    );
}
