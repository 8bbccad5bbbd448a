//! Speed: how fast one device multiplies and copies, and the best time of some work. Every measurement takes about as
//! long on any device, so that devices that measure at once are in the same measurement. Never looks at a plan.

use std::hint::black_box;

use zero_plan::DeviceKind;

use crate::device::{AttentionShape, Buffer, Device, DeviceError, Element, Matrix, Write, bf16};
use crate::layer::cost::attending;
use crate::view::ViewMut;

use crate::time::now_ns;

/// How long each measurement is repeated, so that all devices run it at the same time.
const DURATION_NS: u64 = 300_000_000;
/// The least number of repetitions of a measurement.
const TIMES_MIN: usize = 3;
/// On a device with queues, sizes are doubled until the work takes this long, compared to which the host's time to
/// launch it and to wait for its end is short.
const LONG_NS: f64 = 1e6;
/// Numbers before they repeat: enough different ones for a product to draw as much power as in training, and an odd
/// number, so that rows differ.
const PERIOD: usize = 4099;

/// A range of sizes to measure with.
#[derive(Clone, Copy)]
struct SizeRange {
    first: usize,
    last: usize,
}

/// Rows and columns of the matrices that are multiplied: enough that only arithmetic limits the speed.
const fn matrix(has_queues: bool) -> SizeRange {
    SizeRange { first: 1024, last: if has_queues { 8192 } else { 1024 } }
}

/// Heads, their features, and the most tokens of a sequence of attention that is measured.
const HEADS: usize = 16;
const HEAD_DIM: usize = 64;
const SEQUENCE: usize = 1024;

/// Tokens of that attention. Its buffers take less memory than the matrices do.
const ATTENDED: SizeRange = SizeRange { first: 128, last: 32 * SEQUENCE };

/// Bytes that are copied: more than a last-level cache is likely to hold.
const fn copied(has_queues: bool) -> SizeRange {
    SizeRange { first: 64 << 20, last: if has_queues { 512 << 20 } else { 64 << 20 } }
}

/// The most device memory that these measurements take: for the matrices or the copies of the widest elements.
pub const fn bytes_max(device: DeviceKind) -> usize {
    let has_queues = device.has_streams();
    let (matrix, copied) = (matrix(has_queues).last, copied(has_queues).last);
    let (multiplying, copying) = (3 * matrix * matrix * size_of::<f32>(), 2 * copied);
    if multiplying > copying { multiplying } else { copying }
}

/// Operations of matrix products of this width that a device does in a second; a multiply-add counts 2.
pub fn multiplied_per_s<D: Device, E: Element>(device: &D) -> Result<f64, DeviceError> {
    long_enough(matrix(D::QUEUES), |rows| {
        let numbers = |scale: f32| varied(device, rows * rows, |index| E::narrow(scale * factor(index)));
        let (a, b) = (numbers(0.5)?, numbers(0.25)?);
        let mut c = Buffer::filled(device, rows * rows, E::narrow(0.0))?;
        let mut last = [E::narrow(0.0)];
        let ns = best_ns(|| {
            let matrix = |elements| Matrix::new(elements, rows, rows);
            device.matmul(c.view_mut(), matrix(a.view()), matrix(b.view()), Write::Set);
            // The read waits for the product, and makes use of it.
            device.read(c.view().part(rows * rows - 1, 1), &mut last);
            black_box(last);
        });
        Ok((2.0 * (rows as f64).powi(3), ns))
    })
}

/// Operations of the forward and the backward of causal attention, in bf16, that a device does in a second, counted as
/// layers count them.
pub fn attended_per_s<D: Device>(device: &D) -> Result<f64, DeviceError> {
    long_enough(ATTENDED, |tokens| {
        let length = tokens.min(SEQUENCE);
        let shape = AttentionShape {
            sequences: tokens / length,
            length,
            before: 0,
            heads: HEADS,
            key_heads: HEADS,
            head_dim: HEAD_DIM,
            window: None,
        };
        let numbers = |width: usize| varied(device, tokens * width, |index| bf16::narrow(factor(index)));
        let (qkv, dout) = (numbers(shape.qkv_width())?, numbers(shape.out_width())?);
        let (mut out, mut dqkv) = (numbers(shape.out_width())?, numbers(shape.qkv_width())?);
        let mut lse = Buffer::zeros(device, tokens * HEADS)?;
        let mut last = [bf16::ZERO];
        let ns = best_ns(|| {
            let [q, k, v] = shape.parts(qkv.view());
            device.attention(shape, q, k, v, out.view_mut(), lse.view_mut());
            device.attention_backward(shape, q, k, v, out.view(), lse.view(), dout.view(), dqkv.view_mut());
            device.read(dqkv.view().part(tokens * shape.qkv_width() - 1, 1), &mut last);
            black_box(last);
        });
        Ok((3.0 * attending(tokens, length, HEADS, HEAD_DIM) as f64, ns))
    })
}

/// Bytes that a device reads and writes in a second while it copies within its memory.
pub fn copied_per_s<D: Device>(device: &D) -> Result<f64, DeviceError> {
    long_enough(copied(D::QUEUES), |bytes| {
        let elements = bytes / size_of::<f32>();
        // Not zeros: the system need not allocate a page of zeros before it is written.
        let from = varied(device, elements, |index| index as f32)?;
        let mut to = varied(device, elements, |_| 2.0)?;
        let mut last = [0.0];
        let ns = best_ns(|| {
            device.copy(to.view_mut(), from.view());
            device.read(to.view().part(elements - 1, 1), &mut last);
            black_box(last);
        });
        Ok((2.0 * bytes as f64, ns))
    })
}

/// The work done in a second, with the first size that takes long enough, or with the last size. `measure` returns the
/// amount of work of a size, and its time.
fn long_enough(
    sizes: SizeRange,
    measure: impl Fn(usize) -> Result<(f64, f64), DeviceError>,
) -> Result<f64, DeviceError> {
    let mut size = sizes.first;
    loop {
        let (amount, ns) = measure(size)?;
        if ns >= LONG_NS || size >= sizes.last {
            return Ok(amount / (ns * 1e-9));
        }
        size *= 2;
    }
}

/// A factor of a product, from -1 to 1; factors at nearby indices differ.
fn factor(index: usize) -> f32 {
    (index * 31 % 61) as f32 / 30.0 - 1.0
}

/// Numbers in the memory of a device that repeat after [`PERIOD`]; the host writes only the first period.
fn varied<D: Device, E: Element>(
    device: &D,
    len: usize,
    number: impl Fn(usize) -> E,
) -> Result<Buffer<D, E>, DeviceError> {
    let mut buffer = Buffer::zeros(device, len)?;
    let mut done = len.min(PERIOD);
    let fill = |to: &mut [E]| to.iter_mut().enumerate().for_each(|(index, to)| *to = number(index));
    device.stage(buffer.view_mut().part(0, done), fill);
    while done < len {
        let more = done.min(len - done);
        let (from, to): (ViewMut<D, E>, _) = buffer.view_mut().split_at(done);
        device.copy(to.part(0, more), from.into_view().part(0, more));
        done += more;
    }
    Ok(buffer)
}

/// The shortest time of many.
pub fn best_ns(mut run: impl FnMut()) -> f64 {
    let (start, mut best, mut times) = (now_ns(), u64::MAX, 0);
    while times < TIMES_MIN || now_ns() - start < DURATION_NS {
        let start = now_ns();
        run();
        best = best.min(now_ns() - start);
        times += 1;
    }
    best as f64
}

/// Lets all of these measure at once, each on a thread of its own, and takes the mean of each number.
pub fn mean_at_once<const N: usize>(
    works: impl Iterator<Item = impl FnOnce() -> Result<[f64; N], DeviceError> + Send>,
) -> Result<[f64; N], DeviceError> {
    let measured: Vec<Result<[f64; N], DeviceError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = works.map(|work| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|measured| measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let all = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(std::array::from_fn(|which| all.iter().map(|numbers| numbers[which]).sum::<f64>() / all.len() as f64))
}
