//! Machine: the best speed of this machine, measured on all ranks at once, because they compute at once in training.
//! Never looks at a plan.

use crate::error::Error;
use zero_core::device::{Device, bf16};
use zero_core::transport::Transport;
use zero_engine::Engine;
use zero_plan::{DeviceKind, Width};

use super::gather;
use zero_core::speed::{bytes_max, copied_per_s, multiplied_per_s};

/// The speeds that one rank reaches while all ranks measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Speed of a matrix product in the width that layers compute in, in 10^9 floating-point operations a second.
    pub gflop_per_s: f64,
    /// Speed of a copy, in 10^9 bytes a second, with read and written bytes counted together.
    pub gb_per_s: f64,
}

impl Machine {
    /// The most memory of its device that a rank takes while it measures, in bytes.
    pub const fn bytes(device: DeviceKind) -> usize {
        bytes_max(device)
    }

    /// Measures it, for each rank. Every rank must call it.
    ///
    /// A machine that others use too may be slow at any moment, so a run measures it several times, and takes
    /// [`Machine::best`].
    ///
    /// # Errors
    /// Z0331, Z0332 or Z0435 if the device lacks the memory for it, or an error that another rank has ended.
    pub fn measure<'p, D: Device, T: Transport<'p, D>>(engine: &mut Engine<'p, D, T>) -> Result<Vec<Self>, Error> {
        engine.gather_numbers(&[0.0])?;
        let multiplied_per_s = match engine.program().compute {
            Width::F32 => multiplied_per_s::<_, f32>(engine.device()),
            Width::BF16 => multiplied_per_s::<_, bf16>(engine.device()),
        }?;
        engine.gather_numbers(&[0.0])?;
        let copied_per_s = copied_per_s(engine.device())?;
        let ranks = gather(engine, &[multiplied_per_s * 1e-9, copied_per_s * 1e-9])?;
        Ok(ranks.iter().map(|rank| Self { gflop_per_s: rank[0], gb_per_s: rank[1] }).collect())
    }

    /// The higher of each speed.
    pub fn best(self, other: Self) -> Self {
        Self { gflop_per_s: self.gflop_per_s.max(other.gflop_per_s), gb_per_s: self.gb_per_s.max(other.gb_per_s) }
    }
}
