//! Tests which rank is named as the cause of a long wait, and in what words.

use std::time::Duration;

use zero_plan::{Config, Mesh, Pass, PlanBuf, TransportKind, Unit};

use zero_cpu::Cpu;

use super::*;
use crate::transport::control::{AwaitedCount, Count};
use crate::transport::shared::Shared;
use crate::transport::{Transport, local};

const RANKS: usize = 3;

/// Calls `look` on rank 0. The other ranks do nothing.
fn as_rank_0(look: impl Fn(&Shared<Cpu>) + Sync) {
    let config = Config { mesh: Mesh::of_zero(RANKS), stage: 3, ..Config::PLAIN };
    as_rank_0_of(config, |transport| look(transport));
}

fn as_rank_0_of(config: Config, look: impl Fn(&mut Shared<Cpu>) + Sync) {
    let unit = Unit { field: "embed", params: 9, takes: 9, ..Unit::NONE };
    let rank_main = |mut transport: Shared<Cpu>| {
        if transport.arena().rank() == 0 {
            look(&mut transport);
        }
    };
    PlanBuf::new("", config, &[unit]).with(|plan| local::run(plan, |_| false, rank_main).expect("memory"));
}

#[test]
fn a_wait_is_put_down_to_the_end_of_the_chain() {
    as_rank_0(|transport| {
        assert_eq!(transport.watchdog.cause_of(Awaited::Rank(1)), 1);
        let first_entry = |rank| Some(AwaitedCount::new(rank, Count::Entered, 1));
        transport.control(1).awaits(first_entry(2));
        assert_eq!(
            (transport.watchdog.cause_of(Awaited::Rank(1)), transport.watchdog.cause_of(Awaited::Rank(2))),
            (2, 2)
        );
        // A chain that changes must not hold up its reader.
        transport.control(2).awaits(first_entry(1));
        assert!((1..RANKS).contains(&transport.watchdog.cause_of(Awaited::Rank(1))));
        // A rank that does not take what is there, because it is stopped, is the cause itself.
        transport.control(2).signal(Count::Entered).raise();
        assert_eq!(
            (transport.watchdog.cause_of(Awaited::Rank(1)), transport.watchdog.cause_of(Awaited::Rank(2))),
            (1, 1)
        );
    });
}

/// Ranks that share a disk fail together, and only the first of them reports it, however often it is asked.
#[test]
fn a_failure_in_common_is_told_by_the_first_rank_alone() {
    as_rank_0_of(Config { mesh: Mesh::of_zero(RANKS), stage: 3, ..Config::PLAIN }, |transport| {
        let first = RankWatchdog { rank: 1, ..(*transport.watchdog).clone() };
        assert_eq!([first.fails(), first.fails()], [None, None]);
        assert_eq!(transport.watchdog.fails(), Some(Lost::Ended { rank: 1 }));
        assert!((0..RANKS).all(|rank| transport.control(rank).lost() == Some(Lost::Ended { rank: 1 })));
    });
}

#[test]
fn a_chain_goes_on_over_other_hosts_as_far_as_they_have_told() {
    let mesh = Mesh { nodes: 2, ..Mesh::of_zero(4) };
    as_rank_0_of(Config { mesh, stage: 3, transport: TransportKind::Cluster, ..Config::PLAIN }, |transport| {
        Arc::make_mut(&mut transport.watchdog).hosts = ["a", "a", "b", "b"].map(str::to_owned).to_vec();
        let waits = |rank| Some(AwaitedCount::new(rank, Count::Entered, 1));
        let other = Control::default();
        other.begin(Some((Pass::Train, 1)));
        assert_eq!(
            (transport.watchdog.cause_of(Awaited::Rank(2)), transport.watchdog.life_of(2)),
            (2, Life::Elsewhere)
        );
        assert_eq!(transport.watchdog.doing_words(2), "an op that b has not reported");
        transport.control(2).note_report(other.words(waits(3)), Life::Runs);
        assert_eq!(transport.watchdog.cause_of(Awaited::Rank(2)), 3);
        transport.control(3).note_report(other.words(None), Life::Stopped);
        assert_eq!((transport.watchdog.cause_of(Awaited::Rank(2)), transport.watchdog.life_of(3)), (3, Life::Stopped));
        assert!(transport.watchdog.doing_words(3).ends_with("`wait embed`"), "{}", transport.watchdog.doing_words(3));
        // Over both hosts, and back to this one.
        transport.control(3).note_report(other.words(waits(1)), Life::Runs);
        assert_eq!(transport.watchdog.cause_of(Awaited::Rank(2)), 1);
    });
}

#[test]
fn a_rank_that_is_stopped_or_gone_waits_for_nobody() {
    let controls: [Control; 2] = Default::default();
    let awaited = AwaitedCount::new(1, Count::Entered, 1);
    controls[0].awaits(Some(awaited));
    let waits_for = |life| awaited_on_host(0, &(0..2), 2, |rank| (&controls[rank], life));
    for life in [Life::Own, Life::Runs, Life::Unknown] {
        assert_eq!(waits_for(life), Some(awaited), "{life:?}");
    }
    assert_eq!([Life::Stopped, Life::Gone].map(waits_for), [None; 2]);
    assert_eq!(awaited_on_host(0, &(0..1), 1, |rank| (&controls[rank], Life::Runs)), None, "there is no such rank");
    controls[1].signal(Count::Entered).raise();
    assert_eq!(waits_for(Life::Runs), None, "it has what it waits for");
}

#[test]
fn what_a_host_peer_takes_of_another_host_is_awaited_of_the_host_peer_until_it_has_asked() {
    let controls: [Control; 4] = Default::default();
    // Rank 3 takes the data of rank 1, which is on another host, for rank 2.
    let waits_for = |count, life| {
        controls[2].awaits(Some(AwaitedCount::new(1, count, 2)));
        let look = |rank: usize| (&controls[rank], if rank == 3 { life } else { Life::Runs });
        awaited_on_host(2, &(2..4), 4, look).map(|awaited| awaited.rank)
    };
    assert_eq!(waits_for(Count::Gathered, Life::Runs), Some(1), "whether it has asked is not known");
    controls[3].signal(Count::Gathered).raise();
    assert_eq!(waits_for(Count::Gathered, Life::Runs), Some(3), "it has asked for one before");
    controls[3].signal(Count::Gathered).raise();
    assert_eq!(waits_for(Count::Gathered, Life::Runs), Some(1), "it has asked");
    for life in [Life::Stopped, Life::Gone] {
        assert_eq!(waits_for(Count::Gathered, life), Some(3), "{life:?}");
        assert_eq!(waits_for(Count::Offered, life), Some(1), "that comes to whoever needs it");
    }
}

#[test]
fn a_wait_names_ranks_and_ops() {
    as_rank_0(|transport| {
        let arena = transport.arena();
        let (step, evaluation) = (arena.pipeline_stage().step.len(), arena.pipeline_stage().evaluation.len());
        arena.begin(Some((Pass::Train, 1)));
        let words = |rank, cause| transport.watchdog.words(Awaited::Rank(rank), cause);
        let own = format!("op 2 of {step} of the step, `wait embed`");
        assert_eq!(words(1, 1), format!("rank 1, in {own}; rank 1 is in no op"));
        transport.control(2).begin(Some((Pass::Evaluate, 0)));
        let other = format!("op 1 of {evaluation} of the evaluation, `gather embed`");
        assert_eq!(words(1, 2), format!("rank 1, which waits for rank 2, in {own}; rank 2 is in {other}"));
        // Words of another process may be anything.
        transport.control(2).begin(Some((Pass::Train, 9999)));
        assert!(words(2, 2).ends_with("rank 2 is in op 10000 of the step"));
        let bucket = arena.pipeline_stage().step.iter().position(|op| op.bucket().is_some()).expect("a bucket");
        transport.control(2).begin(Some((Pass::Train, bucket)));
        assert!(words(2, 2).ends_with("`claim bucket 0`"), "{}", words(2, 2));
    });
}

#[test]
fn a_silent_rank_is_given_up_by_the_first_and_for_all() {
    as_rank_0(|transport| {
        let awaited = AwaitedCount::new(2, Count::Entered, 1);
        transport.control(1).awaits(Some(awaited));
        transport.control(2).begin(Some((Pass::Train, 0)));
        let Lost::Silent(silent) = transport.watchdog.gives_up(Awaited::Rank(1)) else {
            panic!("nobody has given up before")
        };
        assert_eq!((silent.rank, silent.waiting, silent.waited), (2, 0, crate::transport::TIMEOUT));
        assert!(
            silent.doing.ends_with("`gather embed`") && silent.wait.starts_with("rank 1, which waits for rank 2, in ")
        );
        for rank in 0..RANKS {
            assert_eq!(transport.control(rank).lost(), Some(Lost::Ended { rank: 2 }), "rank {rank} was not told");
        }
        assert_eq!(transport.watchdog.gives_up(Awaited::Rank(1)), Lost::Ended { rank: 2 }, "that is told already");
    });
}

#[test]
fn a_wait_is_told_by_one_of_those_who_wait() {
    as_rank_0(|transport| {
        transport.watchdog.still_waits(Awaited::Rank(1), 3);
        let cause = transport.control(1);
        assert!(cause.claim_notice(cause.doing(), 1), "three periods are no time to speak");
        transport.watchdog.still_waits(Awaited::Rank(1), 2);
        assert!(!cause.claim_notice(cause.doing(), 2), "rank 0 has spoken");
    });
}

/// A thread without a transport waits for work that does not end: it reports that, gives up, and ends all ranks.
#[test]
fn a_thread_waits_by_a_watchdog_alone() {
    as_rank_0(|transport| {
        let watchdog = transport.watchdog();
        let (limit, work) = (Some(Duration::from_millis(100)), "a read of `weights`");
        let waits = |looks: &mut dyn FnMut(Duration) -> bool| watchdog.wait_for(work, limit, looks);
        let lost = std::thread::scope(|scope| {
            assert_eq!(scope.spawn(|| waits(&mut |_| true)).join().expect("a thread"), Ok(()));
            let never = |patience| {
                std::thread::sleep(patience);
                false
            };
            scope.spawn(move || waits(&mut { never })).join().expect("a thread")
        });
        let Err(Lost::Silent(silent)) = lost else { panic!("{lost:?}") };
        assert_eq!((silent.rank, silent.waiting, silent.life), (0, 0, Life::Own));
        assert!(silent.wait.starts_with("a read of `weights`, in "), "{}", silent.wait);
        for rank in 0..RANKS {
            assert_eq!(transport.control(rank).lost(), Some(Lost::Ended { rank: 0 }), "rank {rank} was not told");
        }
        assert_eq!(waits(&mut |_| false), Err(Lost::Ended { rank: 0 }), "another wait ends at once");
        watchdog.still_waits(Awaited::Work(work), 2);
        let own = transport.control(0);
        assert!(!own.claim_notice(own.doing(), 2), "it was reported");
    });
}
