//! Reshard: for random tensors, cut at random into sources, and random wanted runs, the moves are those of a map of
//! single elements, and the proof refuses every mutant. Never looks at a plan.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zero_plan::reshard::{Move, RunSource, Wanted, intersection, prove};

use crate::properties::cases;

/// Tensors, their sources, and the wanted runs.
#[derive(Clone, Debug)]
struct Case {
    lens: Vec<usize>,
    sources: Vec<RunSource>,
    wanted: Vec<Wanted>,
}

impl Case {
    /// Sources are the tensors, each cut at its share of `cuts`, in a random order. Wanted runs lie one after another
    /// in units that take turns.
    fn new(lens: Vec<usize>, cuts: &[(Index, Index)], keys: &[u64], runs: &[(Index, Index, Index)]) -> Self {
        let mut sources = Vec::new();
        for (tensor, &len) in lens.iter().enumerate() {
            let mut starts: Vec<usize> =
                cuts.iter().filter(|cut| cut.0.index(lens.len()) == tensor).map(|cut| cut.1.index(len + 1)).collect();
            starts.extend([0, len]);
            starts.sort_unstable();
            // The same cut twice gives a source without elements.
            sources.extend(starts.windows(2).map(|pair| (tensor, pair[0], pair[1] - pair[0])));
        }
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&i| keys.get(i));
        let sources = order.iter().enumerate().map(|(i, &of)| {
            let (tensor, start, len) = sources[of];
            RunSource { tensor, start, len, file: i % 3, offset_bytes: 64 * i as u64 }
        });
        let mut ends = [0, 0];
        let wanted = runs.iter().enumerate().map(|(i, (tensor, start, len))| {
            let tensor = tensor.index(lens.len());
            let start = start.index(lens[tensor] + 1);
            let len = len.index(lens[tensor] - start + 1);
            let at = ends[i % 2] + i % 5;
            ends[i % 2] = at + len;
            Wanted { tensor, start, len, unit: i % 2, at }
        });
        Self { sources: sources.collect(), wanted: wanted.collect(), lens }
    }

    /// The place of each element of each tensor; none if an element is nowhere, or in two places.
    fn elements(&self) -> Option<Vec<Vec<(usize, usize)>>> {
        let mut places: Vec<Vec<Option<(usize, usize)>>> = self.lens.iter().map(|&len| vec![None; len]).collect();
        for (i, source) in self.sources.iter().enumerate() {
            for from in 0..source.len {
                let place = places.get_mut(source.tensor)?.get_mut(source.start.checked_add(from)?)?;
                if place.replace((i, from)).is_some() {
                    return None;
                }
            }
        }
        places.into_iter().map(|places| places.into_iter().collect()).collect()
    }

    /// Every wanted element with the element that it is read from, in the order of wanted runs.
    fn naive(&self) -> Option<Vec<[usize; 4]>> {
        let elements = self.elements()?;
        let runs = self.wanted.iter().enumerate();
        let map = runs.flat_map(|(i, run)| (0..run.len).map(move |to| (i, to, run)));
        let map = map.map(|(i, to, run)| {
            let (source, from) = elements[run.tensor][run.start + to];
            [i, to, source, from]
        });
        Some(map.collect())
    }

    /// Whether moves are equal to that map, in any order.
    fn is_right(&self, moves: &[Move]) -> bool {
        if moves.iter().any(|moved| moved.len == 0 || moved.len > 1000 || moved.from > 1000 || moved.to > 1000) {
            return false;
        }
        let mut map = each(moves);
        map.sort_unstable();
        Some(map) == self.naive()
    }
}

fn each(moves: &[Move]) -> Vec<[usize; 4]> {
    let elements = |m: &Move| {
        let Move { wanted, to, source, from, len } = *m;
        (0..len).map(move |i| [wanted, to + i, source, from + i])
    };
    moves.iter().flat_map(elements).collect()
}

fn any_case() -> impl Strategy<Value = Case> {
    let index = any::<Index>;
    let runs = vec((index(), index(), index()), 0..8);
    (vec(0..40_usize, 1..5), vec((index(), index()), 0..9), vec(any::<u64>(), 16), runs)
        .prop_map(|(lens, cuts, keys, runs)| Case::new(lens, &cuts, &keys, &runs))
}

/// Ways in which a move can be wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    ReadsLater,
    ReadsEarlier,
    FillsLater,
    FillsEarlier,
    Dropped,
    Doubled,
    OtherSource(Index),
    OtherWanted(Index),
    Longer,
    LongerBefore,
    Shorter,
    ShorterBefore,
    Exchanged(Index),
}

impl Wrong {
    fn of(self, moves: &mut Vec<Move>, at: usize, sources: usize, wanted: usize) {
        let moved = &mut moves[at];
        match self {
            Self::ReadsLater => moved.from += 1,
            Self::ReadsEarlier => moved.from = moved.from.wrapping_sub(1),
            Self::FillsLater => moved.to += 1,
            Self::FillsEarlier => moved.to = moved.to.wrapping_sub(1),
            Self::Dropped => drop(moves.remove(at)),
            Self::Doubled => moves.push(moves[at]),
            Self::OtherSource(other) => moved.source = other.index(sources + 1),
            Self::OtherWanted(other) => moved.wanted = other.index(wanted + 1),
            Self::Longer => moved.len += 1,
            Self::LongerBefore => {
                *moved = Move {
                    to: moved.to.wrapping_sub(1),
                    from: moved.from.wrapping_sub(1),
                    len: moved.len + 1,
                    ..*moved
                }
            }
            Self::Shorter => moved.len -= 1,
            Self::ShorterBefore => {
                *moved = Move { to: moved.to + 1, from: moved.from + 1, len: moved.len - 1, ..*moved };
            }
            Self::Exchanged(other) => {
                let other = other.index(moves.len());
                let (a, b) = (moves[at].source, moves[other].source);
                (moves[at].source, moves[other].source) = (b, a);
            }
        }
    }
}

fn any_wrong() -> impl Strategy<Value = Wrong> {
    let index = any::<Index>;
    prop_oneof![
        Just(Wrong::ReadsLater),
        Just(Wrong::ReadsEarlier),
        Just(Wrong::FillsLater),
        Just(Wrong::FillsEarlier),
        Just(Wrong::Dropped),
        Just(Wrong::Doubled),
        index().prop_map(Wrong::OtherSource),
        index().prop_map(Wrong::OtherWanted),
        Just(Wrong::Longer),
        Just(Wrong::LongerBefore),
        Just(Wrong::Shorter),
        Just(Wrong::ShorterBefore),
        index().prop_map(Wrong::Exchanged),
    ]
}

/// Ways in which a source can be wrong.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Dropped,
    Doubled,
    Later,
    Earlier,
    Longer,
    Shorter,
    OtherTensor(Index),
    FarAway,
}

const LOST: [Lost; 7] =
    [Lost::Dropped, Lost::Doubled, Lost::Later, Lost::Earlier, Lost::Longer, Lost::Shorter, Lost::FarAway];

impl Lost {
    fn of(self, sources: &mut Vec<RunSource>, at: usize, tensors: usize) {
        let source = &mut sources[at];
        match self {
            Self::Dropped => drop(sources.remove(at)),
            Self::Doubled => sources.push(sources[at]),
            Self::Later => source.start += 1,
            Self::Earlier => source.start = source.start.wrapping_sub(1),
            Self::Longer => source.len += 1,
            Self::Shorter => source.len = source.len.saturating_sub(1),
            Self::OtherTensor(other) => source.tensor = other.index(tensors + 1),
            Self::FarAway => source.start = usize::MAX,
        }
    }
}

fn any_lost() -> impl Strategy<Value = Lost> {
    prop_oneof![7 => prop::sample::select(&LOST[..]), 1 => any::<Index>().prop_map(Lost::OtherTensor)]
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn moves_are_those_of_a_map_of_single_elements(case in any_case()) {
        let moves = intersection(&case.lens, &case.sources, &case.wanted)?;
        prop_assert_eq!(prove(&case.lens, &case.sources, &case.wanted, &moves), Ok(()));
        prop_assert!(moves.is_sorted_by_key(|moved| (moved.wanted, moved.to)));
        prop_assert_eq!(Some(each(&moves)), case.naive());
        // There cannot be more moves than cuts.
        prop_assert!(moves.len() <= case.wanted.len() * case.sources.len());
    }

    #[test]
    fn every_wrong_move_is_refused(case in any_case(), wrong in any_wrong(), at in any::<Index>(), keys in vec(any::<u64>(), 8)) {
        let mut moves = intersection(&case.lens, &case.sources, &case.wanted)?;
        prop_assume!(!moves.is_empty());
        // The proof does not demand an order.
        moves.sort_by_key(|moved| keys[moved.to % keys.len()]);
        prop_assert_eq!(prove(&case.lens, &case.sources, &case.wanted, &moves), Ok(()));
        let at = at.index(moves.len());
        wrong.of(&mut moves, at, case.sources.len(), case.wanted.len());
        let proof = prove(&case.lens, &case.sources, &case.wanted, &moves);
        prop_assert_eq!(proof.is_ok(), case.is_right(&moves), "{:?} of move {}: {:?}", wrong, at, moves);
        let is_same = matches!(wrong, Wrong::OtherSource(_) | Wrong::OtherWanted(_) | Wrong::Exchanged(_));
        prop_assert!(proof.is_err() || is_same, "{:?} of move {} is refused", wrong, at);
    }

    #[test]
    fn every_wrong_source_is_refused(case in any_case(), lost in any_lost(), at in any::<Index>()) {
        let right = intersection(&case.lens, &case.sources, &case.wanted)?;
        let mut wrong = case.clone();
        let at = at.index(case.sources.len());
        lost.of(&mut wrong.sources, at, case.lens.len());
        let is_cover = wrong.elements().is_some() && !matches!(lost, Lost::FarAway) && within(&wrong);
        prop_assert_eq!(intersection(&wrong.lens, &wrong.sources, &wrong.wanted).is_ok(), is_cover, "{:?}", wrong);
        if !is_cover {
            prop_assert!(prove(&wrong.lens, &wrong.sources, &wrong.wanted, &right).is_err(), "{:?}", wrong);
        }
        // An empty source loses nothing.
        let is_same = wrong.sources == case.sources;
        prop_assert!(!is_cover || is_same || case.sources[at].len == 0, "{:?} of source {}", lost, at);
    }

    #[test]
    fn one_place_for_two_elements_is_refused(case in any_case(), at in any::<Index>(), onto in any::<Index>()) {
        prop_assume!(!case.wanted.is_empty());
        let mut wrong = case.clone();
        let (at, onto) = (at.index(case.wanted.len()), onto.index(case.wanted.len()));
        wrong.wanted[at].unit = case.wanted[onto].unit;
        wrong.wanted[at].at = case.wanted[onto].at;
        let moves = intersection(&wrong.lens, &wrong.sources, &wrong.wanted)?;
        let mut filled: Vec<_> = wrong.wanted.iter().flat_map(|w| (0..w.len).map(|i| (w.unit, w.at + i))).collect();
        filled.sort_unstable();
        let is_apart = filled.windows(2).all(|pair| pair[0] != pair[1]);
        prop_assert_eq!(prove(&wrong.lens, &wrong.sources, &wrong.wanted, &moves).is_ok(), is_apart);
    }
}

/// Whether all runs, even those without elements, lie within their tensors.
fn within(case: &Case) -> bool {
    case.sources.iter().all(|s| case.lens.get(s.tensor).is_some_and(|&len| s.start <= len))
}
