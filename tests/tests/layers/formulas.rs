//! Layers of published models against their formulas in f64, written the obvious way: gradients are only checked against `forward`,
//! so these tests show that `forward` is right.

use zero_core::device::Nonlinearity;
use zero_core::model::Model;
use zero_core::view::ViewMut;
use zero_cpu::Cpu;
use zero_runtime::author::{Activation, Context, Forward, Shape, Tensor, Tensors};
use zero_runtime::layers::{Gated, Nonlinear};
use zero_runtime::prelude::*;
use zero_tests::buffers::noise;
use zero_tests::heads::*;
use zero_tests::tiny;

use crate::Small;

/// The input and the output of a layer, and its tensors by name.
struct Trial {
    x: Vec<f64>,
    y: Vec<f32>,
    params: Vec<f32>,
    tensors: Vec<Tensor>,
}

impl Trial {
    fn of<X: Activation, L: Layer<Small, X>>() -> Self {
        let (params, x) = (noise(L::PARAMS, 1), noise(Small::TOKENS * X::WIDTH, 2));
        let mut y = vec![f32::NAN; Small::TOKENS * L::Output::WIDTH];
        let [mut saved, mut work] = [L::SAVED, L::WORKSPACE].map(|bytes| vec![f32::NAN; bytes / size_of::<f32>()]);
        let cx = Context {
            device: &Cpu::ONE_THREAD,
            sequences: Small::SEQUENCES,
            length: Small::LENGTH,
            earlier: &[],
            slots: 1,
            targets: zero_core::view::View::empty(),
        };
        let pass = Forward {
            params: params.as_slice().into(),
            x: zero_core::view::View::from(x.as_slice()).cast(),
            y: ViewMut::from(y.as_mut_slice()).cast(),
            saved: ViewMut::from(saved.as_mut_slice()).cast(),
            work: ViewMut::from(work.as_mut_slice()).cast(),
        };
        L::forward(&cx, pass);
        let mut tensors = Tensors::default();
        L::tensors(&mut tensors);
        Self { x: x.into_iter().map(f64::from).collect(), y, params, tensors: tensors.into_list() }
    }

    fn tensor(&self, name: &str) -> Option<Vec<f64>> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some(self.params[tensor.start..][..tensor.len()].iter().map(|&x| f64::from(x)).collect())
    }

    /// `x` times the transposed weight of this name, plus the bias if there is one.
    fn project(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.tensor(&format!("{name}.weight")).unwrap_or_else(|| panic!("no weight of {name}"));
        let mut y: Vec<f64> = weight.chunks(x.len()).map(|row| dot(row, x)).collect();
        if let Some(bias) = self.tensor(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        y
    }

    #[track_caller]
    fn assert_gives(&self, expected: &[f64]) {
        assert_eq!(self.y.len(), expected.len());
        let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        for (i, (&found, expected)) in self.y.iter().zip(expected).enumerate() {
            assert!(
                (f64::from(found) - expected).abs() < 2e-5 * largest,
                "y [{i}]: expected {expected}, found {found}"
            );
        }
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// x / sqrt(mean(x^2) + epsilon) gain.
fn rms_norm(x: &mut [f64], gain: &[f64], epsilon: f32) {
    let scale = (dot(x, x) / x.len() as f64 + f64::from(epsilon)).sqrt().recip();
    x.iter_mut().zip(gain).for_each(|(x, gain)| *x *= scale * gain);
}

/// Multiplies the complex number (x_i, x_{i + n/2}) by e^(i position frequency_i), for each i.
fn rotate(head: &mut [f64], rotary: &Rotary, position: usize) {
    let half = head.len() / 2;
    let mut frequencies = vec![0.0; half];
    let factor = f64::from(rotary.frequencies(&mut frequencies));
    for i in 0..half {
        let (sin, cos) = (position as f64 * f64::from(frequencies[i])).sin_cos();
        let (re, im) = (head[i], head[half + i]);
        (head[i], head[half + i]) = (factor * (re * cos - im * sin), factor * (re * sin + im * cos));
    }
}

/// Queries or keys of one token, by head: projected, normed, then rotated.
fn heads_of<H: Heads>(trial: &Trial, name: &str, x: &[f64], position: usize) -> Vec<Vec<f64>> {
    let mut row = trial.project(&format!("{name}_proj"), x);
    let gain = trial.tensor(&format!("{name}_norm.weight"));
    match H::NORM {
        QueryKeyNorm::None => assert!(gain.is_none()),
        QueryKeyNorm::EachHead(epsilon) => {
            row.chunks_mut(H::HEAD_DIM).for_each(|head| rms_norm(head, gain.as_ref().unwrap(), epsilon));
        }
        QueryKeyNorm::Whole(epsilon) => rms_norm(&mut row, &gain.unwrap(), epsilon),
    }
    let mut heads: Vec<_> = row.chunks(H::HEAD_DIM).map(<[f64]>::to_vec).collect();
    if let Some(rotary) = &H::ROTARY {
        heads.iter_mut().for_each(|head| rotate(head, rotary, position));
    }
    heads
}

fn attention_is_its_formula<const W: usize, H: Heads>() {
    let trial = Trial::of::<Features<W>, Attention<W, H>>();
    let mut expected = Vec::new();
    for sequence in trial.x.chunks(Small::LENGTH * W) {
        let tokens: Vec<_> = sequence.chunks(W).enumerate().collect();
        let keys: Vec<_> = tokens.iter().map(|(i, x)| heads_of::<H>(&trial, "k", x, *i)).collect();
        let values: Vec<_> = tokens.iter().map(|(_, x)| trial.project("v_proj", x)).collect();
        for (i, x) in &tokens {
            let mut mixed = Vec::new();
            for (head, query) in heads_of::<H>(&trial, "q", x, *i).iter().enumerate() {
                let shared = head / (H::HEADS / H::KEY_HEADS);
                let seen = (0..=*i).filter(|j| H::WINDOW.is_none_or(|window| i - j < window));
                let score = |j: usize| (dot(query, &keys[j][shared]) / (H::HEAD_DIM as f64).sqrt()).exp();
                let weights: Vec<_> = seen.map(|j| (j, score(j))).collect();
                let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
                mixed.extend((0..H::HEAD_DIM).map(|d| {
                    let value = |j: usize| values[j][shared * H::HEAD_DIM + d];
                    weights.iter().map(|&(j, weight)| weight / total * value(j)).sum::<f64>()
                }));
            }
            expected.extend(trial.project("o_proj", &mixed));
        }
    }
    trial.assert_gives(&expected);
}

#[test]
fn attentions_are_their_formulas() {
    attention_is_its_formula::<5, Grouped>();
    attention_is_its_formula::<4, OneKey>();
    attention_is_its_formula::<5, Biased>();
    attention_is_its_formula::<5, Pairs>();
    attention_is_its_formula::<5, Alone>();
    attention_is_its_formula::<5, Wide>();
    attention_is_its_formula::<7, Normed>();
    attention_is_its_formula::<5, NormedWhole>();
    attention_is_its_formula::<5, Turned>();
    attention_is_its_formula::<5, TurnedLess>();
    attention_is_its_formula::<5, Llama>();
    attention_is_its_formula::<7, Qwen>();
    attention_is_its_formula::<5, Olmo>();
    attention_is_its_formula::<5, All>();
}

/// One tensor has the rows of queries, keys and values one after another.
#[test]
fn fused_projections_are_those_of_their_parts() {
    let (fused, apart) =
        (Trial::of::<Features<5>, Attention<5, Fused>>(), Trial::of::<Features<5>, Attention<5, Biased>>());
    assert_eq!(fused.y, apart.y);
    let names = |trial: &Trial| trial.tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&fused), ["c_attn.weight", "c_attn.bias", "c_proj.weight"]);
    let inputs = ["q_proj.weight", "k_proj.weight", "v_proj.weight", "q_proj.bias", "k_proj.bias", "v_proj.bias"];
    assert_eq!(names(&apart), [&inputs[..], &["o_proj.weight"]].concat());
    let of_all = ["o_proj.weight", "o_proj.bias", "q_norm.weight", "k_norm.weight"];
    assert_eq!(names(&Trial::of::<Features<5>, Attention<5, All>>()), [&inputs[..], &of_all].concat());
    let own = Trial::of::<Features<6>, CausalSelfAttention<6, 2>>();
    assert_eq!(names(&own), ["qkv.weight", "qkv.bias", "out.weight", "out.bias"]);
}

fn gate_is_its_formula<K: Nonlinear>(f: fn(f64) -> f64) {
    let trial = Trial::of::<Features<3>, Gated<3, 7, K>>();
    let rows = trial.x.chunks(3).flat_map(|x| {
        let (gate, up) = (trial.project("gate_proj", x), trial.project("up_proj", x));
        gate.into_iter().zip(up).map(|(gate, up)| f(gate) * up).collect::<Vec<_>>()
    });
    trial.assert_gives(&rows.collect::<Vec<_>>());
}

#[test]
fn gates_are_their_formulas() {
    gate_is_its_formula::<Silu>(|x| x / (1.0 + (-x).exp()));
    gate_is_its_formula::<Relu>(|x| x.max(0.0));
    gate_is_its_formula::<Gelu>(|x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh()));
    assert_eq!((Silu::KIND, Relu::KIND, Gelu::KIND), (Nonlinearity::Silu, Nonlinearity::Relu, Nonlinearity::Gelu));
}

#[test]
fn a_linear_layer_without_bias_is_the_one_whose_bias_is_zero() {
    let trial = Trial::of::<Features<3>, Linear<3, 5, false>>();
    let weight = trial.tensor("weight").unwrap();
    let rows = trial.x.chunks(3).flat_map(|x| weight.chunks(3).map(|row| dot(row, x)).collect::<Vec<_>>());
    trial.assert_gives(&rows.collect::<Vec<_>>());
}

/// The same rows, whose mean square is so small that only the epsilon counts.
#[test]
fn a_norm_has_the_epsilon_that_it_is_told() {
    fn scale<L: Layer<Small, Features<2>>>() -> f32 {
        let (params, x, mut y) =
            (vec![1.0; L::PARAMS], vec![1e-10; 2 * Small::TOKENS], vec![0.0f32; 2 * Small::TOKENS]);
        let mut saved = vec![0.0f32; L::SAVED / size_of::<f32>()];
        let targets = zero_core::view::View::empty();
        let cx = Context { device: &Cpu::ONE_THREAD, sequences: 2, length: 5, earlier: &[], slots: 1, targets };
        let pass = Forward {
            params: params.as_slice().into(),
            x: x.as_slice().into(),
            y: ViewMut::from(y.as_mut_slice()).cast(),
            saved: ViewMut::from(saved.as_mut_slice()).cast(),
            work: ViewMut::empty(),
        };
        L::forward(&cx, pass);
        saved[..2].iter().fold(0.0, |largest, x| largest.max(*x))
    }
    let near = |found: f32, epsilon: f32| (found * epsilon.sqrt() - 1.0).abs() < 1e-4;
    assert!(near(scale::<RmsNorm<2>>(), 1e-5) && near(scale::<LayerNorm<2>>(), 1e-5));
    assert!(near(scale::<RmsNorm<2, E6>>(), 1e-6) && near(scale::<LayerNorm<2, E6>>(), 1e-6));
}

/// A struct's attention costs as much as its layers': 4 operations for each pair of tokens and feature, 23 for each pair and head.
#[test]
fn a_block_attends_as_its_attention_does() {
    let (tokens, length, width, heads) = (2 * 11, 11, tiny::DIM, 3);
    let units = tiny::Untied::PLAN.units;
    let attending: Vec<usize> = units.iter().map(|unit| unit.attending).collect();
    let block = 4 * tokens * length * width + 23 * tokens * length * heads;
    assert_eq!(attending, [0, block, block, 0, 0]);
}
