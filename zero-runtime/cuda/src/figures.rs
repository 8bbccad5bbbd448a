//! Figures: the speeds of this machine's GPUs, all of them at work. Programs that train contain none of it: the program
//! `zero-gpus` measures, for `cargo zero measure`. Never looks at a plan.

use std::hint::black_box;
use std::process::ExitCode;

use zero_core::device::{Buffer, Device, DeviceDescription, DeviceError, Kernels, Queues, Reached, Storage, bf16};
use zero_core::speed::{attended_per_s, best_ns, copied_per_s, mean_at_once, multiplied_per_s};
use zero_plan::GpuFigures;

use super::{Cuda, CudaError};

/// Short ops in a row: so many that the wait for their end adds almost no time to each.
const IN_A_ROW: usize = 256;
/// Bytes that one device reads from another: so many that the latency of the first byte is negligible.
const LINK_BYTES: usize = 256 << 20;

/// `main` of a program that prints [`measure`] as JSON, or an error on standard error, and then ends with 2.
pub fn main() -> ExitCode {
    match measure() {
        Ok(figures) => {
            println!("{}", serde_json::to_string(&figures).expect("figures can be written"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(2)
        }
    }
}

/// Measures the GPUs of this machine.
///
/// # Errors
/// Z0447 if they are of several kinds, and otherwise the errors that the devices report.
pub fn measure() -> Result<GpuFigures, DeviceError> {
    let mut devices = Cuda::all()?;
    let described: Vec<DeviceDescription> = devices.iter().filter_map(Device::description).collect();
    devices.iter().try_for_each(require)?;
    let first = described.first().expect("CUDA has a device, or reports that there is none");
    if let Some(other) = described.iter().find(|other| other.name != first.name) {
        return Err(CudaError::Kinds { one: first.name.clone(), other: other.name.clone() }.into());
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
    let host_link = all_work(&mut devices, |device, _| host_link(device))?;
    let link = (devices.len() > 1).then(|| link(&mut devices).map_err(|error| error.report()));
    // By now libraries have loaded everything that they need, and no memory for measurements is allocated.
    let taken_bytes = devices.iter().filter_map(Device::description).map(|now| now.taken_bytes).max().unwrap_or(0);
    Ok(GpuFigures {
        name: first.name.clone(),
        devices: devices.len(),
        memory_bytes: first.memory_bytes,
        taken_bytes,
        multiplied_per_s: [f32_per_s, bf16_per_s],
        attended_per_s,
        copied_per_s,
        op_s,
        host_link,
        link,
    })
}

/// The failure of a device as an error, if there was one.
fn require(device: &Cuda) -> Result<(), DeviceError> {
    device.failure().map_or(Ok(()), |failure| Err(DeviceError::Failed(failure)))
}

/// Runs `work` on all devices at once, each with its number; returns the means of their measurements.
fn all_work<const N: usize>(
    devices: &mut [Cuda],
    work: impl Fn(&Cuda, usize) -> Result<[f64; N], DeviceError> + Sync,
) -> Result<[f64; N], DeviceError> {
    let work = &work;
    // Only one thread at a time may use a device, and each thread borrows its own.
    let of_device = |(number, device): (usize, &'_ mut Cuda)| {
        let device = &*device;
        let done = work(device, number);
        require(device)?;
        done
    };
    mean_at_once(devices.iter_mut().enumerate().map(|it| move || of_device(it)))
}

/// Seconds from the start of a short op to the start of the next.
fn op_s(device: &Cuda) -> Result<f64, DeviceError> {
    let mut number = Buffer::filled(device, 1, 1.0f32)?;
    let mut last = [0.0];
    let ns = best_ns(|| {
        (0..IN_A_ROW).for_each(|_| device.scale(number.view_mut(), 1.0));
        device.read(number.view(), &mut last);
        black_box(last);
    });
    Ok(ns * 1e-9 / IN_A_ROW as f64)
}

/// The link of a device to its host: bytes per second from the host, to it, and both ways at once in sum, and seconds of a
/// copy of a few bytes.
fn host_link(device: &Cuda) -> Result<[f64; 4], DeviceError> {
    let pair =
        || Ok::<_, DeviceError>([Buffer::zeros(device, LINK_BYTES)?, Buffer::zeros_on_host(device, LINK_BYTES)?]);
    let ([mut fetched, there], [here, mut stored]) = (pair()?, pair()?);
    device.prepare(1)?;
    let mut seconds = |bytes: usize, times: usize, ways: [bool; 2]| {
        let mut last = [0u8];
        let ns = best_ns(|| {
            for _ in 0..times {
                device.enter(0);
                if ways[0] {
                    device.copy(fetched.view_mut().part(0, bytes), there.view().part(0, bytes));
                }
                device.enter(1);
                if ways[1] {
                    device.copy(stored.view_mut().part(0, bytes), here.view().part(0, bytes));
                }
            }
            device.record(0);
            device.enter(0);
            device.wait(0);
            device.read(fetched.view().part(bytes - 1, 1), &mut last);
            black_box(last);
        });
        ns * 1e-9 / times as f64
    };
    let mut rate = |ways: [bool; 2]| {
        let moved = LINK_BYTES * ways.into_iter().filter(|way| *way).count();
        moved as f64 / seconds(LINK_BYTES, 4, ways)
    };
    let [read, write, both] = [[true, false], [false, true], [true, true]].map(&mut rate);
    Ok([read, write, both, seconds(size_of::<u64>(), IN_A_ROW, [true, false])])
}

/// The link from each device to the others: seconds until the first byte, and bytes per second, measured while each
/// device reads from the next one.
fn link(devices: &mut [Cuda]) -> Result<[f64; 2], DeviceError> {
    let count = devices.len();
    let owned = (0..count).map(|owner| Reached::new(devices, owner, LINK_BYTES));
    let owned = owned.collect::<Result<Vec<Reached<Cuda>>, DeviceError>>()?;
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
