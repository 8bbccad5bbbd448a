//! Tests that splitting happens and changes nothing: every op of the device, to the bit, on awkward shapes.

use std::sync::Mutex;

use bytemuck::Zeroable;

use super::*;
use crate::testing::{STEP, noise};
use crate::{MatrixMut, matmul};
use zero_core::device::{
    AttentionShape, DecayRun, Device, Element, HyperBlock, Kernels, Nonlinearity, ReportBlock, Rotary, Scaling,
    Strided, StridedMut, Then, Write, bf16,
};
use zero_core::orthogonal::{orthogonalize, room_bytes};
use zero_core::view::{View, ViewMut};

const ROWS: usize = 35;
const EPSILON: f32 = 1e-5;
const WIDTHS: [usize; 4] = [1, 33, 64, 130];
/// Matrix products: enough rows or columns for five pieces, and more columns or products than `gemm` takes at a time. Some
/// have sides that are too short to be cut.
const PRODUCTS: [[usize; 3]; 10] = [
    [641, 3, 65],
    [641, 4, 700],
    [705, 97, 700],
    [640, 64, 64],
    [700, 130, 513],
    [643, 2, 9],
    [2, 643, 9],
    [1, 700, 130],
    [5, 1300, 97],
    [100, 700, 513],
];
/// Shared by columns.
const FEW_ROWS: [[usize; 3]; 3] = [[1, 330, 33], [3, 200, 17], [4, 400, 70]];

/// The results of ops, each with a name.
#[derive(Default)]
struct Written(Vec<(String, Vec<u32>)>);

impl Written {
    fn note(&mut self, name: impl Into<String>, written: &[f32]) {
        self.0.push((name.into(), written.iter().map(|x| x.to_bits()).collect()));
    }
}

fn view(x: &[f32]) -> View<'_, Cpu, f32> {
    View::from(x)
}

fn view_mut(x: &mut [f32]) -> ViewMut<'_, Cpu, f32> {
    ViewMut::from(x)
}

fn narrow(x: &[f32]) -> Vec<bf16> {
    x.iter().map(|&x| bf16::narrow(x)).collect()
}

fn widened(x: &[bf16]) -> Vec<f32> {
    x.iter().map(|x| x.widen()).collect()
}

fn elementwise(cpu: &Cpu, width: usize, written: &mut Written) {
    let len = ROWS * width;
    let (x, dy) = (noise(len, 1), noise(len, 2));
    let mut y = noise(len, 3);
    cpu.add(view_mut(&mut y), view(&x));
    written.note("add", &y);
    cpu.mul(view_mut(&mut y), view(&dy));
    written.note("mul", &y);
    cpu.scale(view_mut(&mut y), 0.3);
    written.note("scale", &y);
    cpu.copy(view_mut(&mut y), view(&x));
    written.note("copy", &y);
    cpu.fill(view_mut(&mut y), 0.1);
    written.note("fill", &y);
    for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
        cpu.activate(kind, view(&x), view_mut(&mut y));
        written.note(format!("{kind:?}"), &y);
        cpu.activate_backward(kind, view(&x), view(&dy), view_mut(&mut y));
        written.note(format!("{kind:?} backward"), &y);
    }
    let mut small = narrow(&dy);
    cpu.convert(ViewMut::from(small.as_mut_slice()).into(), view(&x).into());
    written.note("convert to narrow", &widened(&small));
    cpu.convert(view_mut(&mut y).into(), View::from(small.as_slice()).into());
    written.note("convert", &y);
    assert!(cpu.all_finite(view(&x)));
}

fn sums(cpu: &Cpu, len: usize, written: &mut Written) {
    let (x, dy, mut y) = (noise(len, 1), noise(len, 2), noise(len, 3));
    let (small, mut small_y) = (narrow(&dy), narrow(&y));
    for write in [Write::Add, Write::Set] {
        for own in [None, Some(1)] {
            let summands = [&x, &dy, &dy];
            cpu.reduce(view_mut(&mut y).into(), 3, own, &|i| view(summands[i]).into(), write);
            written.note(format!("reduce {own:?} {write:?}"), &y);
            let source = |_| View::from(small.as_slice()).into();
            cpu.reduce(ViewMut::from(small_y.as_mut_slice()).into(), 2, own, &source, write);
            written.note(format!("reduce bf16 {own:?} {write:?}"), &widened(&small_y));
        }
    }
    let mut words = [0.0f64; 3];
    let [mean, wide, narrow] = words.each_mut().map(core::slice::from_mut);
    cpu.add_mean(view(&x), mean.into());
    cpu.squares(view(&x).into(), wide.into());
    cpu.squares(View::from(small.as_slice()).into(), narrow.into());
    let halves = |word: f64| [word.to_bits() as u32, (word.to_bits() >> 32) as u32];
    written.0.push(("words".into(), words.into_iter().flat_map(halves).collect()));
}

fn adamw(cpu: &Cpu, width: usize, written: &mut Written) {
    let len = ROWS * width;
    let (mut params, mut m, mut v) = (noise(len, 1), noise(len, 2), noise(len, 3));
    v.iter_mut().for_each(|v| *v = v.abs());
    let grads = noise(len, 4);
    cpu.adamw(&STEP, view_mut(&mut params), view(&grads), view_mut(&mut m), view_mut(&mut v));
    for (name, x) in [("params", &params), ("m", &m), ("v", &v)] {
        written.note(name, x);
    }
    let (mut stored, narrow_grads) = (narrow(&params), narrow(&grads));
    let weights =
        Weights { params: ViewMut::from(stored.as_mut_slice()).into(), master: Some(view_mut(&mut params).into()) };
    cpu.adamw(&STEP, weights, View::from(narrow_grads.as_slice()), view_mut(&mut m), view_mut(&mut v));
    for (name, x) in [("stored", &widened(&stored)), ("master", &params), ("m", &m), ("v", &v)] {
        written.note(name, x);
    }
    let hyper =
        HyperBlock { lr: 0.1, beta1: 0.9, epsilon: 1e-8, correction1: 0.2, correction2: 0.1, ..Zeroable::zeroed() };
    let report = ReportBlock { grad_scale: 0.5, is_finite: 1.0, ..Zeroable::zeroed() };
    let (hyper, report) = ([hyper], [report]);
    let blocks = (View::from(&hyper[..]), View::from(&report[..]));
    let (weights, grads) = (view_mut(&mut params).into(), view(&grads).into());
    let runs = [DecayRun { len: len - 5, decays: true }, DecayRun { len: 5, decays: false }];
    cpu.update(&runs, blocks.0, blocks.1, weights, grads, view_mut(&mut m).into(), view_mut(&mut v).into());
    for (name, x) in [("updated", &params), ("m", &m), ("v", &v)] {
        written.note(name, x);
    }
}

fn muon(cpu: &Cpu, width: usize, written: &mut Written) {
    let len = ROWS * width;
    let (mut params, mut gradients, mut m) = (noise(len, 1), noise(len, 2), noise(len, 3));
    let (mut stored, narrow_direction) = (narrow(&params), narrow(&noise(len, 4)));
    let (hyper, report) = (
        [HyperBlock { lr: 0.1, momentum: 0.9, weight_decay: 0.3, ..Zeroable::zeroed() }],
        [ReportBlock { grad_scale: 0.5, is_finite: 1.0, ..Zeroable::zeroed() }],
    );
    let (hyper, report) = (View::from(&hyper[..]), View::from(&report[..]));
    cpu.momentum(hyper, report, view_mut(&mut gradients).into(), view_mut(&mut m).into());
    cpu.step_along(true, 0.7, hyper, report, view_mut(&mut params).into(), view(&gradients));
    for (name, x) in [("direction", &gradients), ("momentum", &m), ("params along it", &params)] {
        written.note(name, x);
    }
    let weights =
        Weights { params: ViewMut::from(stored.as_mut_slice()).into(), master: Some(view_mut(&mut params).into()) };
    cpu.step_along(true, 0.7, hyper, report, weights, View::from(narrow_direction.as_slice()));
    written.note("master along it", &params);
    written.note("stored along it", &widened(&stored));
    cpu.normalize(ViewMut::from(stored.as_mut_slice()), view(&m).into(), (&[7.0][..]).into(), 1e-7);
    written.note("normalize", &widened(&stored));
    cpu.axpby(0.3, view(&m), -1.7, view_mut(&mut params));
    written.note("axpby", &params);
}

fn orthogonal<E: Element>(cpu: &Cpu, shape: [usize; 2], written: &mut Written) {
    let (from, mut room) = (noise(shape[0] * shape[1], 1), vec![u64::MAX; room_bytes::<E>(shape) / 8]);
    let room = ViewMut::<Cpu, u64>::from(room.as_mut_slice()).cast();
    let found: View<Cpu, E> = orthogonalize(cpu, shape, view(&from).into(), room);
    let found: Vec<f32> = found.as_slice().iter().map(|x| x.widen()).collect();
    written.note(format!("orthogonalize {shape:?} in {:?}", E::WIDTH), &found);
}

fn norms(cpu: &Cpu, width: usize, written: &mut Written) {
    let len = ROWS * width;
    let (x, dy, gain, bias) = (noise(len, 1), noise(len, 2), noise(width, 3), noise(width, 4));
    let (mut y, mut dx, mut stats) = (vec![0.0; len], vec![0.0; len], vec![0.0; 2 * ROWS]);
    let (mut dgain, mut dbias) = (noise(width, 5), noise(width, 6));
    cpu.layer_norm(view(&x), view(&gain), view(&bias), view_mut(&mut y), view_mut(&mut stats), EPSILON);
    for (name, x) in [("layer_norm", &y), ("stats", &stats)] {
        written.note(name, x);
    }
    let inverse = &mut stats[..ROWS];
    cpu.rms_norm(view(&x), view(&gain), view_mut(&mut y), view_mut(inverse), EPSILON);
    written.note("rms_norm", &y);
    written.note("inverse", inverse);
    for write in [Write::Add, Write::Set] {
        for wants_dx in [true, false] {
            cpu.rms_norm_backward(
                view(&x),
                view(&gain),
                view(&stats[..ROWS]),
                view(&dy),
                wants_dx.then(|| view_mut(&mut dx)),
                wants_dx.then(|| view(&x)),
                view_mut(&mut dgain),
                write,
            );
            for (name, x) in [("rms_norm dx", &dx), ("rms_norm dgain", &dgain)] {
                written.note(name, x);
            }
            cpu.layer_norm_backward(
                view(&x),
                view(&gain),
                view(&stats),
                view(&dy),
                wants_dx.then(|| view_mut(&mut dx)),
                wants_dx.then(|| view(&x)),
                view_mut(&mut dgain),
                view_mut(&mut dbias),
                write,
            );
            for (name, x) in [("dx", &dx), ("dgain", &dgain), ("dbias", &dbias)] {
                written.note(name, x);
            }
        }
        cpu.sum_rows(view(&x), view_mut(&mut dbias), write);
        written.note("sum_rows", &dbias);
    }
}

/// Rows of two heads, with elements between the rows.
fn heads(cpu: &Cpu, width: usize, written: &mut Written) {
    let (stride, heads) = (2 * width + 3, 2);
    let (x, gain) = (noise(ROWS * stride, 1), noise(width, 2));
    let (mut y, mut inverse, mut dgain) = (noise(ROWS * stride, 3), vec![0.0; ROWS * heads], noise(width, 4));
    let rows = Strided::new(view(&x), stride);
    let to = StridedMut::new(view_mut(&mut y), stride);
    cpu.rms_norm_heads(rows, heads, view(&gain), to, view_mut(&mut inverse), EPSILON);
    written.note("rms_norm_heads", &y);
    written.note("inverse of heads", &inverse);
    for write in [Write::Add, Write::Set] {
        let to = StridedMut::new(view_mut(&mut y), stride);
        cpu.rms_norm_heads_backward(rows, heads, view(&gain), view(&inverse), to, view_mut(&mut dgain), write);
        written.note("rms_norm_heads dx", &y);
        written.note("rms_norm_heads dgain", &dgain);
    }
    for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
        let (both, dy) = (noise(ROWS * 2 * width, 5), noise(ROWS * width, 6));
        let (mut gated, mut dboth) = (vec![0.0; dy.len()], vec![0.0; both.len()]);
        cpu.gate(kind, view(&both), view_mut(&mut gated), width);
        cpu.gate_backward(kind, view(&both), view(&dy), view_mut(&mut dboth), width);
        written.note(format!("gate {kind:?}"), &gated);
        written.note(format!("gate {kind:?} backward"), &dboth);
    }
    if width.is_multiple_of(2) {
        let mut table = vec![0.0; 11 * width];
        cpu.rotary_table(&Rotary { base: 100.0, scaling: Scaling::None }, 7, width, view_mut(&mut table));
        written.note("rotary_table", &table);
        for back in [false, true] {
            cpu.rotate(StridedMut::new(view_mut(&mut y), stride), heads, view(&table), 11, back);
            written.note(format!("rotate {back}"), &y);
        }
    }
}

fn tokens(cpu: &Cpu, width: usize, written: &mut Written) {
    const LENGTH: usize = 5;
    let len = ROWS * width;
    let ids: Vec<u32> = (0..ROWS).map(|token| (token * 7 % 11) as u32).collect();
    let (mut table, mut positions, mut out) = (noise(11 * width, 1), noise(6 * width, 2), vec![0.0; len]);
    let ids = View::from(ids.as_slice());
    cpu.embed(ids, view(&table), Some(view(&positions)), view_mut(&mut out), LENGTH);
    written.note("embed", &out);
    for write in [Write::Add, Write::Set] {
        let dpositions = Some(view_mut(&mut positions));
        cpu.embed_backward(ids, view(&out), view_mut(&mut table), dpositions, LENGTH, write);
        written.note("dtable", &table);
        written.note("dpositions", &positions);
        cpu.embed_backward(ids, view(&out), view_mut(&mut table), None, LENGTH, write);
        written.note("dtable alone", &table);
    }

    let targets: Vec<u32> = (0..ROWS).map(|token| (token % width) as u32).collect();
    let targets = View::from(targets.as_slice());
    let (mut logits, dloss) = (noise(len, 3), noise(ROWS, 4));
    let (mut loss, mut again, mut dx) = (vec![0.0; ROWS], dloss.clone(), vec![0.0; len]);
    cpu.cross_entropy(view(&logits), targets, view_mut(&mut loss));
    cpu.cross_entropy_backward(view_mut(&mut logits), targets, view_mut(&mut again));
    for (name, x) in [("loss", &loss), ("loss again", &again), ("dlogits", &logits)] {
        written.note(name, x);
    }
    cpu.squared_error(view(&logits), view(&out), view_mut(&mut loss));
    written.note("squared_error", &loss);
    cpu.squared_error_backward(view(&logits), view(&out), view(&dloss), view_mut(&mut dx));
    written.note("squared_error dx", &dx);
}

fn attention(cpu: &Cpu, window: Option<usize>, written: &mut Written) {
    let shape = AttentionShape { sequences: 3, length: 37, before: 0, heads: 4, key_heads: 2, head_dim: 5, window };
    let (tokens, width) = (shape.tokens(), shape.out_width());
    let (qkv, dout) = (noise(tokens * shape.qkv_width(), 1), noise(tokens * width, 2));
    let (mut out, mut lse) = (vec![0.0; tokens * width], vec![0.0; tokens * shape.heads]);
    let mut dqkv = vec![0.0; qkv.len()];
    let [q, k, v] = shape.parts(view(&qkv));
    cpu.attention(shape, q, k, v, view_mut(&mut out), view_mut(&mut lse));
    cpu.attention_backward(shape, q, k, v, view(&out), view(&lse), view(&dout), view_mut(&mut dqkv));
    for (name, x) in [("attention", &out), ("attention's lse", &lse), ("dqkv", &dqkv)] {
        written.note(format!("{name} within {window:?}"), x);
    }
    for length in [1, 2] {
        let shape = AttentionShape { length, before: 37 - length, ..shape };
        let (mut out, mut lse) = (vec![0.0; shape.tokens() * width], vec![0.0; shape.tokens() * shape.heads]);
        cpu.attention(shape, q, k, v, view_mut(&mut out), view_mut(&mut lse));
        written.note(format!("attention of {length} within {window:?}"), &out);
        written.note(format!("lse of {length} within {window:?}"), &lse);
    }
}

fn products(cpu: &Cpu, [m, n, k]: [usize; 3], written: &mut Written) {
    use zero_core::device::Matrix;
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    for transpose_a in [false, true] {
        for transpose_b in [false, true] {
            for write in [Write::Set, Write::Add] {
                let mut c = noise(m * n, 3);
                let a =
                    || if transpose_a { Matrix::new(view(&a), k, m).transposed() } else { Matrix::new(view(&a), m, k) };
                let b =
                    || if transpose_b { Matrix::new(view(&b), n, k).transposed() } else { Matrix::new(view(&b), k, n) };
                cpu.matmul(view_mut(&mut c), a(), b(), write);
                written.note(format!("({m}, {n}) over {k}, {transpose_a} {transpose_b} {write:?}"), &c);
            }
        }
    }
}

/// More than one panel, with a narrow last one.
fn linear(cpu: &Cpu, [rows, output, input]: [usize; 3], written: &mut Written) {
    let (x, weight, bias) = (noise(rows * input, 1), noise(output * input, 2), noise(output, 3));
    let (mut y, mut z) = (vec![0.0; rows * output], noise(rows * output, 4));
    for kind in [None, Some(Nonlinearity::Gelu)] {
        let then = match kind {
            None => Then::Add(view(&z)),
            Some(kind) => Then::Activate(kind, view_mut(&mut z)),
        };
        let weight = zero_core::device::Matrix::new(view(&weight), output, input);
        cpu.linear(view_mut(&mut y), view(&x), weight, Some(view(&bias)), then);
        written.note(format!("linear ({rows}, {output}) over {input}, {kind:?}"), &y);
        written.note("what follows", &z);
    }
}

fn all_ops(cpu: Cpu) -> Written {
    let mut written = Written::default();
    for width in WIDTHS {
        elementwise(&cpu, width, &mut written);
        adamw(&cpu, width, &mut written);
        muon(&cpu, width, &mut written);
        norms(&cpu, width, &mut written);
        heads(&cpu, width, &mut written);
        tokens(&cpu, width, &mut written);
    }
    [1, 33, 4096, 40_001].into_iter().for_each(|len| sums(&cpu, len, &mut written));
    [None, Some(5)].into_iter().for_each(|window| attention(&cpu, window, &mut written));
    PRODUCTS.into_iter().chain(FEW_ROWS).for_each(|sizes| products(&cpu, sizes, &mut written));
    PRODUCTS.into_iter().chain(FEW_ROWS).chain([[300, 769, 5]]).for_each(|sizes| linear(&cpu, sizes, &mut written));
    for shape in [[1, 70], [70, 1], [33, 64], [300, 130], [130, 300], [513, 3]] {
        orthogonal::<f32>(&cpu, shape, &mut written);
        orthogonal::<bf16>(&cpu, shape, &mut written);
    }
    written
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("threads")
}

#[test]
fn no_op_depends_on_the_number_of_threads() {
    let alone = all_ops(Cpu::default());
    for count in [1, 2, 3, 5] {
        let shared = Cpu::ONE_THREAD.on_threads(threads(count), "test", |cpu| all_ops(cpu.eager())).expect("threads");
        assert_eq!(shared.0.len(), alone.0.len());
        for ((name, found), (_, expected)) in shared.0.iter().zip(&alone.0) {
            assert!(found == expected, "{name} differs on {count} threads");
        }
    }
}

/// The pieces that items are cut into, and the threads that work on them, in order.
fn pieces(count: usize, items: Items) -> Vec<Range<usize>> {
    let pieces = Mutex::new(Vec::new());
    let note = |piece| pieces.lock().unwrap().push(piece);
    Cpu::ONE_THREAD
        .on_threads(threads(count), "test", |_| for_each(threads(count), items, 0..items.count, &note))
        .unwrap();
    let mut pieces = pieces.into_inner().unwrap();
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

#[test]
fn every_item_is_in_one_piece() {
    for count in [1, 2, 3, 5, 8] {
        for items in [0, 1, 2, 7, 64, 1000] {
            for (min, multiple) in [(1, 1), (3, 1), (1, 16), (40, 16)] {
                let found = pieces(count, Items { count: items, min, multiple });
                let most = if count == 1 { 1 } else { PIECES * count };
                let expected = most.min(items / min.max(multiple)).max(1);
                assert_eq!(found.len(), expected, "{items} items for {count} threads");
                assert_eq!((found[0].start, found[found.len() - 1].end), (0, items));
                for pair in found.windows(2) {
                    assert_eq!(pair[0].end, pair[1].start);
                    assert!(pair[1].start.is_multiple_of(multiple) && !pair[1].is_empty(), "{pair:?}");
                }
            }
        }
    }
}

#[test]
fn blocks_are_summed_whole_and_once() {
    for len in [0, 1, 7, 8, 9, 16, 100] {
        let x: Vec<u32> = (0..len).collect();
        let blocks = Mutex::new(Vec::new());
        let sum = |block: &[u32]| {
            blocks.lock().unwrap().extend_from_slice(block);
            assert!(block.len() == 8 || block.last() == x.last(), "{block:?}");
            f64::from(block.iter().sum::<u32>())
        };
        let found =
            Cpu::ONE_THREAD.on_threads(threads(3), "test", |cpu| cpu.eager().sum_by_blocks(&x, 8, &sum)).unwrap();
        let mut blocks = blocks.into_inner().unwrap();
        blocks.sort();
        assert_eq!((found, blocks), (f64::from(x.iter().sum::<u32>()), x));
    }
}

#[test]
fn large_products_are_shared_and_small_ones_are_not() {
    let share = |cpu: Cpu, [m, n, k]: [usize; 3]| {
        let (mut c, a, b) = (vec![0.0; m * n], vec![0.0; m * k], vec![0.0; k * n]);
        let blocks = Mutex::new(Vec::new());
        let (c, a, b) = (MatrixMut::new(&mut c, m, n), StridedMatrix::new(&a, m, k), StridedMatrix::new(&b, k, n));
        cpu.by_products([m, k, n], c, |c: MatrixMut| {
            blocks.lock().unwrap().push([c.rows(), c.columns()]);
            matmul(c, a, b, Write::Set);
        });
        let mut blocks = blocks.into_inner().unwrap();
        blocks.sort_by_key(|[rows, columns]| [rows.start, columns.start]);
        blocks
    };
    let on = |count, sizes| Cpu::ONE_THREAD.on_threads(threads(count), "test", |cpu| share(cpu, sizes)).unwrap();
    assert_eq!(on(2, [1025, 64, 256]), [[0..512, 0..64], [512..1025, 0..64]]);
    assert_eq!(on(2, [100, 513, 1024]), [[0..100, 0..256], [0..100, 256..513]]);
    let four = [[0..320, 0..256], [0..320, 256..513], [320..640, 0..256], [320..640, 256..513]];
    assert_eq!(on(4, [640, 513, 256]), four);
    assert_eq!(on(2, [1025, 1, 4096]), [[0..1025, 0..1]], "one column is summed in another order");
    assert_eq!(on(2, [200, 250, 512]), [[0..200, 0..250]], "short sides may be, too");
    assert_eq!(on(2, [256, 16, 16]), [[0..256, 0..16]], "not worth a thread");
}

#[test]
fn threads_are_named_and_as_many_as_asked_for() {
    let names = Cpu::ONE_THREAD.on_threads(threads(3), "rank 7", |cpu| {
        assert_eq!(cpu.threads.get(), 3);
        rayon::broadcast(|_| std::thread::current().name().map(str::to_owned))
    });
    assert_eq!(names.unwrap(), ["rank 7.0", "rank 7.1", "rank 7.2"].map(|name| Some(name.to_owned())));
    let name = || std::thread::current().name().map(str::to_owned);
    assert_eq!(
        Cpu::ONE_THREAD.on_threads(threads(1), "rank 7", |_| name()).unwrap(),
        name(),
        "one thread is the calling one"
    );
}
