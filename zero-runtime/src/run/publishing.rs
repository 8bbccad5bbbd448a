//! Publishing: copies the parameters of a run for readers when it is time, and has a thread serve the copies. Never sends a byte
//! itself, and waits for readers only between steps, for a bounded time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Instant;

use serde::Serialize;

use super::offload::agreed;
use super::output::{Output, say};
use super::publish_address::{Addresses, Bound};
use super::publish_arguments::PublishArguments;
use super::train::{Job, RankEngine};
use crate::error::Error;
use zero_core::device::Device;
use zero_files::weights::{Publication, WeightType};
use zero_plan::{Bytes, Width, counted};
use zero_publish::{Readers, Served, Server, Steps, layout, run_name};
use zero_ranks::launch;

/// The publications of a run, as one rank makes them.
pub struct Publishing<'env> {
    arguments: &'env PublishArguments,
    readers: Arc<Readers>,
    steps: Steps,
    /// The steps in copies, oldest first.
    held: VecDeque<u64>,
    /// Bytes of a version, on all ranks together.
    bytes: u64,
    /// Versions that were due while no newer one than the oldest was whole on all ranks.
    skipped: u64,
}

/// A version that was published.
#[derive(Clone, Copy, Debug, Serialize)]
struct PublishLine {
    /// Steps done.
    step: u64,
    /// Bytes of the copies of all ranks.
    bytes: u64,
    /// Seconds for which training stood still for the copy.
    took_s: f64,
    /// Seconds for which it waited for readers before.
    waited_s: f64,
}

impl<'env> Publishing<'env> {
    /// Begins to serve, if the plan publishes parameters. Every rank must call it.
    ///
    /// # Errors
    /// Z0338, of the first rank that has one; on other ranks, the end of that rank.
    pub fn new<'scope, D: Device + 'static>(
        scope: &'scope Scope<'scope, 'env>,
        job: &'env Job<'_, D>,
        engine: &mut RankEngine<'static, D>,
        publication: &Publication,
    ) -> Result<Option<Self>, Error> {
        let arguments = &job.arguments.publishing;
        let (Some(copies), Some(at)) = (engine.copies(), arguments.publish.as_deref()) else { return Ok(None) };
        let (plan, rank) = (engine.plan(), engine.arena().rank());
        let bound = agreed(engine, Bound::new(arguments, at, plan, rank))?;
        let addresses = Addresses::gather(engine, &bound)?;
        let kind = if plan.config.publish.dtype == Width::F32 { WeightType::F32 } else { WeightType::BF16 };
        let publication = publication.clone().in_type(kind);
        let layout = layout(plan, &publication, addresses.for_readers(plan));
        let bytes = layout.ranks.iter().map(|rank| rank.bytes as u64).sum();
        let run = run_name(&addresses.secret);
        if rank == 0 {
            let (dtype, room) = (kind.name(), counted(plan.config.publish.copies, "copy", "copies"));
            let (version, at) = (Bytes(bytes as usize), addresses.shown());
            say(&format!("publish: {version} a version in {dtype}, {room}, at {at}, run {run}\n\n"));
        }
        let (secret, first, files) = (addresses.secret, addresses.first(), publication.files);
        let Bound { listener, token, .. } = bound;
        let served = Served { rank, run, secret, token, layout, files, first };
        let readers = Arc::new(Readers::default());
        let (server, steps) = Server::new(listener, served, Arc::clone(&readers));
        let serve = move || {
            if let Err(error) = server.run(copies, launch::print) {
                launch::print(&format!("note: rank {rank} serves no parameters: {error}"));
            }
        };
        let started = std::thread::Builder::new().name("zero-publish".to_owned()).spawn_scoped(scope, serve);
        started.map_err(|error| Error::Publish { at: at.to_owned(), what: error.to_string() })?;
        Ok(Some(Self { arguments, readers, steps, held: VecDeque::new(), bytes, skipped: 0 }))
    }

    /// Publishes the parameters after a step, if they are due: at the beginning of a run, after every so many steps, and after the last
    /// one. Every rank must call it after every step.
    ///
    /// # Errors
    /// That another rank has ended.
    pub fn after_step<D: Device + 'static>(
        &mut self,
        engine: &mut RankEngine<'static, D>,
        step: u64,
        is_forced: bool,
        output: Option<&mut Output>,
    ) -> Result<(), Error> {
        let is_due = self.arguments.publish_every.is_none_or(|every| step.is_multiple_of(every.get()));
        if !is_due && !is_forced || self.held.back() == Some(&step) {
            return Ok(());
        }
        let (began, copies) = (Instant::now(), engine.plan().config.publish.copies);
        if let Some(&newest) = self.held.back() {
            if copies == 1 || is_forced {
                self.wait(engine, newest, copies == 1)?;
            } else if self.held.len() == copies && self.shown(engine)? <= self.held[0] as f64 {
                // Otherwise readers would have nothing whole.
                self.skipped += 1;
                return Ok(());
            }
        }
        let waited_s = began.elapsed().as_secs_f64();
        engine.publish()?;
        if self.held.len() == copies {
            self.held.pop_front();
        }
        self.held.push_back(step);
        self.steps.offer(step);
        if let Some(output) = output {
            let took_s = began.elapsed().as_secs_f64() - waited_s;
            output.record("publication", &PublishLine { step, bytes: self.bytes, took_s, waited_s });
        }
        Ok(())
    }

    /// Waits for readers of the last version, for a bounded time, before the ranks end. Every rank must call it.
    ///
    /// # Errors
    /// That another rank has ended.
    pub fn finish<D: Device + 'static>(self, engine: &mut RankEngine<'static, D>) -> Result<(), Error> {
        if let Some(&newest) = self.held.back() {
            self.wait(engine, newest, true)?;
        }
        if engine.arena().rank() == 0 && self.skipped > 0 {
            let versions = counted(self.skipped as usize, "version was", "versions were");
            say(&format!("publish: {versions} skipped, because the one before was not whole yet\n"));
        }
        Ok(())
    }

    /// The step of the newest version that is whole, according to rank 0; a negative number if there is none.
    fn shown<D: Device>(&self, engine: &mut RankEngine<D>) -> Result<f64, Error> {
        let shown = self.readers.shown().map_or(-1.0, |step| step as f64);
        Ok(engine.gather_numbers(&[shown])?[0])
    }

    /// Has all ranks wait until rank 0 knows that a version is whole, and that readers have it, if training waits for them.
    fn wait<D: Device>(&self, engine: &mut RankEngine<D>, step: u64, waits_for_readers: bool) -> Result<(), Error> {
        if engine.arena().rank() == 0 {
            let patience = self.arguments.publish_timeout;
            let why = if !self.readers.wait_until_shown(step, patience) {
                Some("not whole on all ranks".to_owned())
            } else if waits_for_readers {
                let late = self.readers.wait_for_all(step, patience);
                (!late.is_empty()).then(|| format!("not read by {}", late.join(", ")))
            } else {
                None
            };
            if let Some(why) = why {
                let within = patience.as_secs();
                launch::print(&format!("note: the version of step {step} is {why} within {within} s, and is given up"));
            }
        }
        engine.gather_numbers(&[0.0])?;
        Ok(())
    }
}
