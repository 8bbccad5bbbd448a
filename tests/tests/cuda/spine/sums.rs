//! Sums over ranks, of losses and of squares, and the numbers that ranks agree on: to the bit.

use zero_core::device::{
    Agreement, Buffer, Device, Element, HyperBlock, Kernels, ReportBlock, Stored, StoredMut, Write, bf16,
};
use zero_core::view::{View, ViewMut};
use zero_plan::{Axis, Config, Mesh, PlanBuf, Unit};
use zero_tests::buffers::{noise, of, stored};

use super::{CPU, Shifted, alike, bytes, device};

fn reduce_all<D: Device, E: Element>(device: &D, len: usize, before: usize, count: usize) -> Vec<Vec<u8>>
where
    for<'a> Stored<'a, D>: From<View<'a, D, E>>,
    for<'a> StoredMut<'a, D>: From<ViewMut<'a, D, E>>,
{
    let summands: Vec<_> = (0..count as u64).map(|seed| Shifted::<D, E>::new(device, len, before, seed)).collect();
    let mut results = Vec::new();
    for own in [None, Some(0), Some(count - 1)] {
        for write in [Write::Set, Write::Add] {
            let mut to = Shifted::<D, E>::new(device, len, before, 99);
            device.reduce(to.view_mut().into(), count, own, &|i| summands[i].view().into(), write);
            results.push(to.bytes(device));
        }
    }
    results
}

fn reduce_alike<E: Element>() {
    let Some(cuda) = device() else { return };
    let counts = [1, 2, 3, 4, 5, 6, 7, 8, 13];
    let sizes = counts.into_iter().map(|count| (19, 0, count)).chain([(5000, 0, 6), (500, 1, 6), (1, 0, 100)]);
    for (len, before, count) in sizes {
        let found = reduce_all::<_, E>(&cuda, len, before, count);
        for (case, (found, expected)) in found.iter().zip(&reduce_all::<_, E>(&CPU, len, before, count)).enumerate() {
            alike(&format!("case {case} of {count} summands of {len} from {before}"), found, expected);
        }
    }
}

#[test]
fn f32_is_summed_along_the_processors_tree() {
    reduce_alike::<f32>();
}

#[test]
fn bf16_is_summed_along_the_processors_tree() {
    reduce_alike::<bf16>();
}

#[test]
#[should_panic(expected = "summand 0 is stored as bf16, but the sum as f32")]
fn widths_must_agree() {
    let Some(cuda) = device() else { panic!("summand 0 is stored as bf16, but the sum as f32: not tested") };
    let (mut to, x) = (of(&cuda, &[0.0f32]), of(&cuda, &[bf16::ONE]));
    cuda.reduce(to.view_mut().into(), 1, None, &|_| x.view().into(), Write::Set);
}

fn means_and_squares<D: Device, E: Element>(device: &D, len: usize) -> [Vec<u8>; 2]
where
    for<'a> Stored<'a, D>: From<View<'a, D, E>>,
{
    let (losses, x) = (of(device, &noise(len, 1)), stored::<D, E>(device, &noise(len, 2)));
    let (mut mean, mut squares): (Buffer<D, f64>, _) = (of(device, &[0.1]), of(device, &[f64::NAN]));
    device.add_mean(losses.view(), mean.view_mut());
    device.squares(x.view().into(), squares.view_mut());
    [bytes(device, &mean), bytes(device, &squares)]
}

/// Below and beyond a block, and with a tree that many threads sum.
#[test]
fn means_and_squares_are_the_processors() {
    let Some(cuda) = device() else { return };
    for len in [1, 15, 16, 17, 1023, 1025, 4096, 4097, 70_000, 256 * 4096, 300 * 4096 + 5] {
        for (found, expected) in
            means_and_squares::<_, f32>(&cuda, len).iter().zip(&means_and_squares::<_, f32>(&CPU, len))
        {
            alike(&format!("{len} of f32"), found, expected);
        }
    }
    for len in [5, 4097, 70_000] {
        let [found, expected] =
            [means_and_squares::<_, bf16>(&cuda, len)[1].clone(), means_and_squares::<_, bf16>(&CPU, len)[1].clone()];
        alike(&format!("{len} of bf16"), &found, &expected);
    }
}

#[test]
fn squares_of_nothing_are_zero() {
    let Some(cuda) = device() else { return };
    let mut squares = of(&cuda, &[f64::NAN]);
    cuda.squares(View::<_, f32>::empty().into(), squares.view_mut());
    assert_eq!(bytes(&cuda, &squares), [0; 8]);
}

const HYPER: HyperBlock = HyperBlock {
    lr: 0.1,
    beta1: 0.9,
    beta2: 0.5,
    momentum: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.2,
    clip: f64::INFINITY,
    correction1: 0.271,
    correction2: 0.875,
};

fn report<D: Device>(device: &D, agreement: &Agreement, all: &[f64], clip: f64) -> Vec<u8> {
    let (all, hyper) = (of(device, all), of(device, &[HyperBlock { clip, ..HYPER }]));
    let nothing = ReportBlock { loss: f64::NAN, gradient_norm: f64::NAN, grad_scale: f64::NAN, is_finite: 7.0 };
    let mut report = of(device, &[nothing]);
    device.agree(agreement, all.view(), hyper.view(), report.view_mut());
    bytes(device, &report)
}

/// On pipeline stages of replicas, where ranks are numbered differently from data and parts.
#[test]
fn ranks_agree_as_on_the_processor() {
    let Some(cuda) = device() else { return };
    for [zero, replica, pipeline] in [[1, 1, 1], [3, 2, 2], [8, 3, 2], [5, 1, 1]] {
        let order = [Axis::Pipeline, Axis::Replica, Axis::Zero];
        let mesh = Mesh { nodes: 1, zero, replica, pipeline, order };
        let config = Config { mesh, stage: 1, micro_batches: 3, ..Config::PLAIN };
        let unit = |source| Unit { source, params: 64, takes: 64, input_bytes: 4, output_bytes: 4, ..Unit::NONE };
        let units: Vec<_> = (0..2 * pipeline).map(unit).collect();
        let agreement = PlanBuf::new("", config, &units).with(Agreement::of);
        let words = zero * replica * pipeline * agreement.values();
        let all: Vec<f64> = (0..words).map(|i| 1.0 / (3.0 + i as f64)).collect();
        for clip in [f64::INFINITY, 1e-3] {
            let what = format!("{zero} by {replica} by {pipeline} ranks, clipped at {clip}");
            alike(&what, &report(&cuda, &agreement, &all, clip), &report(&CPU, &agreement, &all, clip));
        }
        for at in 0..words {
            // The result is not finite either, and no code relies on its sign and payload.
            let bad: Vec<f64> = all.iter().enumerate().map(|(i, &x)| if i == at { f64::INFINITY } else { x }).collect();
            let of = |bytes: Vec<u8>| bytemuck::pod_read_unaligned::<ReportBlock>(&bytes);
            let [found, expected] = [of(report(&cuda, &agreement, &bad, 1.0)), of(report(&CPU, &agreement, &bad, 1.0))];
            assert_eq!(found.is_finite, expected.is_finite, "word {at}");
            assert_eq!(found.loss.is_finite(), expected.loss.is_finite(), "word {at}");
            assert_eq!(found.gradient_norm.is_finite(), expected.gradient_norm.is_finite(), "word {at}");
        }
    }
}
