//! Offers: layouts that fit, for a spec whose ranks need more than its budget. Asks the program, built without a budget,
//! for its sizes. Never fails: if something goes wrong here it offers nothing, because the error of the spec is reported
//! anyway.

use std::path::Path;

use zero_plan::DeviceKind;
use zero_plan::spec::Spec;
use zero_study::advise::{offered_shapes, offers as search, offers_text};

use crate::hardware;
use crate::probe;
use crate::request::ModelRequest;
use crate::say;

/// The machine on which layouts for a device are timed. Any machine with the device would do, because layouts are only
/// compared with one another.
const fn like(device: DeviceKind) -> &'static str {
    match device {
        DeviceKind::Cpu => "cpu-8",
        DeviceKind::Cuda => "a100-80",
    }
}

/// The text to add to the error.
pub fn offers(spec: &Spec, path: &Path, program: &ModelRequest) -> String {
    let (Some(model), Ok(size)) = (&spec.model, program.size.agreed(spec, path)) else { return String::new() };
    say::note("looking for layouts that fit");
    let Ok(like) = hardware::find(like(spec.device)) else { return String::new() };
    let shapes = offered_shapes(spec, &like);
    let Ok(sizes) = probe::of_model(model, &size, program.bin.as_ref(), &shapes) else { return String::new() };
    let length = spec.config().length;
    let units = |width, sequences| sizes.units(width, sequences, length).map(<[_]>::to_vec);
    match search(spec, &like, &units) {
        Ok(found) => format!(
            "\n  = help: these fit, with the same ranks, widths and tokens of a step, the fastest first on {}:\n{}",
            like.name,
            offers_text(&found)
        ),
        Err(nothing) => {
            let (what, would) = nothing.told();
            format!("\n  = note: {what}\n  = help: {would}")
        }
    }
}
