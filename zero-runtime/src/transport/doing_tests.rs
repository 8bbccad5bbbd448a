//! Tests of whom a long wait is put down to, and in what words.

use zero_plan::unit::Unit;
use zero_plan::{Config, Mesh, PlanBuf};

use super::*;
use crate::transport::control::{Awaited, Count};
use crate::transport::{Transport, local};

const RANKS: usize = 3;

/// Rank 0 looks at what it makes of the others, which have left.
fn as_rank_0(look: impl Fn(&Shared) + Sync) {
    let unit = Unit { field: "embed", params: 9, takes: 9, ..Unit::NONE };
    let config = Config { mesh: Mesh::of_zero(RANKS), stage: 3, ..Config::PLAIN };
    let rank_main = |transport: Shared| {
        if transport.arena().rank() == 0 {
            look(&transport);
        }
    };
    PlanBuf::new("", config, &[unit]).with(|plan| local::run(plan, |_| false, rank_main).expect("memory"));
}

#[test]
fn a_wait_is_put_down_to_the_end_of_the_chain() {
    as_rank_0(|transport| {
        assert_eq!(transport.cause_of(1), 1);
        let first_entry = |rank| Some(Awaited::new(rank, Count::Entered, 1));
        transport.control(1).awaits(first_entry(2));
        assert_eq!((transport.cause_of(1), transport.cause_of(2)), (2, 2));
        // What a reader sees while a chain changes must not hold it up.
        transport.control(2).awaits(first_entry(1));
        assert!((1..RANKS).contains(&transport.cause_of(1)));
        // A rank that does not take what is there, because it is stopped, is the cause itself.
        transport.control(2).signal(Count::Entered).raise();
        assert_eq!((transport.cause_of(1), transport.cause_of(2)), (1, 1));
    });
}

#[test]
fn a_wait_names_ranks_and_ops() {
    as_rank_0(|transport| {
        let arena = transport.arena();
        let (step, evaluation) = (arena.stage().step.len(), arena.stage().evaluation.len());
        arena.begin(Some((Pass::Train, 1)));
        let words = |rank, cause| transport.words(rank, cause);
        let own = format!("op 2 of {step} of the step, `wait embed`");
        assert_eq!(words(1, 1), format!("rank 1, in {own}; rank 1 is in no op"));
        transport.control(2).begin(Some((Pass::Evaluate, 0)));
        let other = format!("op 1 of {evaluation} of the evaluation, `gather embed`");
        assert_eq!(words(1, 2), format!("rank 1, which waits for rank 2, in {own}; rank 2 is in {other}"));
        // What another process writes may be anything.
        transport.control(2).begin(Some((Pass::Train, 9999)));
        assert!(words(2, 2).ends_with("rank 2 is in op 10000 of the step"));
        assert_eq!(
            arena.stage().step.iter().copied().find(|op| op.bucket().is_some()).map(|op| name(arena.plan(), op)),
            Some("claim bucket 0".to_owned())
        );
    });
}

#[test]
fn a_silent_rank_is_given_up_by_the_first_and_for_all() {
    as_rank_0(|transport| {
        let awaited = Awaited::new(2, Count::Entered, 1);
        transport.control(1).awaits(Some(awaited));
        transport.control(2).begin(Some((Pass::Train, 0)));
        let Lost::Silent(silent) = transport.gives_up(1) else { panic!("nobody has given up before") };
        assert_eq!((silent.rank, silent.waiting, silent.waited), (2, 0, crate::transport::TIMEOUT));
        assert!(
            silent.doing.ends_with("`gather embed`") && silent.wait.starts_with("rank 1, which waits for rank 2, in ")
        );
        for rank in 0..RANKS {
            assert_eq!(transport.control(rank).lost(), Some(Lost::Ended { rank: 2 }), "rank {rank} was not told");
        }
        assert_eq!(transport.gives_up(1), Lost::Ended { rank: 2 }, "that is told already");
    });
}

#[test]
fn a_wait_is_told_by_one_of_those_who_wait() {
    as_rank_0(|transport| {
        transport.still_waits_for(1, 3);
        let cause = transport.control(1);
        assert!(cause.claim_notice(cause.doing(), 1), "three periods are no time to speak");
        transport.still_waits_for(1, 2);
        assert!(!cause.claim_notice(cause.doing(), 2), "rank 0 has spoken");
    });
}
