//! Machine: the best speed of this machine, measured on all ranks at once, because they compute at once in training.
//! Never looks at a plan.

use std::hint::black_box;
use std::num::NonZeroUsize;

use crate::device::{Buffer, Cpu, Device, Element, Matrix, Stored, StoredMut, Write, bf16};
use crate::engine::Engine;
use crate::error::Error;
use crate::launch::LaunchError;
use crate::layer::Shape;
use crate::model::{DeviceOf, Model};
use crate::transport::Transport;

use super::{gather, now_ns};

/// Rows and columns of the matrices that are multiplied: enough that only arithmetic limits the speed.
const MATRIX: usize = 1024;
/// Bytes that are copied: more than a last-level cache is likely to hold.
const COPIED_BYTES: usize = 64 << 20;
/// How long each of the two is repeated, so that all ranks do it at the same time.
const DURATION_NS: u64 = 300_000_000;
/// How often each is repeated, at least.
const TIMES_MIN: usize = 3;

/// The speeds that one rank reaches while all ranks measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Speed of a matrix product in the width that layers compute in, in 10^9 floating-point operations a second.
    pub gflop_per_s: f64,
    /// Speed of a copy, in 10^9 bytes a second, read and written ones together.
    pub gb_per_s: f64,
}

impl Machine {
    /// The most memory that a rank takes while it measures: with matrices of the widest elements.
    pub const BYTES: usize = 2 * COPIED_BYTES + 3 * MATRIX * MATRIX * size_of::<f32>();

    /// Measures it, for each rank. Every rank must call it.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the device lacks the memory for it, or an error that another rank has ended.
    pub fn measure<'p, M: Model, T: Transport<'p, DeviceOf<M>>>(
        engine: &mut Engine<'p, M, T>,
    ) -> Result<Vec<Self>, Error> {
        engine.gather_numbers(&[0.0])?;
        let operations = 2 * MATRIX.pow(3);
        let gflop_per_s = operations as f64 / matrix_product_ns::<_, <M::Shape as Shape>::Compute>(engine.device())?;
        engine.gather_numbers(&[0.0])?;
        let gb_per_s = 2.0 * COPIED_BYTES as f64 / copy_ns(engine.device())?;
        let ranks = gather(engine, &[gflop_per_s, gb_per_s])?;
        Ok(ranks.iter().map(|rank| Self { gflop_per_s: rank[0], gb_per_s: rank[1] }).collect())
    }
}

/// The number of measurements of a core.
const PROBES: usize = 4;

/// The speeds that one core reaches while all measured cores work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Operations of f32 matrix products a second.
    pub f32_per_s: f64,
    /// Operations of bf16 matrix products a second.
    pub bf16_per_s: f64,
    /// Bytes that a copy reads and writes in a second.
    pub bytes_per_s: f64,
    /// Bytes that a sum over ranks reads and writes in a second, of as many ranks as cores, and at least two.
    pub summed_bytes_per_s: f64,
}

impl Cores {
    /// Measures `cores` cores of this machine, each with a thread of its own, and returns the mean of their speeds.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the machine lacks the memory for it, or refuses threads.
    pub fn measure(cores: NonZeroUsize) -> Result<Self, Error> {
        let ranks = cores.get().max(2);
        let terms = (0..ranks).map(|_| Buffer::filled(&Cpu::ONE_THREAD, COPIED_BYTES / size_of::<f32>(), 1.0));
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        // Each probe takes equally long on every core, so that all cores are in the same one.
        let probes = |device, core| {
            let (f32_ns, bf16_ns) = (matrix_product_ns::<_, f32>(&device)?, matrix_product_ns::<_, bf16>(&device)?);
            Ok([f32_ns, bf16_ns, copy_ns(&device)?, sum_ns(&device, &terms, core)?])
        };
        let work = |core| Cpu::ONE_THREAD.on_threads(NonZeroUsize::MIN, "zero-measure", |device| probes(device, core));
        let measured: Vec<Result<Result<[f64; PROBES], Error>, LaunchError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores.get()).map(|core| scope.spawn(move || work(core))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|measured| measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let all = measured.into_iter().map(|measured| measured?).collect::<Result<Vec<[f64; PROBES]>, Error>>()?;
        let mean_s = |which: usize| all.iter().map(|ns| ns[which]).sum::<f64>() / all.len() as f64 * 1e-9;
        let operations = 2.0 * (MATRIX as f64).powi(3);
        Ok(Self {
            f32_per_s: operations / mean_s(0),
            bf16_per_s: operations / mean_s(1),
            bytes_per_s: 2.0 * COPIED_BYTES as f64 / mean_s(2),
            // Each core reads its shard of all, and writes the sum.
            summed_bytes_per_s: (ranks + 1) as f64 / ranks as f64 * COPIED_BYTES as f64 / mean_s(3),
        })
    }
}

fn matrix_product_ns<D: Device, E: Element>(device: &D) -> Result<f64, Error> {
    let filled = |value| Buffer::filled(device, MATRIX * MATRIX, E::narrow(value));
    let (a, b, mut c) = (filled(0.5)?, filled(0.25)?, filled(0.0)?);
    let mut last = [E::narrow(0.0)];
    Ok(best_ns(|| {
        let matrix = |elements| Matrix::new(elements, MATRIX, MATRIX);
        device.matmul(c.view_mut(), matrix(a.view()), matrix(b.view()), Write::Set);
        // The read waits for the product, and makes use of it.
        device.read(c.view().part(MATRIX * MATRIX - 1, 1), &mut last);
        black_box(last);
    }))
}

fn copy_ns<D: Device>(device: &D) -> Result<f64, Error> {
    let elements = COPIED_BYTES / size_of::<f32>();
    // Not zeros: the system need not give memory to a page of zeros before it is written.
    let (from, mut to) = (Buffer::filled(device, elements, 1.0)?, Buffer::filled(device, elements, 2.0)?);
    let mut last = [0.0];
    Ok(best_ns(|| {
        device.copy(to.view_mut(), from.view());
        device.read(to.view().part(elements - 1, 1), &mut last);
        black_box(last);
    }))
}

/// A reduce-scatter of ranks that share memory, after all have arrived: the sum of one shard over all of them.
fn sum_ns<D: Device>(device: &D, terms: &[Buffer<D, f32>], shard: usize) -> Result<f64, Error> {
    let elements = COPIED_BYTES / size_of::<f32>() / terms.len();
    let mut sum = Buffer::filled(device, elements, 0.0)?;
    let mut last = [0.0];
    Ok(best_ns(|| {
        let term = |rank: usize| Stored::F32(terms[rank].view().part(shard * elements, elements));
        device.reduce(StoredMut::F32(sum.view_mut()), terms.len(), None, &term, Write::Set);
        device.read(sum.view().part(elements - 1, 1), &mut last);
        black_box(last);
    }))
}

/// The shortest time of many.
fn best_ns(mut run: impl FnMut()) -> f64 {
    let (start, mut best, mut times) = (now_ns(), u64::MAX, 0);
    while times < TIMES_MIN || now_ns() - start < DURATION_NS {
        let start = now_ns();
        run();
        best = best.min(now_ns() - start);
        times += 1;
    }
    best as f64
}
