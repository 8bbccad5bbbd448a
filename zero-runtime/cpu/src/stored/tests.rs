//! Tests of the step over mixed widths, compared with the f32 kernel on widened copies. Never repeats the formula of AdamW.

use std::ops::Range;

use super::*;
use crate::testing::{STEP, noise};
use zero_core::device::{Element, bf16};

#[derive(Clone, Copy, Debug)]
enum Width {
    F32,
    BF16,
}

const WIDTHS: [Width; 2] = [Width::F32, Width::BF16];

/// A tensor in one width or the other.
#[derive(Clone)]
enum Tensor {
    F32(Vec<f32>),
    BF16(Vec<bf16>),
}

impl Tensor {
    fn new(width: Width, values: &[f32]) -> Self {
        match width {
            Width::F32 => Self::F32(values.to_vec()),
            Width::BF16 => Self::BF16(values.iter().map(|&x| bf16::narrow(x)).collect()),
        }
    }

    fn width(&self) -> Width {
        if matches!(self, Self::F32(_)) { Width::F32 } else { Width::BF16 }
    }

    fn wide(&self) -> Vec<f32> {
        match self {
            Self::F32(values) => values.clone(),
            Self::BF16(values) => values.iter().map(|x| x.widen()).collect(),
        }
    }

    fn bits(&self) -> Vec<u32> {
        self.wide().iter().map(|x| x.to_bits()).collect()
    }

    fn part(&self, range: &Range<usize>) -> Stored<'_, Cpu> {
        match self {
            Self::F32(values) => Stored::F32(values[range.clone()].into()),
            Self::BF16(values) => Stored::BF16(values[range.clone()].into()),
        }
    }

    fn part_mut(&mut self, range: &Range<usize>) -> StoredMut<'_, Cpu> {
        match self {
            Self::F32(values) => StoredMut::F32((&mut values[range.clone()]).into()),
            Self::BF16(values) => StoredMut::BF16((&mut values[range.clone()]).into()),
        }
    }
}

/// Everything that a step touches.
#[derive(Clone)]
struct State {
    width: Width,
    params: Tensor,
    master: Option<(Width, Tensor)>,
    grads: Tensor,
    moments: Width,
    m: Tensor,
    v: Tensor,
}

impl State {
    fn new(len: usize, width: Width, master: Option<Width>, grads: Width, moments: Width) -> Self {
        let params = noise(len, 1);
        let squares: Vec<f32> = noise(len, 4).iter().map(|x| x * x).collect();
        Self {
            width,
            params: Tensor::new(width, &params),
            master: master.map(|width| (width, Tensor::new(width, &params))),
            grads: Tensor::new(grads, &noise(len, 2)),
            moments,
            m: Tensor::new(moments, &noise(len, 3)),
            v: Tensor::new(moments, &squares),
        }
    }

    /// Every mix of widths.
    fn all(len: usize) -> impl Iterator<Item = (String, Self)> {
        let masters = [None, Some(Width::F32), Some(Width::BF16)];
        let mixes = WIDTHS.into_iter().flat_map(move |params| masters.map(|master| (params, master)));
        let mixes = mixes.flat_map(|mix| WIDTHS.map(|grads| (mix, grads)));
        mixes.flat_map(|mix| WIDTHS.map(|moments| (mix, moments))).map(move |(((params, master), grads), moments)| {
            let name = format!("params {params:?}, master {master:?}, grads {grads:?}, moments {moments:?}");
            (name, Self::new(len, params, master, grads, moments))
        })
    }

    /// The step, cut into pieces of `cut` elements.
    fn stepped(mut self, cut: usize) -> Self {
        let len = self.grads.wide().len();
        for start in (0..len).step_by(cut) {
            let range = start..len.min(start + cut);
            let weights = Weights {
                params: self.params.part_mut(&range),
                master: self.master.as_mut().map(|(_, master)| master.part_mut(&range)),
            };
            let (m, v) = (self.m.part_mut(&range), self.v.part_mut(&range));
            adamw(&STEP, weights, self.grads.part(&range), m, v);
        }
        self
    }

    /// The definition: widens everything, calls the kernel once, and rounds everything.
    fn expected(&self) -> Self {
        let (width, updated) = match &self.master {
            Some((width, master)) => (*width, master),
            None => (self.width, &self.params),
        };
        let (mut p, mut m, mut v) = (updated.wide(), self.m.wide(), self.v.wide());
        optimizer::adamw(&STEP, &mut p, &self.grads.wide(), &mut m, &mut v);
        let updated = Tensor::new(width, &p);
        Self {
            params: Tensor::new(self.width, &updated.wide()),
            master: self.master.as_ref().map(|_| (width, updated)),
            m: Tensor::new(self.moments, &m),
            v: Tensor::new(self.moments, &v),
            ..self.clone()
        }
    }

    /// The step of Muon, cut into pieces of `cut` elements: gradients become the direction along which parameters move.
    fn stepped_along(mut self, cut: usize) -> Self {
        let len = self.grads.wide().len();
        for start in (0..len).step_by(cut) {
            let range = start..len.min(start + cut);
            momentum(0.95, 0.3, self.grads.part_mut(&range), self.m.part_mut(&range));
            let weights = Weights {
                params: self.params.part_mut(&range),
                master: self.master.as_mut().map(|(_, master)| master.part_mut(&range)),
            };
            match self.grads.part(&range) {
                Stored::F32(direction) => step_along(0.9, 0.01, weights, direction.as_slice()),
                Stored::BF16(direction) => step_along(0.9, 0.01, weights, direction.as_slice()),
            }
        }
        self
    }

    /// Its definition: widens everything, calls each kernel once, and rounds everything.
    fn expected_along(&self) -> Self {
        let (mut direction, mut m) = (self.grads.wide(), self.m.wide());
        muon::momentum(0.95, 0.3, &mut direction, &mut m);
        let grads = Tensor::new(self.grads.width(), &direction);
        let (width, updated) = match &self.master {
            Some((width, master)) => (*width, master),
            None => (self.width, &self.params),
        };
        let mut p = updated.wide();
        muon::step_along(0.9, 0.01, &mut p, &grads.wide());
        let updated = Tensor::new(width, &p);
        Self {
            params: Tensor::new(self.width, &updated.wide()),
            master: self.master.as_ref().map(|_| (width, updated)),
            grads,
            m: Tensor::new(self.moments, &m),
            ..self.clone()
        }
    }

    fn bits(&self) -> [Vec<u32>; 5] {
        let master = self.master.as_ref().map_or(Vec::new(), |(_, master)| master.bits());
        [self.params.bits(), master, self.grads.bits(), self.m.bits(), self.v.bits()]
    }
}

#[test]
fn every_mix_of_widths_matches_the_f32_kernel() {
    for len in [1, 17, BLOCK, 2 * BLOCK + 33] {
        for (name, state) in State::all(len) {
            assert_eq!(state.clone().stepped(len).bits(), state.expected().bits(), "{len} elements, {name}");
            let expected = state.expected_along().bits();
            assert_eq!(state.stepped_along(len).bits(), expected, "{len} elements by Muon, {name}");
        }
    }
}

#[test]
fn every_mix_gives_the_same_bits_however_the_range_is_cut() {
    let len = 2 * BLOCK + 33;
    for (name, state) in State::all(len) {
        let [whole, along] = [state.clone().stepped(len), state.clone().stepped_along(len)].map(|state| state.bits());
        for cut in [1, 7, 16, BLOCK - 1, BLOCK, BLOCK + 1] {
            assert_eq!(state.clone().stepped(cut).bits(), whole, "cut into {cut}, {name}");
            assert_eq!(state.clone().stepped_along(cut).bits(), along, "cut into {cut} by Muon, {name}");
        }
    }
}

#[test]
fn a_master_copy_gathers_steps_that_bf16_parameters_alone_would_lose() {
    // A step of 1e-4 is less than half of the distance between 1 and its neighbours in bf16, 1/128 and 1/256.
    let step = AdamW { lr: 1e-4, weight_decay: 0.0, ..STEP };
    let (mut alone, mut params, mut master) = ([bf16::ONE], [bf16::ONE], [1.0f32]);
    let (mut moments, mut others) = ([[0.0f32]; 2], [[0.0f32]; 2]);
    for _ in 0..100 {
        let [m, v] = moments.each_mut().map(|moment| StoredMut::F32(moment.as_mut_slice().into()));
        let grads = Stored::F32([1.0f32].as_slice().into());
        adamw(&step, StoredMut::BF16(alone.as_mut_slice().into()).into(), grads, m, v);
        let [m, v] = others.each_mut().map(|moment| StoredMut::F32(moment.as_mut_slice().into()));
        let weights = Weights {
            params: StoredMut::BF16(params.as_mut_slice().into()),
            master: Some(StoredMut::F32(master.as_mut_slice().into())),
        };
        adamw(&step, weights, grads, m, v);
    }
    assert_eq!(alone, [bf16::ONE]);
    assert!(params[0] < bf16::ONE && params[0] == bf16::from_f32(master[0]), "{params:?} of {master:?}");
}

#[test]
#[should_panic(expected = "`master` has 2 elements, expected 3")]
fn a_master_copy_of_another_length_is_refused() {
    let mut state = State::new(3, Width::BF16, Some(Width::F32), Width::F32, Width::F32);
    state.master = Some((Width::F32, Tensor::new(Width::F32, &[0.0; 2])));
    let weights = Weights {
        params: state.params.part_mut(&(0..3)),
        master: state.master.as_mut().map(|(_, master)| master.part_mut(&(0..2))),
    };
    let (m, v) = (state.m.part_mut(&(0..3)), state.v.part_mut(&(0..3)));
    adamw(&STEP, weights, state.grads.part(&(0..3)), m, v);
}
