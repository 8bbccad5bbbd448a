//! Gpus: what the GPUs of this machine can do, all of them at work. Never looks at a plan.

use std::hint::black_box;

use zero_plan::GpuFigures;

use crate::device::{Buffer, Device, DeviceError, Reached, bf16};
use crate::error::Error;
use zero_core::speed::{attended_per_s, best_ns, copied_per_s, mean_at_once, multiplied_per_s};

/// Short ops that a device is asked for in a row: so many that the wait for their end takes no time of each.
const IN_A_ROW: usize = 256;
/// Bytes that one device reads from another one: so many that the first byte takes no time of the rest.
const LINK_BYTES: usize = 256 << 20;

/// Measures the devices of this machine that have memory of their own; none if `D` has none.
///
/// # Errors
/// Z0350 if they are of several kinds, and otherwise what the devices report.
pub fn measure_gpus<D: Device>() -> Result<Option<GpuFigures>, Error> {
    let mut devices = D::all()?;
    let described: Vec<_> = devices.iter().filter_map(Device::description).collect();
    devices.iter().try_for_each(require)?;
    let Some(first) = described.first() else { return Ok(None) };
    if let Some(other) = described.iter().find(|other| other.name != first.name) {
        let what = format!("this machine has GPUs of several kinds, {} and {}", first.name, other.name);
        return Err(Error::Argument { what, help: "choose equal ones: ZERO_CUDA_DEVICES=0,1".to_owned() });
    }
    let [f32_per_s, bf16_per_s, attended_per_s, copied_per_s, op_s] = all_work(&mut devices, |device, _| {
        Ok([
            multiplied_per_s::<_, f32>(device)?,
            multiplied_per_s::<_, bf16>(device)?,
            attended_per_s(device)?,
            copied_per_s(device)?,
            op_s(device)?,
        ])
    })?;
    let link = (devices.len() > 1).then(|| link(&mut devices).map_err(|error| error.report()));
    // By now libraries have loaded what they need, and no memory is taken to measure with.
    let taken_bytes = devices.iter().filter_map(Device::description).map(|now| now.taken_bytes).max().unwrap_or(0);
    Ok(Some(GpuFigures {
        name: first.name.clone(),
        devices: devices.len(),
        memory_bytes: first.memory_bytes,
        taken_bytes,
        multiplied_per_s: [f32_per_s, bf16_per_s],
        attended_per_s,
        copied_per_s,
        op_s,
        link,
    }))
}

/// The failure of a device as an error, if there was one.
fn require<D: Device>(device: &D) -> Result<(), DeviceError> {
    device.failure().map_or(Ok(()), |failure| Err(DeviceError::Failed(failure)))
}

/// Lets all devices work at once, each with its number; the means of their measurements.
fn all_work<D: Device, const N: usize>(
    devices: &mut [D],
    work: impl Fn(&D, usize) -> Result<[f64; N], DeviceError> + Sync,
) -> Result<[f64; N], DeviceError> {
    let work = &work;
    // A device may be used by one thread at a time, and each thread borrows its own.
    let of_device = |(number, device): (usize, &'_ mut D)| {
        let device = &*device;
        let done = work(device, number);
        require(device)?;
        done
    };
    mean_at_once(devices.iter_mut().enumerate().map(|it| move || of_device(it)))
}

/// Seconds from the start of a short op to that of the next one.
fn op_s<D: Device>(device: &D) -> Result<f64, DeviceError> {
    let mut number = Buffer::filled(device, 1, 1.0f32)?;
    let mut last = [0.0];
    let ns = best_ns(|| {
        (0..IN_A_ROW).for_each(|_| device.scale(number.view_mut(), 1.0));
        device.read(number.view(), &mut last);
        black_box(last);
    });
    Ok(ns * 1e-9 / IN_A_ROW as f64)
}

/// Seconds until the first byte and bytes per second of the link from each device to the others, measured while each
/// reads from the next one.
fn link<D: Device>(devices: &mut [D]) -> Result<[f64; 2], DeviceError> {
    let count = devices.len();
    let owned = (0..count).map(|owner| Reached::new(devices, owner, LINK_BYTES));
    let owned = owned.collect::<Result<Vec<Reached<D>>, DeviceError>>()?;
    all_work(devices, |device, number| {
        let next = owned[(number + 1) % count].view(number);
        let mut here = Buffer::zeros(device, LINK_BYTES)?;
        let mut seconds = |bytes: usize, times: usize| {
            let mut last = [0u8];
            let ns = best_ns(|| {
                (0..times).for_each(|_| device.copy(here.view_mut().part(0, bytes), next.part(0, bytes)));
                device.read(here.view().part(bytes - 1, 1), &mut last);
                black_box(last);
            });
            ns * 1e-9 / times as f64
        };
        let latency = seconds(size_of::<u64>(), IN_A_ROW);
        Ok([latency, LINK_BYTES as f64 / seconds(LINK_BYTES, 4)])
    })
}
