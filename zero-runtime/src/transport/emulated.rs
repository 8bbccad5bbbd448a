//! Emulated: a transport as slow as a network, for studying on one host how communication and computation overlap. What
//! another rank sends takes latency and bandwidth of one link for each rank, one transfer after another; a wait lasts as
//! long as the transfer that it waits for. Never changes what is computed.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use zero_plan::{Axis, Moved, Op, Parcel, Traffic};

use super::{Lost, Transport};
use crate::arena::Arena;
use crate::device::{Cpu, Write};
use crate::view::View;

/// What every rank is connected by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// From the start of a transfer to its first byte.
    pub latency_us: f64,
    /// Once bytes come.
    pub bandwidth_gb_per_s: f64,
}

impl Link {
    fn duration(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / (self.bandwidth_gb_per_s * 1e9))
    }

    fn latency(&self) -> Duration {
        Duration::from_secs_f64(self.latency_us * 1e-6)
    }
}

/// Another transport, made as slow as a link.
pub struct Emulated<T> {
    inner: T,
    link: Link,
    /// When the link has carried all that was started.
    free: Instant,
    /// For each unit, when its gather is over.
    gathers: Vec<Instant>,
    /// For each bucket, when its reduce-scatter is over.
    reductions: Vec<Instant>,
    gathers_in_flight: usize,
    gathers_in_flight_max: usize,
    exposed: Duration,
}

impl<T> Emulated<T> {
    /// The most gathers that were still in flight when a unit could begin to compute.
    pub fn gathers_in_flight_max(&self) -> usize {
        self.gathers_in_flight_max
    }

    /// Time that this rank has spent waiting for the link: communication that no computation has hidden.
    pub fn exposed(&self) -> Duration {
        self.exposed
    }
}

impl<'p, T: Transport<'p>> Emulated<T> {
    /// `inner` over `link`.
    pub fn new(inner: T, link: Link) -> Self {
        let plan = inner.arena().plan();
        let now = Instant::now();
        Self {
            gathers: vec![now; plan.units.len()],
            reductions: vec![now; plan.buckets.len()],
            inner,
            link,
            free: now,
            gathers_in_flight: 0,
            gathers_in_flight_max: 0,
            exposed: Duration::ZERO,
        }
    }

    /// Starts what `op` sends; gives when it has arrived.
    fn start(&mut self, op: Op) -> Instant {
        let bytes = Traffic::of(self.inner.arena().plan(), &[op]).total_bytes();
        if bytes == 0 {
            return Instant::now();
        }
        self.free = self.free.max(Instant::now()) + self.link.duration(bytes);
        self.free + self.link.latency()
    }

    fn sleep_until(&mut self, end: Instant) {
        let left = end.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left);
            self.exposed += left;
        }
    }
}

// SAFETY: every call is the inner transport's, on the promise that it is called on, and returns later than that.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one argument for all calls, above")]
unsafe impl<'p, T: Transport<'p>> Transport<'p> for Emulated<T> {
    fn arena(&self) -> &Arc<Arena<'p>> {
        self.inner.arena()
    }

    unsafe fn publish(&mut self, unit: usize) {
        unsafe { self.inner.publish(unit) };
    }

    unsafe fn gather(&mut self, unit: usize, slot: usize) {
        self.gathers[unit] = self.start(Op::Gather { unit, slot });
        self.gathers_in_flight += 1;
        unsafe { self.inner.gather(unit, slot) };
    }

    unsafe fn wait(&mut self, unit: usize) -> Result<(), Lost> {
        unsafe { self.inner.wait(unit) }?;
        self.gathers_in_flight -= 1;
        self.gathers_in_flight_max = self.gathers_in_flight_max.max(self.gathers_in_flight);
        self.sleep_until(self.gathers[unit]);
        Ok(())
    }

    unsafe fn widen(&mut self, unit: usize, slot: usize) {
        unsafe { self.inner.widen(unit, slot) };
    }

    unsafe fn gathered(&self, unit: usize) -> View<'_, Cpu> {
        unsafe { self.inner.gathered(unit) }
    }

    unsafe fn release(&mut self, unit: usize) {
        unsafe { self.inner.release(unit) };
    }

    unsafe fn claim(&mut self, bucket: usize) -> Result<(), Lost> {
        unsafe { self.inner.claim(bucket) }
    }

    unsafe fn reduce(&mut self, bucket: usize) {
        self.reductions[bucket] = self.start(Op::Reduce { bucket, round: 0 });
        unsafe { self.inner.reduce(bucket) };
    }

    unsafe fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        unsafe { self.inner.settle(bucket, write) }?;
        self.sleep_until(self.reductions[bucket]);
        // The sum over replicas starts where that over the replica's own ranks is there.
        if self.inner.arena().plan().config.mesh.replica > 1 {
            self.reductions[bucket] = self.start(Op::Combine { bucket, round: 0 });
        }
        Ok(())
    }

    unsafe fn combine(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        unsafe { self.inner.combine(bucket, write) }?;
        self.sleep_until(self.reductions[bucket]);
        Ok(())
    }

    unsafe fn fold(&mut self, unit: usize) {
        unsafe { self.inner.fold(unit) };
    }

    unsafe fn spread(&mut self, bucket: usize, axis: Axis) -> Result<(), Lost> {
        let end = self.start(Op::Spread { bucket, axis });
        unsafe { self.inner.spread(bucket, axis) }?;
        self.sleep_until(end);
        Ok(())
    }

    unsafe fn clear(&mut self, parcel: Parcel) -> Result<(), Lost> {
        unsafe { self.inner.clear(parcel) }
    }

    fn outgoing_slot(&self, parcel: Parcel) -> usize {
        self.inner.outgoing_slot(parcel)
    }

    unsafe fn send(&mut self, parcel: Parcel, unit: usize, len: usize) {
        unsafe { self.inner.send(parcel, unit, len) };
    }

    /// A parcel takes its time where it is received, as the receiver does not know when it left.
    unsafe fn receive(&mut self, parcel: Parcel, unit: usize, to: usize, len: usize) -> Result<(), Lost> {
        unsafe { self.inner.receive(parcel, unit, to, len) }?;
        let bytes = match parcel {
            Parcel::Activations | Parcel::Gradients => len * size_of::<f32>(),
            Parcel::TiedGradients | Parcel::TiedParameters => {
                let sent = Op::Send { parcel, unit, micro_batch: 0 };
                Traffic::of(self.inner.arena().plan(), &[sent]).total_bytes()
            }
        };
        self.sleep_until(Instant::now() + self.link.duration(bytes) + self.link.latency());
        Ok(())
    }

    unsafe fn exchange(&mut self, call: u64, mine: &[f64], all: &mut [f64]) -> Result<(), Lost> {
        unsafe { self.inner.exchange(call, mine, all) }?;
        self.sleep_until(Instant::now() + self.link.latency());
        Ok(())
    }

    fn moved(&self) -> Moved {
        self.inner.moved()
    }
}
