//! Tests of waiting for a count: being woken, being told of a loss, and notices of a long wait.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::*;

/// Far longer than any test here takes: a sleeper that is still asleep by then never wakes.
const GUARD: Duration = Duration::from_secs(30);
const MILLISECOND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The state of a thread of this process, according to the kernel: `S` if it sleeps.
fn state(thread: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().chars().take(1).collect()
}

/// Raises a count once for sleepers that only a wake can end.
fn wakes(sleepers: u32) {
    // Leaked, because threads that are not woken would outlive the test.
    let (own, other): (&Control, &Control) = (Box::leak(Box::default()), Box::leak(Box::default()));
    let signal = other.signal(Count::Entered);
    let (woken, is_woken) = channel();
    let threads: Vec<u32> = (0..sleepers)
        .map(|_| {
            let (woken, (tell_id, id)) = (woken.clone(), channel());
            thread::spawn(move || {
                tell_id.send(rustix::thread::gettid().as_raw_pid() as u32).unwrap();
                let wait = Waiter { rank: 1, spins: Spins(0), patience: None, ..waiter(own) };
                woken.send(other.wait(Count::Entered, 1, &wait)).unwrap();
            });
            id.recv().unwrap()
        })
        .collect();
    while signal.sleepers.load(Ordering::SeqCst) < sleepers || threads.iter().any(|&thread| state(thread) != "S") {
        thread::yield_now();
    }
    signal.raise();
    for _ in 0..sleepers {
        assert_eq!(is_woken.recv_timeout(GUARD), Ok(Ok(())), "a sleeper was not woken");
    }
    assert_eq!(signal.sleepers.load(Ordering::SeqCst), 0);
}

#[test]
fn all_sleepers_are_woken_without_patience() {
    wakes(1);
    wakes(3);
}

/// A wait for rank 2 with very short sleeps, and no limit on their number.
fn waiter(own: &Control) -> Waiter<'_> {
    Waiter {
        own,
        rank: 2,
        spins: Spins(3),
        patience: Some(&MILLISECOND),
        notice: &|_| {},
        sleeps_max: u32::MAX,
        give_up: &|| unreachable!("a wait without an end"),
    }
}

/// Waits for the first entry of rank 2 with very short sleeps.
fn wait(other: &Control, own: &Control, notice: &dyn Fn(u32)) -> Result<(), Lost> {
    other.wait(Count::Entered, 1, &Waiter { notice, ..waiter(own) })
}

#[test]
fn a_long_wait_gives_notice_of_each_period_and_of_whom_it_is_for() {
    let (own, other) = (Control::default(), Control::default());
    let periods = std::cell::RefCell::new(Vec::new());
    let notice = |period| {
        let awaited = own.awaited().unwrap();
        assert_eq!((awaited.rank, other.owes(awaited)), (2, true));
        periods.borrow_mut().push(period);
        if period == 3 {
            other.signal(Count::Published).raise();
            assert!(other.owes(awaited), "that was another signal");
            other.signal(Count::Entered).raise();
            assert!(!other.owes(awaited));
        }
    };
    assert_eq!(wait(&other, &own, &notice), Ok(()));
    assert_eq!(*periods.borrow(), [1, 2, 3]);
    assert_eq!(own.awaited(), None);
}

#[test]
fn what_is_awaited_survives_its_word() {
    for (rank, target) in [(0, 0), (65_534, u32::MAX), (7, 1 << 31)] {
        let awaited = AwaitedCount::new(rank, Count::Taken(Parcel::ALL[3]), target);
        assert_eq!(AwaitedCount::decode(awaited.encode()), Some(awaited));
    }
    assert_eq!(AwaitedCount::decode(0), None);
    assert_eq!(Count::Taken(Parcel::ALL[Parcel::ALL.len() - 1]).index() + 1, Count::NUMBER, "all counts");
}

#[test]
fn a_period_is_as_long_as_a_notice_says() {
    assert_eq!(u64::from(SLEEPS_PER_NOTICE * PATIENCE_MS), NOTICE.as_millis() as u64);
    assert_eq!(PATIENCE.tv_nsec, 50_000_000);
}

#[test]
fn a_wait_ends_when_a_rank_has_given_up() {
    let (own, other) = (Control::default(), Control::default());
    own.tell_lost(5);
    own.tell_lost(4);
    assert_eq!(wait(&other, &own, &|_| {}), Err(Lost::Ended { rank: 5 }));
    assert_eq!((own.awaited(), other.signal(Count::Entered).sleepers.load(Ordering::SeqCst)), (None, 0));
}

#[test]
fn a_wait_is_given_up_after_its_last_sleep() {
    let (own, other) = (Control::default(), Control::default());
    let asked = std::cell::Cell::new(0);
    let give_up = || {
        asked.set(asked.get() + 1);
        assert_eq!(own.awaited().map(|awaited| awaited.rank), Some(2), "others still see what it waits for");
        Lost::Ended { rank: 7 }
    };
    let waiter = Waiter { sleeps_max: 3, give_up: &give_up, ..waiter(&own) };
    assert_eq!(other.wait(Count::Entered, 1, &waiter), Err(Lost::Ended { rank: 7 }));
    assert_eq!(
        (asked.get(), own.awaited(), other.signal(Count::Entered).sleepers.load(Ordering::SeqCst)),
        (1, None, 0)
    );
}

#[test]
fn a_timeout_is_counted_in_sleeps() {
    for (milliseconds, sleeps) in [(0, 1), (1, 1), (50, 1), (51, 2), (2000, 40), (300_000, 6000)] {
        assert_eq!(sleeps_of(Duration::from_millis(milliseconds)), sleeps);
    }
    assert_eq!(sleeps_of(Duration::MAX), u32::MAX);
    assert_eq!(timeout_of(sleeps_of(Duration::from_secs(2))), Duration::from_secs(2));
}

#[test]
fn others_see_which_process_a_rank_is() {
    let control = Control::default();
    assert_eq!(control.pid(), None);
    control.tell_pid();
    assert_eq!(control.pid(), Some(std::process::id()));
}

#[test]
fn what_is_there_is_not_waited_for() {
    let (own, other) = (Control::default(), Control::default());
    // Even if a rank has given up.
    own.tell_lost(0);
    other.signal(Count::Entered).raise();
    assert_eq!(wait(&other, &own, &|_| {}), Ok(()));
    // Counts wrap around.
    other.signal(Count::Entered).count.store(0, Ordering::SeqCst);
    let waiter = Waiter { spins: Spins(0), ..waiter(&own) };
    assert_eq!(other.wait(Count::Entered, u32::MAX, &waiter), Ok(()));
    assert_eq!(other.wait(Count::Entered, 1, &waiter), Err(Lost::Ended { rank: 0 }));
}

#[test]
fn one_gives_notice_of_a_period_while_nothing_else_is_done() {
    let control = Control::default();
    control.begin(Some((Pass::Train, 3)));
    let what = control.doing();
    assert!(control.claim_notice(what, 1));
    assert!(!control.claim_notice(what, 1), "said already");
    assert!(control.claim_notice(what, 2));
    assert!(!control.claim_notice(what, 1), "said by one who waits longer");
    control.begin(Some((Pass::Train, 3)));
    assert!(control.claim_notice(control.doing(), 1), "the same op of another step");
}

#[test]
fn others_see_what_a_rank_does() {
    let control = Control::default();
    assert_eq!(control.doing().op(), None);
    for op in [Some((Pass::Train, 0)), Some((Pass::Evaluate, 0)), Some((Pass::Train, 75)), None] {
        let before = control.doing().count();
        control.begin(op);
        assert_eq!((control.doing().op(), control.doing().count()), (op, before + 1));
    }
}

#[test]
fn what_another_host_has_told_is_forgotten_after_a_while() {
    let control = Control::default();
    assert_eq!(control.reported(), None);
    for (life, told) in [(Life::Own, Life::Runs), (Life::Runs, Life::Runs), (Life::Gone, Life::Gone)] {
        control.note_report([0, 0], life);
        assert_eq!(control.reported(), Some(told));
    }
    control.reported.fetch_sub(FRESH_NS << Life::BITS, Ordering::Relaxed);
    assert_eq!(control.reported(), None);
}

#[test]
fn counts_that_another_host_has_told_only_grow_and_leave_exchanges_alone() {
    let (there, here) = (Control::default(), Control::default());
    for (count, value) in [(Count::Published, 3), (Count::Entered, 7), (Count::Taken(Parcel::TiedParameters), u32::MAX)]
    {
        there.signal(count).raise_to(value);
    }
    let early = there.counts();
    there.signal(Count::Taken(Parcel::TiedParameters)).raise_to(1);
    here.signal(Count::Entered).raise_to(8);
    for told in [early, there.counts(), early] {
        here.note_counts(told);
    }
    let found = [Count::Published, Count::Entered, Count::Taken(Parcel::TiedParameters), Count::Offered];
    assert_eq!(found.map(|count| here.signal(count).word().load(Ordering::SeqCst)), [3, 8, 1, 0]);
}
