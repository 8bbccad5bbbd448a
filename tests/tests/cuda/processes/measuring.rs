//! Measurements of a machine's GPUs: figures that a hardware file can have.

use std::process::Command;

use zero_cuda::DEVICES_VARIABLE;
use zero_plan::{GpuFigures, TierKind};
use zero_study::hardware::{Hardware, Processor};
use zero_tests::pretend;

use super::on_cuda;

/// The output of a program without its progress, and the end of its errors.
fn said(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("a program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn measured(devices: &str) -> GpuFigures {
    let mut command = on_cuda(env!("CARGO_BIN_EXE_figures")).expect("devices");
    let (code, figures, errors) = said(command.env(DEVICES_VARIABLE, devices));
    assert_eq!(code, Some(0), "{errors}");
    serde_json::from_str(&figures).expect("figures")
}

#[test]
fn figures_of_gpus_describe_hardware() {
    if !pretend::is_cuda() {
        return;
    }
    let gpus = measured(if pretend::is_hardware() { "0" } else { "0,1,1" });
    let hardware = Hardware::of_gpus(&gpus, None, None);
    assert_eq!((hardware.device.kind, hardware.node.link.is_some()), (Processor::Gpu, gpus.devices > 1), "{gpus:?}");
    let (memory, reserved) = (hardware.device.memory.bytes(), hardware.device.reserved.bytes());
    assert!(0 < reserved && reserved < memory, "{gpus:?}");
    assert!(hardware.device.attention.is_some(), "{gpus:?}");
    let host_link = hardware.rates_of(TierKind::Host).expect("rates of copies from and to the host");
    assert!(host_link.latency > 0.0 && host_link.read.min(host_link.write) > 1e6, "{gpus:?}");
    let text = zero_plan::spec::ron_text(&hardware);
    assert_eq!(Hardware::parse(&text), Ok(hardware), "{text}");
    if !pretend::is_hardware() {
        assert_eq!(text.matches("devices: 2").count(), 1, "{text}");
    }
}

/// A GPU that fails during a measurement is reported, and its figures are not.
#[test]
fn a_gpu_that_fails_has_no_figures() {
    if pretend::libraries().is_none() {
        return;
    }
    let mut command = on_cuda(env!("CARGO_BIN_EXE_figures")).expect("devices");
    let (code, figures, errors) = said(command.env(DEVICES_VARIABLE, "0").env("PRETEND_FAIL", "launch:40"));
    assert_eq!((code, figures.as_str()), (Some(2), ""), "{errors}");
    assert_eq!(errors.matches("error[Z0438]").count(), 1, "{errors}");
}
