//! Cores: the speeds of this machine's cores while all of them work. Never reads a plan.

use std::hint::black_box;
use std::num::NonZeroUsize;

use zero_core::device::{Buffer, Device, DeviceError, Stored, StoredMut, Write, bf16};
use zero_core::speed::{best_ns, copied_per_s, mean_at_once, multiplied_per_s};
use zero_cpu::Cpu;

/// Bytes of each term of a sum: more than a last-level cache is likely to hold.
const TERM_BYTES: usize = 64 << 20;

/// The speeds that one core reaches while all measured cores work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Operations of f32 matrix products a second.
    pub f32_per_s: f64,
    /// Operations of bf16 matrix products a second.
    pub bf16_per_s: f64,
    /// Bytes that a copy reads and writes in a second.
    pub bytes_per_s: f64,
    /// Bytes that a sum over ranks reads and writes in a second, with as many ranks as cores, and at least two.
    pub summed_bytes_per_s: f64,
}

impl Cores {
    /// Measures `cores` cores of this machine, each with its own thread, and returns the mean of their speeds.
    ///
    /// # Errors
    /// Z0331 or Z0332 if the machine lacks the memory for it, or refuses threads.
    pub fn measure(cores: NonZeroUsize) -> Result<Self, DeviceError> {
        let ranks = cores.get().max(2);
        let terms = (0..ranks).map(|_| Buffer::filled(&Cpu::ONE_THREAD, TERM_BYTES / size_of::<f32>(), 1.0));
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        let measure = |device, core| {
            let (f32_per_s, bf16_per_s) = (multiplied_per_s::<_, f32>(&device)?, multiplied_per_s::<_, bf16>(&device)?);
            Ok([f32_per_s, bf16_per_s, copied_per_s(&device)?, summed_per_s(&device, &terms, core)?])
        };
        let work = |core| Cpu::ONE_THREAD.on_threads(NonZeroUsize::MIN, "zero-measure", |device| measure(device, core));
        let of_core = |core| move || -> Result<[f64; 4], DeviceError> { work(core)? };
        let [f32_per_s, bf16_per_s, bytes_per_s, summed_bytes_per_s] = mean_at_once((0..cores.get()).map(of_core))?;
        Ok(Self { f32_per_s, bf16_per_s, bytes_per_s, summed_bytes_per_s })
    }
}

/// The bytes a second of a reduce-scatter of ranks that share memory, after all have arrived: a rank sums one shard over
/// all ranks, reading the terms and writing the result.
fn summed_per_s<D: Device>(device: &D, terms: &[Buffer<D, f32>], shard: usize) -> Result<f64, DeviceError> {
    let elements = TERM_BYTES / size_of::<f32>() / terms.len();
    let mut sum = Buffer::filled(device, elements, 0.0)?;
    let mut last = [0.0];
    let ns = best_ns(|| {
        let term = |rank: usize| Stored::F32(terms[rank].view().part(shard * elements, elements));
        device.reduce(StoredMut::F32(sum.view_mut()), terms.len(), None, &term, Write::Set);
        device.read(sum.view().part(elements - 1, 1), &mut last);
        black_box(last);
    });
    Ok(((terms.len() + 1) * elements * size_of::<f32>()) as f64 / (ns * 1e-9))
}
