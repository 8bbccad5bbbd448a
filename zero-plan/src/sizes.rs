//! Sizes: what a program reports about its model, so that plans of it can be made elsewhere: the units under its own
//! spec, and under other micro-batches and widths that were asked for when it was built; and about the GPUs of its
//! machine. Never makes a plan.

use serde::{Deserialize, Serialize};

use crate::config::Width;
use crate::unit::Unit;

/// The report of a program about its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Name of the model.
    pub model: String,
    /// The text of the spec that it was built from.
    pub spec: String,
    /// The units under that spec first, then those of other shapes.
    pub probes: Vec<Probe>,
}

/// The units of a model whose layers compute in one width, on micro-batches of one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The width in which layers compute.
    pub compute: Width,
    /// Sequences of a micro-batch.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// The units.
    pub units: Vec<Unit>,
}

impl Sizes {
    /// The units of a shape, if it was asked for when the program was built.
    pub fn units(&self, compute: Width, sequences: usize, length: usize) -> Option<&[Unit]> {
        let is_it = |probe: &&Probe| (probe.compute, probe.sequences, probe.length) == (compute, sequences, length);
        self.probes.iter().find(is_it).map(|probe| &probe.units[..])
    }
}

/// The measured figures of the GPUs of a program's machine, which are equal and were all busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFigures {
    /// Their usual name.
    pub name: String,
    /// How many there are.
    pub devices: usize,
    /// Memory of one.
    pub memory_bytes: usize,
    /// The part of it that the context and libraries use.
    pub taken_bytes: usize,
    /// Operations of products per second in f32, and in bf16.
    pub multiplied_per_s: [f64; 2],
    /// Operations of attention per second in bf16.
    pub attended_per_s: f64,
    /// Bytes of its memory that it reads and writes per second.
    pub copied_per_s: f64,
    /// Seconds from the start of a short op to that of the next one.
    pub op_s: f64,
    /// Bytes per second from the memory of the host, to it, and both ways at once in sum, and seconds of a copy of a few bytes.
    pub host_link: [f64; 4],
    /// Latency in seconds and bytes per second of reads from the memory of another GPU, or why GPUs do not reach one
    /// another; `None` if there is only one.
    pub link: Option<Result<[f64; 2], String>>,
}

/// A shape in the form of `ZERO_PROBE`: `BF16/4x256`.
pub fn shape_text(compute: Width, sequences: usize, length: usize) -> String {
    format!("{compute:?}/{sequences}x{length}")
}

/// The shapes in the text of `ZERO_PROBE`, separated by commas; none if the text has another form.
pub fn shapes(text: &str) -> Option<Vec<(Width, usize, usize)>> {
    let shape = |text: &str| {
        let (width, shape) = text.split_once('/')?;
        let (sequences, length) = shape.split_once('x')?;
        let compute = [Width::F32, Width::BF16].into_iter().find(|it| format!("{it:?}") == width)?;
        Some((compute, sequences.parse().ok()?, length.parse().ok()?))
    };
    text.split(',').map(shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        let asked = [(Width::F32, 1, 256), (Width::BF16, 16, 4096)];
        let text: Vec<String> = asked.iter().map(|&(compute, n, length)| shape_text(compute, n, length)).collect();
        assert_eq!(shapes(&text.join(",")).unwrap(), asked);
        for wrong in ["", "F32/1", "F16/1x2", "F32/1x2,", "F32/ax2"] {
            assert_eq!(shapes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let unit = Unit { field: "blocks", index: Some(3), params: 7, ..Unit::NONE };
        let probe = Probe { compute: Width::BF16, sequences: 2, length: 8, units: vec![unit] };
        let sizes = Sizes { model: "Gpt".to_owned(), spec: "()".to_owned(), probes: vec![probe] };
        let read: Sizes = serde_json::from_str(&serde_json::to_string(&sizes).unwrap()).unwrap();
        assert_eq!(read, sizes);
        assert_eq!(read.units(Width::BF16, 2, 8), Some(&[unit][..]));
        assert_eq!(read.units(Width::F32, 2, 8), None);
    }
}
