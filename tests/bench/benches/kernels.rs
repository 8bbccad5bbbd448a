//! Micro-benchmark: the kernels at the shapes of the default GPT on one thread. Throughput of matrix products and attention is in
//! floating-point operations, of all other kernels in bytes that must be read and written. A run of all ends with a table of the
//! times that these operations or bytes need at the rates of this machine.

use std::hint::black_box;
use std::path::Path;
use std::time::SystemTime;

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use zero_core::device::{
    AdamW, AttentionShape, Element, Kernels, Matrix, Nonlinearity, Rotary, Scaling, Strided, StridedMut, Then, Write,
    bf16,
};
use zero_core::orthogonal::{operations, orthogonalize, room_bytes};
use zero_core::random::mix;
use zero_core::view::{View, ViewMut};
use zero_cpu::Cpu;
use zero_cpu::tree_sum;

mod quick;
mod shares;

/// The folder of results.
const RESULTS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels");

const DEVICE: Cpu = Cpu::ONE_THREAD;

const LENGTH: usize = 256;
const TOKENS: usize = 4 * LENGTH;
const WIDTH: usize = 384;
const HEADS: usize = 6;
const CLASSES: usize = 512;

/// Numbers between -1 and 1.
fn numbers(len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| (mix(7, i) % 2001) as f32 / 1000.0 - 1.0).collect()
}

fn bytes(elements: usize) -> Throughput {
    Throughput::Bytes((elements * size_of::<f32>()) as u64)
}

/// The rates that the other kernels are compared with.
fn machine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(shares::MACHINE);
    let side = 1024;
    let (a, b, mut c) = (numbers(side * side), numbers(side * side), numbers(side * side));
    group.throughput(Throughput::Elements(2 * (side * side * side) as u64));
    group.bench_function(shares::PRODUCT, |bencher| {
        let square = |x| Matrix::new(View::from(x), side, side);
        bencher.iter(|| DEVICE.matmul((&mut c[..]).into(), square(&a[..]), square(&b[..]), Write::Set));
    });
    let (from, mut to) = (numbers(4 * TOKENS * WIDTH), numbers(4 * TOKENS * WIDTH));
    group.throughput(bytes(2 * from.len()));
    group.bench_function(shares::COPY, |bencher| {
        bencher.iter(|| DEVICE.copy(ViewMut::from(&mut to[..]), View::from(&from[..])));
    });
    group.finish();
}

/// The three products of a linear layer: forward, gradient of its input, gradient of its weight.
fn matmul(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matmul");
    for (input, output) in
        [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH), (WIDTH, CLASSES)]
    {
        let (x, weight, dy) = (numbers(TOKENS * input), numbers(output * input), numbers(TOKENS * output));
        let (mut y, mut dx, mut dweight) = (dy.clone(), x.clone(), weight.clone());
        let x = || Matrix::new(View::from(&x[..]), TOKENS, input);
        let weight = || Matrix::new(View::from(&weight[..]), output, input);
        let dy = || Matrix::new(View::from(&dy[..]), TOKENS, output);
        group.throughput(Throughput::Elements(2 * (TOKENS * input * output) as u64));
        group.bench_function(format!("y {input} to {output}"), |bencher| {
            bencher.iter(|| DEVICE.matmul((&mut y[..]).into(), x(), weight().transposed(), Write::Set));
        });
        group.bench_function(format!("dx {input} to {output}"), |bencher| {
            bencher.iter(|| DEVICE.matmul((&mut dx[..]).into(), dy(), weight(), Write::Set));
        });
        group.bench_function(format!("dweight {input} to {output}"), |bencher| {
            bencher.iter(|| DEVICE.matmul((&mut dweight[..]).into(), dy().transposed(), x(), Write::Set));
        });
    }
    group.finish();
}

/// A product with an operation that is fused into it.
fn linear(criterion: &mut Criterion) {
    let (input, output) = (WIDTH, 4 * WIDTH);
    let (x, weight, bias) = (numbers(TOKENS * input), numbers(output * input), numbers(output));
    let (mut y, mut z) = (numbers(TOKENS * output), numbers(TOKENS * output));
    let weight = || Matrix::new((&weight[..]).into(), output, input);
    let bias = || Some((&bias[..]).into());
    let mut group = criterion.benchmark_group("linear");
    group.throughput(Throughput::Elements(2 * (TOKENS * input * output) as u64));
    group.bench_function("bias", |bencher| {
        bencher.iter(|| {
            let (y, then) = ((&mut y[..]).into(), Then::Nothing);
            DEVICE.linear(y, (&x[..]).into(), weight(), bias(), then);
        });
    });
    group.bench_function("bias and gelu", |bencher| {
        bencher.iter(|| {
            let (y, then) = ((&mut y[..]).into(), Then::Activate(Nonlinearity::Gelu, (&mut z[..]).into()));
            DEVICE.linear(y, (&x[..]).into(), weight(), bias(), then);
        });
    });
    group.bench_function("bias and residual", |bencher| {
        bencher.iter(|| {
            let (y, then) = ((&mut y[..]).into(), Then::Add((&z[..]).into()));
            DEVICE.linear(y, (&x[..]).into(), weight(), bias(), then);
        });
    });
    group.finish();
}

fn layer_norm(criterion: &mut Criterion) {
    let elements = TOKENS * WIDTH;
    let (x, dy, gain, bias) = (numbers(elements), numbers(elements), numbers(WIDTH), numbers(WIDTH));
    let (mut y, mut dx, mut stats) = (x.clone(), x.clone(), vec![0.0; 2 * TOKENS]);
    let (mut dgain, mut dbias) = (gain.clone(), bias.clone());
    let mut group = criterion.benchmark_group("layer_norm");
    group.throughput(bytes(2 * elements));
    group.bench_function("forward", |bencher| {
        bencher.iter(|| {
            let (y, stats) = ((&mut y[..]).into(), (&mut stats[..]).into());
            DEVICE.layer_norm((&x[..]).into(), (&gain[..]).into(), (&bias[..]).into(), y, stats, 1e-5);
        });
    });
    group.throughput(bytes(3 * elements));
    group.bench_function("backward", |bencher| {
        bencher.iter(|| {
            let (x, gain, stats, dy) = ((&x[..]).into(), (&gain[..]).into(), (&stats[..]).into(), (&dy[..]).into());
            let (dgain, dbias) = ((&mut dgain[..]).into(), (&mut dbias[..]).into());
            DEVICE.layer_norm_backward(x, gain, stats, dy, Some((&mut dx[..]).into()), None, dgain, dbias, Write::Set);
        });
    });
    group.finish();
}

fn gelu(criterion: &mut Criterion) {
    let elements = TOKENS * 4 * WIDTH;
    let (x, dy) = (numbers(elements), numbers(elements));
    let mut out = x.clone();
    let mut group = criterion.benchmark_group("gelu");
    group.throughput(bytes(2 * elements));
    group.bench_function("forward", |bencher| {
        bencher.iter(|| DEVICE.activate(Nonlinearity::Gelu, (&x[..]).into(), (&mut out[..]).into()));
    });
    group.throughput(bytes(3 * elements));
    group.bench_function("backward", |bencher| {
        bencher.iter(|| {
            let out = (&mut out[..]).into();
            DEVICE.activate_backward(Nonlinearity::Gelu, (&x[..]).into(), (&dy[..]).into(), out);
        });
    });
    group.finish();
}

/// Norms and rotations of the queries and keys of a token, in rows that end with its values.
fn heads(criterion: &mut Criterion) {
    let (stride, head_dim, elements) = (3 * WIDTH, WIDTH / HEADS, 2 * TOKENS * WIDTH);
    let (qkv, gain) = (numbers(TOKENS * stride), numbers(head_dim));
    let (mut normed, mut dgain, mut inverse) = (qkv.clone(), gain.clone(), vec![0.0; TOKENS * 2 * HEADS]);
    let rows = Strided::new((&qkv[..]).into(), stride);
    let mut group = criterion.benchmark_group("heads");
    group.throughput(bytes(2 * elements));
    group.bench_function("norm", |bencher| {
        bencher.iter(|| {
            let (y, inverse) = (StridedMut::new((&mut normed[..]).into(), stride), (&mut inverse[..]).into());
            DEVICE.rms_norm_heads(rows, 2 * HEADS, (&gain[..]).into(), y, inverse, 1e-6);
        });
    });
    group.throughput(bytes(3 * elements));
    group.bench_function("norm backward", |bencher| {
        bencher.iter(|| {
            let (gain, inverse) = ((&gain[..]).into(), (&inverse[..]).into());
            let (dy, dgain) = (StridedMut::new((&mut normed[..]).into(), stride), (&mut dgain[..]).into());
            DEVICE.rms_norm_heads_backward(rows, 2 * HEADS, gain, inverse, dy, dgain, Write::Set);
        });
    });
    let mut table = vec![0.0; LENGTH * head_dim];
    group.throughput(bytes(table.len()));
    group.bench_function("rotary table", |bencher| {
        let rotary = Rotary { base: 10_000.0, scaling: Scaling::None };
        bencher.iter(|| DEVICE.rotary_table(&rotary, 0, head_dim, (&mut table[..]).into()));
    });
    group.throughput(bytes(2 * elements));
    group.bench_function("rotate", |bencher| {
        bencher.iter(|| {
            let x = StridedMut::new((&mut normed[..]).into(), stride);
            DEVICE.rotate(x, 2 * HEADS, (&table[..]).into(), LENGTH, false);
        });
    });
    let mut narrow: Vec<bf16> = qkv.iter().map(|&x| bf16::from_f32(x)).collect();
    group.throughput(bytes(elements));
    group.bench_function("rotate bf16", |bencher| {
        bencher.iter(|| {
            let x = StridedMut::new((&mut narrow[..]).into(), stride);
            DEVICE.rotate(x, 2 * HEADS, (&table[..]).into(), LENGTH, false);
        });
    });
    group.finish();
}

fn gate(criterion: &mut Criterion) {
    let width = 3 * WIDTH;
    let (x, dy) = (numbers(2 * TOKENS * width), numbers(TOKENS * width));
    let (mut y, mut dx) = (dy.clone(), x.clone());
    let mut group = criterion.benchmark_group("gate");
    group.throughput(bytes(3 * dy.len()));
    group.bench_function("forward", |bencher| {
        bencher.iter(|| DEVICE.gate(Nonlinearity::Silu, (&x[..]).into(), (&mut y[..]).into(), width));
    });
    group.throughput(bytes(5 * dy.len()));
    group.bench_function("backward", |bencher| {
        bencher.iter(|| {
            let dx = (&mut dx[..]).into();
            DEVICE.gate_backward(Nonlinearity::Silu, (&x[..]).into(), (&dy[..]).into(), dx, width);
        });
    });
    group.finish();
}

/// Counts operations as published, without the causal mask: 4 x length x width a token forward, twice as many backward.
fn attention(criterion: &mut Criterion) {
    let (sequences, head_dim) = (TOKENS / LENGTH, WIDTH / HEADS);
    let shape =
        AttentionShape { sequences, length: LENGTH, before: 0, heads: HEADS, key_heads: HEADS, head_dim, window: None };

    let (qkv, dout) = (numbers(TOKENS * 3 * WIDTH), numbers(TOKENS * WIDTH));
    let (mut out, mut lse, mut dqkv) = (dout.clone(), vec![0.0; TOKENS * HEADS], qkv.clone());
    let operations = (4 * TOKENS * LENGTH * WIDTH) as u64;
    let mut group = criterion.benchmark_group("attention");
    group.throughput(Throughput::Elements(operations));
    group.bench_function("forward", |bencher| {
        bencher.iter(|| {
            let (out, lse) = ((&mut out[..]).into(), (&mut lse[..]).into());
            let [q, k, v] = shape.parts((&qkv[..]).into());
            DEVICE.attention(shape, q, k, v, out, lse);
        });
    });
    group.throughput(Throughput::Elements(2 * operations));
    group.bench_function("backward", |bencher| {
        bencher.iter(|| {
            let (out, lse) = ((&out[..]).into(), (&lse[..]).into());
            let dqkv = (&mut dqkv[..]).into();
            let [q, k, v] = shape.parts((&qkv[..]).into());
            DEVICE.attention_backward(shape, q, k, v, out, lse, (&dout[..]).into(), dqkv);
        });
    });
    group.finish();
}

/// Attention with and without a window. The window leaves out most blocks at this length; operations outside of it do not count.
fn attention_within_a_window(criterion: &mut Criterion) {
    let (length, window, head_dim) = (2048, 256, WIDTH / HEADS);
    let all = AttentionShape {
        sequences: 1,
        length,
        before: 0,
        heads: HEADS,
        key_heads: HEADS / 2,
        head_dim,
        window: Some(window),
    };
    let (qkv, dout) = (numbers(length * all.qkv_width()), numbers(length * WIDTH));
    let (mut out, mut lse, mut dqkv) = (dout.clone(), vec![0.0; length * HEADS], qkv.clone());
    let mut group = criterion.benchmark_group("attention of 2048 tokens");
    for (name, shape) in [("all", AttentionShape { window: None, ..all }), ("within 256", all)] {
        let seen = shape.window.unwrap_or(length);
        group.throughput(Throughput::Elements((4 * length * seen * WIDTH) as u64));
        let [q, k, v] = shape.parts((&qkv[..]).into());
        group.bench_function(format!("forward, {name}"), |bencher| {
            bencher.iter(|| DEVICE.attention(shape, q, k, v, (&mut out[..]).into(), (&mut lse[..]).into()));
        });
        group.throughput(Throughput::Elements((8 * length * seen * WIDTH) as u64));
        group.bench_function(format!("backward, {name}"), |bencher| {
            bencher.iter(|| {
                let (out, lse, dout) = ((&out[..]).into(), (&lse[..]).into(), (&dout[..]).into());
                DEVICE.attention_backward(shape, q, k, v, out, lse, dout, (&mut dqkv[..]).into());
            });
        });
    }
    group.finish();
}

/// Heads, heads of keys, and width of a head of a decoding model.
const DECODER: [usize; 3] = [16, 8, 128];

/// One token after 4096 others: counts the bytes of their keys and values.
fn decode<E: Element>(criterion: &mut Criterion, name: &str) {
    let [heads, key_heads, head_dim] = DECODER;
    let before = 4096;
    let mut group = criterion.benchmark_group("attention of one token");
    for (sharing, key_heads) in [("2 share", key_heads), ("none share", heads)] {
        let shape = AttentionShape { sequences: 1, length: 1, before, heads, key_heads, head_dim, window: None };
        let [q, k, v] = [shape.out_width(), shape.keys() * shape.key_width(), shape.keys() * shape.key_width()]
            .map(|len| numbers(len).into_iter().map(E::narrow).collect::<Vec<E>>());
        let (mut out, mut lse) = (q.clone(), vec![0.0; heads]);
        group.throughput(Throughput::Bytes(size_of_val(&k[..]) as u64 * 2));
        group.bench_function(format!("{name}, {sharing}"), |bencher| {
            bencher.iter(|| {
                let [k, v] = [&k, &v].map(|rows| Strided::new((&rows[..]).into(), shape.key_width()));
                let q = Strided::new((&q[..]).into(), shape.out_width());
                DEVICE.attention(shape, q, k, v, (&mut out[..]).into(), (&mut lse[..]).into());
            });
        });
    }
    group.finish();
}

fn attention_of_one_token(criterion: &mut Criterion) {
    decode::<f32>(criterion, "f32");
    decode::<bf16>(criterion, "bf16");
}

/// A few rows times a matrix larger than any cache: counts the bytes of the matrix.
fn rows<E: Element>(criterion: &mut Criterion, name: &str) {
    let (input, output) = (2048, 8192);
    let stored = |len| numbers(len).into_iter().map(E::narrow).collect::<Vec<E>>();
    let weight = stored(input * output);
    let mut group = criterion.benchmark_group("linear of few rows");
    group.throughput(Throughput::Bytes(size_of_val(&weight[..]) as u64));
    for rows in [1, 2, 4, 5, 8] {
        let (x, mut y) = (stored(rows * input), stored(rows * output));
        group.bench_function(format!("{name}, {rows}"), |bencher| {
            bencher.iter(|| {
                let weight = Matrix::new((&weight[..]).into(), output, input);
                DEVICE.linear((&mut y[..]).into(), (&x[..]).into(), weight, None, Then::Nothing);
            });
        });
    }
    group.finish();
}

fn few_rows(criterion: &mut Criterion) {
    rows::<f32>(criterion, "f32");
    rows::<bf16>(criterion, "bf16");
}

fn cross_entropy(criterion: &mut Criterion) {
    let logits = numbers(TOKENS * CLASSES);
    let targets: Vec<u32> = (0..TOKENS as u64).map(|i| (mix(9, i) % CLASSES as u64) as u32).collect();
    let mut loss = vec![1.0; TOKENS];
    let mut group = criterion.benchmark_group("cross_entropy");
    group.throughput(bytes(logits.len()));
    group.bench_function("forward", |bencher| {
        bencher.iter(|| DEVICE.cross_entropy((&logits[..]).into(), (&targets[..]).into(), (&mut loss[..]).into()));
    });
    group.throughput(bytes(2 * logits.len()));
    group.bench_function("backward", |bencher| {
        // The kernel works in place, so each iteration begins with a copy of the same logits.
        let backward = |logits: &mut Vec<f32>| {
            DEVICE.cross_entropy_backward((&mut logits[..]).into(), (&targets[..]).into(), (&mut loss[..]).into());
        };
        bencher.iter_batched_ref(|| logits.clone(), backward, BatchSize::LargeInput);
    });
    group.finish();
}

/// The parameters of a block, laid out as in a bucket.
const PARAMS: usize = 12 * WIDTH * WIDTH;

fn adamw(criterion: &mut Criterion) {
    let step = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        grad_scale: 0.5,
        correction1: 0.1,
        correction2: 0.05,
    };
    let (mut params, grads, mut m, mut v) = (numbers(PARAMS), numbers(PARAMS), vec![0.0; PARAMS], vec![0.0; PARAMS]);
    let mut group = criterion.benchmark_group("adamw");
    group.throughput(bytes(7 * PARAMS));
    group.bench_function("of a block", |bencher| {
        bencher.iter(|| {
            let (m, v) = (ViewMut::from(&mut m[..]), ViewMut::from(&mut v[..]));
            DEVICE.adamw(&step, ViewMut::from(&mut params[..]), View::from(&grads[..]), m, v);
        });
    });
    group.finish();
}

fn orthogonal<E: Element>(criterion: &mut Criterion, name: &str) {
    let shape = [4 * WIDTH, WIDTH];
    let (from, mut room) = (numbers(shape[0] * shape[1]), vec![0u64; room_bytes::<E>(shape) / size_of::<u64>()]);
    let mut group = criterion.benchmark_group("orthogonalize");
    group.throughput(Throughput::Elements(operations(shape) as u64));
    group.bench_function(format!("{name}, {} x {}", shape[0], shape[1]), |bencher| {
        bencher.iter(|| {
            let room = ViewMut::from(&mut room[..]).cast();
            orthogonalize::<Cpu, E>(&DEVICE, shape, View::from(&from[..]).into(), room);
        });
    });
    group.finish();
}

fn muon(criterion: &mut Criterion) {
    orthogonal::<f32>(criterion, "f32");
    orthogonal::<bf16>(criterion, "bf16");
}

fn sums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree_sum");
    for ranks in [2, 4, 8] {
        let sources: Vec<Vec<f32>> = (0..ranks).map(|_| numbers(PARAMS / ranks)).collect();
        let mut out = vec![0.0; PARAMS / ranks];
        group.throughput(bytes((ranks + 1) * out.len()));
        group.bench_function(format!("of {ranks} ranks"), |bencher| {
            bencher.iter(|| tree_sum(black_box(&mut out), |i| sources[i].as_slice(), ranks, Write::Set));
        });
    }
    group.finish();
}

criterion_group!(
    name = benches;
    config = quick::config().output_directory(Path::new(RESULTS));
    targets = machine, matmul, linear, few_rows, layer_norm, gelu, heads, gate, attention, attention_within_a_window,
        attention_of_one_token, cross_entropy, adamw, muon, sums
);
fn main() {
    let since = SystemTime::now();
    benches();
    Criterion::default().configure_from_args().final_summary();
    shares::print(Path::new(RESULTS), since);
}
