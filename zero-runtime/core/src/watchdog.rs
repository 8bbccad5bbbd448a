//! Watchdog: reports a wait while it lasts, ends it with an error when it has lasted too long, and then ends all ranks.
//! A thread that has a watchdog can wait without a transport, such as a thread that reads a disk or serves requests.

use std::time::Duration;

use crate::control::{PATIENCE_MS, SLEEPS_PER_NOTICE};
use crate::lost::Lost;

/// What a rank waits for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited<'a> {
    /// Another rank, by its number.
    Rank(usize),
    /// Work of its own, in words that follow "waits for".
    Work(&'a str),
}

/// Watches over the waits of a rank. All ranks of a run have one, and each sees what the others have reported.
pub trait Watchdog: Send + Sync {
    /// Why this rank must not go on, if there is a reason.
    fn lost(&self) -> Option<Lost>;

    /// Reports that a wait has lasted for this many periods of [`crate::control::NOTICE`], if a report is due and no
    /// other rank has made it.
    fn still_waits(&self, awaited: Awaited, periods: u32);

    /// Ends all ranks after a wait in vain. The first rank that gives up gets the error that describes the cause, and
    /// any later rank learns only that the cause has ended.
    fn gives_up(&self, awaited: Awaited) -> Lost;

    /// Ends all ranks after a failure of this one. Returns the reason to end instead if another rank ended before: then the
    /// failure, which both may have in common, is not reported again.
    fn fails(&self) -> Option<Lost>;

    /// Waits until `is_done` returns true; it looks for up to the time that is passed to it. Gives up after `limit`, if
    /// there is one.
    ///
    /// # Errors
    /// [`Lost`], if another rank has ended or this one gives up.
    fn wait_for(
        &self,
        work: &str,
        limit: Option<Duration>,
        is_done: &mut dyn FnMut(Duration) -> bool,
    ) -> Result<(), Lost> {
        let patience = Duration::from_millis(PATIENCE_MS.into());
        let mut looks = 0u32;
        while !is_done(patience) {
            if let Some(lost) = self.lost() {
                return Err(lost);
            }
            looks = looks.saturating_add(1);
            if looks.is_multiple_of(SLEEPS_PER_NOTICE) {
                self.still_waits(Awaited::Work(work), looks / SLEEPS_PER_NOTICE);
            }
            if limit.is_some_and(|limit| patience * looks >= limit) {
                return Err(self.gives_up(Awaited::Work(work)));
            }
        }
        Ok(())
    }
}
