//! Emulated: a transport as slow as a network, to study on one host how communication and computation overlap. Each rank has one
//! link with a latency and a bandwidth. The link carries one transfer at a time, and a wait lasts until its transfer has ended.
//! Never changes results.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use zero_core::arena::Arena;
use zero_core::view::{View, ViewMut};
use zero_core::watchdog::Watchdog;
use zero_ranks::transport::{Lost, Transport};
use zero_runtime::device::Device;
use zero_runtime::plan::place::{Place, Position};
use zero_runtime::plan::{Moved, Op, Plan, Traffic};

/// The link of every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The time from the start of a transfer to its first byte.
    pub latency_us: f64,
    /// The rate at which bytes then follow.
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

/// How much too long a sleep may be.
const AWAKE: Duration = Duration::from_micros(300);

/// Another transport, made as slow as a link.
pub struct Emulated<T> {
    inner: T,
    link: Link,
    /// When the link will have carried all transfers started so far.
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

impl<T> Emulated<T> {
    /// `inner` over `link`.
    pub fn new<'p, D: Device>(inner: T, link: Link) -> Self
    where
        T: Transport<'p, D>,
    {
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

    /// Starts the transfer of `op`; returns when it arrives.
    fn start(&mut self, plan: &Plan, op: Op) -> Instant {
        let bytes = Traffic::of(plan, 0, &[op]).total_bytes();
        if bytes == 0 {
            return Instant::now();
        }
        self.free = self.free.max(Instant::now()) + self.link.duration(bytes);
        self.free + self.link.latency()
    }

    /// Waits until a transfer ends. The last part is a spin, because a sleep may last longer than requested.
    fn wait_until(&mut self, end: Instant) {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.saturating_sub(AWAKE));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.exposed += left;
    }
}

// SAFETY: every call is passed to the inner transport, with the same guarantees, and only returns later.
unsafe impl<'p, D: Device, T: Transport<'p, D>> Transport<'p, D> for Emulated<T> {
    fn arena(&self) -> &Arc<Arena<'p, D>> {
        self.inner.arena()
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }

    fn watchdog(&self) -> Arc<dyn Watchdog + 'p> {
        self.inner.watchdog()
    }

    unsafe fn begin(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        let plan = self.inner.arena().plan();
        let started = match op {
            Op::Gather { .. } | Op::Reduce { .. } | Op::Spread { .. } => Some(self.start(plan, op)),
            _ => None,
        };
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.begin(device, op, position) }?;
        match (op, started) {
            (Op::Gather { unit, .. }, Some(end)) => {
                self.gathers[unit] = end;
                self.gathers_in_flight += 1;
            }
            (Op::Wait { unit }, _) => {
                self.gathers_in_flight -= 1;
                self.gathers_in_flight_max = self.gathers_in_flight_max.max(self.gathers_in_flight);
                self.wait_until(self.gathers[unit]);
            }
            (Op::Reduce { bucket, .. }, Some(end)) => self.reductions[bucket] = end,
            (Op::Settle { bucket, .. } | Op::Combine { bucket, .. }, _) => self.wait_until(self.reductions[bucket]),
            (Op::Spread { .. }, Some(end)) => self.wait_until(end),
            // The time of a parcel passes when it is received, because the receiver does not know when it was sent.
            (Op::Receive { .. }, _) => {
                let bytes = Moved::taken(plan, 0, &[op]).all().total_bytes();
                self.wait_until(Instant::now() + self.link.duration(bytes) + self.link.latency());
            }
            _ => {}
        }
        Ok(())
    }

    unsafe fn end(&mut self, device: &D, op: Op, position: &Position) {
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.end(device, op, position) };
        let plan = self.inner.arena().plan();
        // The sum over replicas starts when the sum over the replica's own ranks is complete.
        if let Op::Settle { bucket, round } = op
            && plan.config.mesh.replica > 1
        {
            self.reductions[bucket] = self.start(plan, Op::Combine { bucket, round });
        }
    }

    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8> {
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.peer(rank, place) }
    }

    unsafe fn exchange(&mut self, device: &D, call: u64, mine: View<D, f64>, all: ViewMut<D, f64>) -> Result<(), Lost> {
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.exchange(device, call, mine, all) }?;
        self.wait_until(Instant::now() + self.link.latency());
        Ok(())
    }

    fn await_device(&mut self, device: &D) -> Result<(), Lost> {
        self.inner.await_device(device)
    }

    fn moved(&self) -> Moved {
        self.inner.moved()
    }
}
