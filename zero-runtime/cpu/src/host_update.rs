//! Host update: updates parameters on the cores of a host whose device has a memory of its own, to the bits of that device.
//! Never waits for anything.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;

use bytemuck::Zeroable;
use rayon::ThreadPool;
use zero_plan::Width;

use super::Cpu;
use super::device::pool;
use zero_core::device::{
    DecayRun, DeviceError, HostNumbers, HostOptimizer, HostPiece, HostStretch, HyperBlock, Kernels, ReportBlock,
    Stored, StoredMut, Weights,
};
use zero_core::speed::best_ns;
use zero_core::view::{View, ViewMut};

/// Some threads that update parameters together.
pub struct HostThreads {
    /// None if the caller is the only thread.
    pool: Option<ThreadPool>,
    cpu: Cpu,
}

impl HostThreads {
    /// Starts threads, unless there is only one: then the caller of an update does all of it. They are called `name` and a
    /// number.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    pub fn start(threads: NonZeroUsize, name: &str) -> Result<Self, DeviceError> {
        let pool = if threads == NonZeroUsize::MIN { None } else { Some(pool(threads, name)?) };
        Ok(Self { pool, cpu: Cpu { threads, ..Cpu::ONE_THREAD } })
    }
}

/// Elements of the states that are updated to measure: more than a last-level cache is likely to hold.
const MEASURED: usize = 16 << 20;

/// Bytes that these threads read and write in a second while they update: of f32, 28 for each parameter.
pub fn updated_bytes_per_s(threads: &HostThreads) -> f64 {
    let hyper = HyperBlock { lr: 1e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, clip: 1.0, ..Zeroable::zeroed() };
    let hyper = HyperBlock { correction1: 1.0, correction2: 1.0, ..hyper };
    let report = ReportBlock { loss: 1.0, gradient_norm: 1.0, grad_scale: 1.0, is_finite: 1.0 };
    let mut states = [1.0, 0.5, 0.0, 0.0].map(|first| vec![first; MEASURED]);
    let [params, sums, m, v] = states
        .each_mut()
        .map(|state: &mut Vec<f32>| HostNumbers { start: state.as_mut_ptr().cast(), width: Width::F32 });
    let stretches = vec![HostStretch { start: 0, runs: vec![DecayRun { len: MEASURED, decays: true }] }];
    let (hyper, report, master) = (&raw const hyper, &raw const report, None);
    let piece = HostPiece { hyper, report, len: MEASURED, params, master, sums, moments: [m, v], stretches };
    // SAFETY: numbers of this function, which nobody else uses.
    let ns = best_ns(|| unsafe { threads.update(&piece) });
    7.0 * size_of::<f32>() as f64 * MEASURED as f64 / (ns * 1e-9)
}

impl HostOptimizer for HostThreads {
    unsafe fn update(&self, piece: &HostPiece) {
        // SAFETY: by the caller's promise.
        let work = || unsafe { update(self.cpu, piece) };
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// # Safety
/// As for [`HostOptimizer::update`].
unsafe fn update(cpu: Cpu, piece: &HostPiece) {
    // SAFETY: by the caller's promise, here and in `part` and `part_mut`.
    let (hyper, report) = unsafe { (View::from_raw(piece.hyper, 1), View::from_raw(piece.report, 1)) };
    let is_finite = report.as_slice()[0].is_finite();
    // The device gets all of the parameters, also those that are not updated, and the padding.
    let as_before = |from: usize, to: usize| {
        if let Some(master) = piece.master {
            // SAFETY: as above.
            unsafe { cpu.convert(part_mut(piece.params, from, to - from), part(master, from, to - from)) };
        }
    };
    let mut done = 0;
    for stretch in piece.stretches.iter().filter(|_| is_finite) {
        let len = stretch.runs.iter().map(|run: &DecayRun| run.len).sum();
        as_before(done, stretch.start);
        // SAFETY: as above.
        let cut = |numbers| unsafe { part_mut(numbers, stretch.start, len) };
        let weights = Weights { params: cut(piece.params), master: piece.master.map(cut) };
        let [m, v] = piece.moments.map(cut);
        // SAFETY: as above.
        let sums = unsafe { part(piece.sums, stretch.start, len) };
        cpu.update(&stretch.runs, hyper, report, weights, sums, m, v);
        done = stretch.start + len;
    }
    as_before(done, piece.len);
}

/// # Safety
/// The numbers are there, and nobody writes them while the view lives.
unsafe fn part<'a>(numbers: HostNumbers, start: usize, len: usize) -> Stored<'a, Cpu> {
    let first = numbers.start.wrapping_add(start * numbers.width.bytes()).cast_const();
    // SAFETY: by the caller's promise.
    unsafe { Stored::of(numbers.width, View::from_raw(first, len * numbers.width.bytes())) }
}

/// # Safety
/// The numbers are there, and nobody else uses them while the view lives.
unsafe fn part_mut<'a>(numbers: HostNumbers, start: usize, len: usize) -> StoredMut<'a, Cpu> {
    let first = numbers.start.wrapping_add(start * numbers.width.bytes());
    // SAFETY: by the caller's promise.
    unsafe { StoredMut::of(numbers.width, ViewMut::from_raw(first, len * numbers.width.bytes())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noise;
    use zero_core::device::{Element, bf16};

    /// Two stretches with a gap between them, and padding at the end.
    const LEN: usize = 40;
    const STRETCHES: [(usize, usize, bool); 2] = [(0, 17, true), (20, 9, false)];

    static HYPER: HyperBlock = HyperBlock {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.99,
        momentum: 0.0,
        epsilon: 1e-8,
        weight_decay: 0.2,
        clip: 1.0,
        correction1: 0.1,
        correction2: 0.01,
    };

    /// Numbers of one width.
    fn numbers<T>(of: &mut [T], width: Width) -> HostNumbers {
        HostNumbers { start: of.as_mut_ptr().cast(), width }
    }

    /// Master copies, moments and narrow parameters after an update by a host, whose parameters were anything before.
    fn updated(threads: usize, is_finite: bool) -> ([Vec<f32>; 3], Vec<bf16>) {
        let report =
            ReportBlock { loss: 1.0, gradient_norm: 1.0, grad_scale: 0.5, is_finite: f64::from(u8::from(is_finite)) };
        let mut states = [noise(LEN, 1), noise(LEN, 2), vec![0.5; LEN]];
        let (mut sums, mut params) = (noise(LEN, 3), vec![bf16::narrow(7.0); LEN]);
        let [master, m, v] = states.each_mut().map(|state| numbers(state, Width::F32));
        let stretches =
            STRETCHES.map(|(start, len, decays)| HostStretch { start, runs: vec![DecayRun { len, decays }] });
        let piece = HostPiece {
            hyper: &raw const HYPER,
            report: &raw const report,
            len: LEN,
            params: numbers(&mut params, Width::BF16),
            master: Some(master),
            sums: numbers(&mut sums, Width::F32),
            moments: [m, v],
            stretches: stretches.to_vec(),
        };
        let threads = NonZeroUsize::new(threads).expect("a number that is not 0");
        let mut host = HostThreads::start(threads, "host").expect("threads");
        host.cpu = host.cpu.eager();
        // SAFETY: numbers of this test, which nobody else uses.
        unsafe { host.update(&piece) };
        (states, params)
    }

    #[test]
    fn a_host_updates_as_a_device_does_and_rounds_all_that_it_gives_back() {
        let report = [ReportBlock { loss: 1.0, gradient_norm: 1.0, grad_scale: 0.5, is_finite: 1.0 }];
        let [mut master, mut m, mut v] = [noise(LEN, 1), noise(LEN, 2), vec![0.5; LEN]];
        let (sums, mut params) = (noise(LEN, 3), vec![bf16::narrow(0.0); LEN]);
        for (start, len, decays) in STRETCHES {
            let all = start..start + len;
            let weights = Weights {
                params: ViewMut::from(&mut params[all.clone()]).into(),
                master: Some(ViewMut::from(&mut master[all.clone()]).into()),
            };
            let [m, v] = [&mut m, &mut v].map(|state| StoredMut::from(ViewMut::from(&mut state[all.clone()])));
            let sums = View::from(&sums[all]).into();
            let runs = [DecayRun { len, decays }];
            Cpu::ONE_THREAD.update(&runs, View::from(&[HYPER][..]), View::from(&report[..]), weights, sums, m, v);
        }
        for threads in [1, 3] {
            let (states, found) = updated(threads, true);
            assert_eq!(states, [master.clone(), m.clone(), v.clone()]);
            let rounded: Vec<bf16> = states[0].iter().map(|&master| bf16::narrow(master)).collect();
            assert!(found == rounded, "{found:?}");
        }
    }

    /// The device gets the parameters that it had.
    #[test]
    fn a_host_changes_nothing_by_what_is_not_finite() {
        let (states, params) = updated(1, false);
        assert_eq!(states, [noise(LEN, 1), noise(LEN, 2), vec![0.5; LEN]]);
        assert!(params == states[0].iter().map(|&master| bf16::narrow(master)).collect::<Vec<_>>());
    }
}
