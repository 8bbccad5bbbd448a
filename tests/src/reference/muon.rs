//! Golden steps of Muon: some matrices after updates by PyTorch, read from `tests/golden`. Never writes the file; `golden/muon.py`
//! does.

use safetensors::SafeTensors;

use super::golden::{Settings, floats, read_file};

/// Some steps of one matrix.
#[derive(Clone, Debug)]
pub struct MuonSteps {
    /// Its rows and columns.
    pub shape: [usize; 2],
    /// The matrix before step 0, exact in `f32`.
    pub initial: Vec<f64>,
    /// The gradient of each step, exact in `f32`.
    pub gradients: Vec<Vec<f64>>,
    /// The matrix after each step of a run in f64, rounded to `f32`.
    pub exact: Vec<Vec<f64>>,
    /// The momentum of that run after the last step.
    pub momentum: Vec<f64>,
    /// The matrix after the last step of PyTorch's own run, which orthogonalizes in bf16.
    pub bf16: Vec<f64>,
    /// Learning rate, the same in all steps.
    pub lr: f64,
    /// Decay of the momentum.
    pub decay: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

impl MuonSteps {
    /// Reads `golden/muon.safetensors`, which has the matrices of these shapes.
    ///
    /// # Panics
    /// If the file is missing or not in the format of `muon.py`.
    pub fn read_all() -> [Self; 3] {
        let bytes = read_file("muon");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let settings = Settings::read(&bytes);
        [[5, 7], [24, 9], [17, 32]].map(|shape| {
            let of = |what: &str| floats(&file, &format!("{what}.{}x{}", shape[0], shape[1]), &shape);
            let of_steps =
                |what: &str| (0..settings.get("steps")).map(|step: usize| of(&format!("{what}.{step}"))).collect();
            Self {
                shape,
                initial: of("initial"),
                gradients: of_steps("gradient"),
                exact: of_steps("exact"),
                momentum: of("momentum"),
                bf16: of("bf16"),
                lr: settings.get("lr"),
                decay: settings.get("momentum"),
                weight_decay: settings.get("weight_decay"),
            }
        })
    }
}
