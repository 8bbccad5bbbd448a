//! Each op of the contract once, on awkward shapes.

use zero_core::device::{
    AdamW, Agreement, AttentionShape, Buffer, DecayRun, Device, Element, HyperBlock, Matrix, Nonlinearity, ReportBlock,
    Rotary, Scaling, Strided, StridedMut, Then, Weights, Write, bf16,
};
use zero_core::orthogonal::{orthogonalize, room_bytes};
use zero_cpu::Cpu;
use zero_plan::Width;
use zero_tests::buffers::{Written, noise, numbers, of, stored, values};
use zero_tests::naive::Naive;

use super::assert_alike;

/// Turns each function into a test of the ops that it calls: in both widths, or in widths that it chooses itself.
macro_rules! ops {
    ($($both:ident)*; $($name:ident)*) => {
        $(#[test] fn $both() {
            assert_alike(Width::F32, &on::$both::<_, f32>(&Naive), &on::$both::<_, f32>(&Cpu::default()));
            assert_alike(Width::BF16, &on::$both::<_, bf16>(&Naive), &on::$both::<_, bf16>(&Cpu::default()));
        })*
        $(#[test] fn $name() { assert_alike(Width::F32, &on::$name(&Naive), &on::$name(&Cpu::default())); })*
    };
}

ops! {
    elementwise nonlinearities products linear layer_norm rms_norm rms_norm_heads rotary gates attention attention_after
        embedding cross_entropy squared_error sums;
    widths sums_over_ranks words update adamw muon orthogonal
}

const ROWS: usize = 7;
const WIDTH: usize = 33;

const HYPER: HyperBlock = HyperBlock {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.999,
    momentum: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    clip: 1.0,
    correction1: 0.271,
    correction2: 0.002_997,
};

const REPORT: ReportBlock = ReportBlock { loss: 1.0, gradient_norm: 2.0, grad_scale: 0.5, is_finite: 1.0 };

/// The tensors that each op writes on a device.
mod on {
    use super::*;

    fn tensor<D: Device, E: Element>(device: &D, len: usize, seed: u64) -> Buffer<D, E> {
        stored(device, &noise(len, seed))
    }

    /// NaN, which an op that reads it would propagate.
    fn unwritten<D: Device, E: Element>(device: &D, len: usize) -> Buffer<D, E> {
        stored(device, &vec![f32::NAN; len])
    }

    pub fn elementwise<D: Device, E: Element>(device: &D) -> Written {
        let (x, mut y) = (tensor::<D, E>(device, WIDTH, 1), tensor(device, WIDTH, 2));
        let (mut copy, mut filled) = (unwritten::<D, E>(device, WIDTH), unwritten(device, WIDTH));
        device.copy(copy.view_mut(), x.view());
        device.fill(filled.view_mut(), E::narrow(0.25));
        device.add(y.view_mut(), x.view());
        device.mul(y.view_mut(), x.view());
        device.scale(y.view_mut(), 0.3);
        let mut blend = tensor::<D, E>(device, WIDTH, 3);
        device.axpby(0.3, x.view(), -0.7, blend.view_mut());
        let (mut normalized, square) = (unwritten::<D, E>(device, WIDTH), of(device, &[7.0]));
        device.normalize(normalized.view_mut(), x.view().into(), square.view(), 1e-7);
        vec![
            ("axpby", numbers(device, &blend)),
            ("normalize", numbers(device, &normalized)),
            ("copy", numbers(device, &copy)),
            ("fill", numbers(device, &filled)),
            ("add, mul, scale", numbers(device, &y)),
        ]
    }

    pub fn nonlinearities<D: Device, E: Element>(device: &D) -> Written {
        let mut written = Written::new();
        for (kind, name) in [(Nonlinearity::Gelu, "gelu"), (Nonlinearity::Relu, "relu"), (Nonlinearity::Silu, "silu")] {
            let (x, dy) = (tensor::<D, E>(device, 300, 1), tensor(device, 300, 2));
            let (mut y, mut dx) = (unwritten(device, 300), unwritten(device, 300));
            device.activate(kind, x.view(), y.view_mut());
            device.activate_backward(kind, x.view(), dy.view(), dx.view_mut());
            written.extend([(name, numbers(device, &y)), (name, numbers(device, &dx))]);
        }
        written
    }

    pub fn widths<D: Device>(device: &D) -> Written {
        let (wide, narrow) = (tensor::<D, f32>(device, WIDTH, 1), tensor::<D, bf16>(device, WIDTH, 2));
        let (mut converted, mut rounded) = (unwritten::<D, f32>(device, WIDTH), unwritten::<D, bf16>(device, WIDTH));
        device.convert(converted.view_mut().into(), narrow.view().into());
        device.convert(rounded.view_mut().into(), wide.view().into());
        vec![("convert to f32", numbers(device, &converted)), ("convert to bf16", numbers(device, &rounded))]
    }

    pub fn products<D: Device, E: Element>(device: &D) -> Written {
        let [m, n, k] = [5, 9, 70];
        let (a, b) = (tensor::<D, E>(device, m * k, 1), tensor(device, k * n, 2));
        let mut written = Written::new();
        for write in [Write::Set, Write::Add] {
            for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let (mut c, mut wide) = (tensor::<D, E>(device, m * n, 3), tensor::<D, f32>(device, m * n, 3));
                let of = |x, rows, cols, transpose| match transpose {
                    false => Matrix::new(x, rows, cols),
                    true => Matrix::new(x, cols, rows).transposed(),
                };
                let (a, b) = (|| of(a.view(), m, k, transpose_a), || of(b.view(), k, n, transpose_b));
                device.matmul(c.view_mut(), a(), b(), write);
                device.matmul(wide.view_mut(), a(), b(), write);
                written.extend([("matmul", numbers(device, &c)), ("matmul in f32", numbers(device, &wide))]);
            }
        }
        written
    }

    pub fn linear<D: Device, E: Element>(device: &D) -> Written {
        let [rows, input, output] = [5, 70, 9];
        let (x, weight) = (tensor::<D, E>(device, rows * input, 1), tensor::<D, E>(device, output * input, 2));
        let bias = tensor::<D, E>(device, output, 3);
        let mut written = Written::new();
        for bias in [None, Some(bias.view())] {
            for kind in [None, Some(Nonlinearity::Gelu)] {
                let (mut y, mut z) = (unwritten(device, rows * output), tensor(device, rows * output, 4));
                let then = match kind {
                    None => Then::Add(z.view()),
                    Some(kind) => Then::Activate(kind, z.view_mut()),
                };
                device.linear(y.view_mut(), x.view(), Matrix::new(weight.view(), output, input), bias, then);
                written.extend([("y", numbers(device, &y)), ("z", numbers(device, &z))]);
            }
        }
        let (mut y, weight) =
            (unwritten(device, rows * output), Matrix::new(weight.view(), input, output).transposed());
        device.linear(y.view_mut(), x.view(), weight, None, Then::Nothing);
        written.push(("by a transpose", numbers(device, &y)));
        written
    }

    pub fn layer_norm<D: Device, E: Element>(device: &D) -> Written {
        let len = ROWS * WIDTH;
        let [x, dy, plus] = [1, 2, 3].map(|seed| tensor::<D, E>(device, len, seed));
        let [gain, bias] = [4, 5].map(|seed| tensor(device, WIDTH, seed));
        let (mut y, mut stats) = (unwritten(device, len), unwritten(device, 2 * ROWS));
        device.layer_norm(x.view(), gain.view(), bias.view(), y.view_mut(), stats.view_mut(), 0.1);
        let mut written = vec![("y", numbers(device, &y)), ("stats", numbers(device, &stats))];
        for (write, wants_dx, plus) in
            [(Write::Set, true, None), (Write::Add, true, Some(plus.view())), (Write::Add, false, None)]
        {
            let mut dx = unwritten(device, len);
            let (mut dgain, mut dbias) = (tensor(device, WIDTH, 6), tensor(device, WIDTH, 7));
            device.layer_norm_backward(
                x.view(),
                gain.view(),
                stats.view(),
                dy.view(),
                wants_dx.then(|| dx.view_mut()),
                plus,
                dgain.view_mut(),
                dbias.view_mut(),
                write,
            );
            written.extend([("dgain", numbers(device, &dgain)), ("dbias", numbers(device, &dbias))]);
            written.extend(wants_dx.then(|| ("dx", numbers(device, &dx))));
        }
        written
    }

    pub fn rms_norm<D: Device, E: Element>(device: &D) -> Written {
        let len = ROWS * WIDTH;
        let [x, dy, plus] = [1, 2, 3].map(|seed| tensor::<D, E>(device, len, seed));
        let gain = tensor(device, WIDTH, 4);
        let (mut y, mut inverse) = (unwritten(device, len), unwritten(device, ROWS));
        device.rms_norm(x.view(), gain.view(), y.view_mut(), inverse.view_mut(), 0.1);
        let mut written = vec![("y", numbers(device, &y)), ("inverse", numbers(device, &inverse))];
        for (write, wants_dx, plus) in
            [(Write::Set, true, None), (Write::Add, true, Some(plus.view())), (Write::Add, false, None)]
        {
            let (mut dx, mut dgain) = (unwritten(device, len), tensor(device, WIDTH, 6));
            device.rms_norm_backward(
                x.view(),
                gain.view(),
                inverse.view(),
                dy.view(),
                wants_dx.then(|| dx.view_mut()),
                plus,
                dgain.view_mut(),
                write,
            );
            written.push(("dgain", numbers(device, &dgain)));
            written.extend(wants_dx.then(|| ("dx", numbers(device, &dx))));
        }
        written
    }

    /// Heads within rows that are longer on both sides.
    pub fn rms_norm_heads<D: Device, E: Element>(device: &D) -> Written {
        let (heads, x_stride, y_stride) = (3, 3 * WIDTH + 2, 4 * WIDTH);
        let (x, gain) = (tensor::<D, E>(device, ROWS * x_stride, 1), tensor::<D, E>(device, WIDTH, 2));
        let (mut y, mut inverse) = (tensor::<D, E>(device, ROWS * y_stride, 3), unwritten(device, ROWS * heads));
        let rows = Strided::new(x.view(), x_stride);
        let to = StridedMut::new(y.view_mut(), y_stride).after(WIDTH);
        device.rms_norm_heads(rows, heads, gain.view(), to, inverse.view_mut(), 0.1);
        let mut written = vec![("y", numbers(device, &y)), ("inverse", numbers(device, &inverse))];
        for write in [Write::Set, Write::Add] {
            let (mut dy, mut dgain) = (tensor::<D, E>(device, ROWS * y_stride, 4), tensor(device, WIDTH, 5));
            let to = StridedMut::new(dy.view_mut(), y_stride).after(WIDTH);
            device.rms_norm_heads_backward(rows, heads, gain.view(), inverse.view(), to, dgain.view_mut(), write);
            written.extend([("dx", numbers(device, &dy)), ("dgain", numbers(device, &dgain))]);
        }
        written
    }

    pub fn rotary<D: Device, E: Element>(device: &D) -> Written {
        let yarn = Scaling::Yarn {
            factor: 4.0,
            original_length: 16,
            beta_fast: 2.0,
            beta_slow: 0.5,
            attention_factor: None,
            truncate: true,
        };
        let mut written = Written::new();
        for (scaling, head_dim, length, first) in [(Scaling::None, 6, 3, 0), (yarn, 34, 5, 0), (yarn, 8, 7, 100_000)] {
            let mut table = unwritten::<D, f32>(device, length * head_dim);
            device.rotary_table(&Rotary { base: 10_000.0, scaling }, first, head_dim, table.view_mut());
            written.push(("table", numbers(device, &table)));
            for back in [false, true] {
                let stride = 3 * head_dim + 1;
                let mut x = tensor::<D, E>(device, 2 * length * stride, 1);
                let rows = StridedMut::new(x.view_mut(), stride).after(1);
                device.rotate(rows, 2, table.view(), length, back);
                written.push(("turned", numbers(device, &x)));
            }
        }
        written
    }

    pub fn gates<D: Device, E: Element>(device: &D) -> Written {
        let mut written = Written::new();
        for (kind, name) in [(Nonlinearity::Gelu, "gelu"), (Nonlinearity::Relu, "relu"), (Nonlinearity::Silu, "silu")] {
            let (x, dy) = (tensor::<D, E>(device, 2 * ROWS * WIDTH, 1), tensor::<D, E>(device, ROWS * WIDTH, 2));
            let (mut y, mut dx) =
                (unwritten::<D, E>(device, ROWS * WIDTH), unwritten::<D, E>(device, 2 * ROWS * WIDTH));
            device.gate(kind, x.view(), y.view_mut(), WIDTH);
            device.gate_backward(kind, x.view(), dy.view(), dx.view_mut(), WIDTH);
            written.extend([(name, numbers(device, &y)), (name, numbers(device, &dx))]);
        }
        written
    }

    pub fn attention<D: Device, E: Element>(device: &D) -> Written {
        let mut written = Written::new();
        let shapes = [(1, 1, 1, None), (37, 2, 2, None), (70, 6, 2, None), (37, 6, 3, Some(1)), (130, 2, 1, Some(41))];
        for (length, heads, key_heads, window) in shapes {
            let shape = AttentionShape { sequences: 2, length, before: 0, heads, key_heads, head_dim: 5, window };
            let (tokens, width) = (shape.tokens(), shape.out_width());
            let (qkv, dout) =
                (tensor::<D, E>(device, tokens * shape.qkv_width(), 1), tensor(device, tokens * width, 2));
            let (mut out, mut lse) = (unwritten(device, tokens * width), unwritten(device, tokens * heads));
            let mut dqkv = unwritten(device, tokens * shape.qkv_width());
            let [q, k, v] = shape.parts(qkv.view());
            device.attention(shape, q, k, v, out.view_mut(), lse.view_mut());
            device.attention_backward(shape, q, k, v, out.view(), lse.view(), dout.view(), dqkv.view_mut());
            written.extend([
                ("out", numbers(device, &out)),
                ("lse", numbers(device, &lse)),
                ("dqkv", numbers(device, &dqkv)),
            ]);
        }
        written
    }

    /// Attention of tokens after earlier ones; all tokens have rows of keys and values.
    pub fn attention_after<D: Device, E: Element>(device: &D) -> Written {
        let mut written = Written::new();
        for (length, before, window) in [(1, 70, None), (1, 70, Some(9)), (40, 30, None), (33, 37, Some(20))] {
            let shape = AttentionShape { sequences: 2, length, before, heads: 6, key_heads: 3, head_dim: 5, window };
            let (tokens, width) = (shape.tokens(), shape.out_width());
            let qkv = tensor::<D, E>(device, shape.sequences * shape.keys() * shape.qkv_width(), 1);
            let (mut out, mut lse) = (unwritten::<D, E>(device, tokens * width), unwritten(device, tokens * 6));
            let [q, k, v] = shape.parts(qkv.view());
            device.attention(shape, q, k, v, out.view_mut(), lse.view_mut());
            written.extend([("out", numbers(device, &out)), ("lse", numbers(device, &lse))]);
        }
        written
    }

    pub fn embedding<D: Device, E: Element>(device: &D) -> Written {
        let (ids, length) = (of(device, &[3u32, 0, 3, 1, 3, 3]), 3);
        let mut written = Written::new();
        for has_positions in [true, false] {
            let (table, positions) = (tensor::<D, E>(device, 5 * WIDTH, 1), tensor(device, 4 * WIDTH, 2));
            let (mut out, dout) = (unwritten::<D, E>(device, 6 * WIDTH), tensor::<D, E>(device, 6 * WIDTH, 3));
            device.embed(ids.view(), table.view(), has_positions.then(|| positions.view()), out.view_mut(), length);
            written.push(("out", numbers(device, &out)));
            for write in [Write::Set, Write::Add] {
                let (mut dtable, mut dpositions) = (tensor(device, 5 * WIDTH, 4), tensor(device, 4 * WIDTH, 5));
                let to = has_positions.then(|| dpositions.view_mut());
                device.embed_backward(ids.view(), dout.view(), dtable.view_mut(), to, length, write);
                written.extend([("dtable", numbers(device, &dtable)), ("dpositions", numbers(device, &dpositions))]);
            }
        }
        written
    }

    pub fn cross_entropy<D: Device, E: Element>(device: &D) -> Written {
        let targets = of(device, &[0u32, 32, 5, 5, 31, 1, 2]);
        let (mut logits, mut again) = (tensor::<D, E>(device, ROWS * WIDTH, 1), tensor(device, ROWS, 2));
        let mut loss = unwritten(device, ROWS);
        device.cross_entropy(logits.view(), targets.view(), loss.view_mut());
        device.cross_entropy_backward(logits.view_mut(), targets.view(), again.view_mut());
        let [loss, again] = [&loss, &again].map(|loss| numbers(device, loss));
        assert_eq!(again, loss);
        vec![("loss", loss), ("dlogits", numbers(device, &logits))]
    }

    pub fn squared_error<D: Device, E: Element>(device: &D) -> Written {
        let (x, targets) = (tensor::<D, E>(device, ROWS * WIDTH, 1), tensor(device, ROWS * WIDTH, 2));
        let (dloss, mut loss) = (tensor(device, ROWS, 3), unwritten(device, ROWS));
        let mut dx = unwritten(device, ROWS * WIDTH);
        device.squared_error(x.view(), targets.view(), loss.view_mut());
        device.squared_error_backward(x.view(), targets.view(), dloss.view(), dx.view_mut());
        vec![("loss", numbers(device, &loss)), ("dx", numbers(device, &dx))]
    }

    /// In both widths, in place and not in place.
    pub fn sums_over_ranks<D: Device>(device: &D) -> Written {
        let mut written = Written::new();
        for (count, own, write) in
            [(1, None, Write::Add), (2, Some(1), Write::Set), (5, Some(2), Write::Add), (6, None, Write::Set)]
        {
            let summands: Vec<Vec<f32>> = (0..count).map(|i| noise(WIDTH, i)).collect();
            let wide: Vec<_> = summands.iter().map(|x| of(device, x)).collect();
            let mut to = tensor::<D, f32>(device, WIDTH, 9);
            device.reduce(to.view_mut().into(), wide.len(), own, &|i| wide[i].view().into(), write);
            written.push(("in f32", numbers(device, &to)));
            let narrow: Vec<_> = summands.iter().map(|x| stored::<D, bf16>(device, x)).collect();
            let mut to = tensor::<D, bf16>(device, WIDTH, 9);
            device.reduce(to.view_mut().into(), narrow.len(), own, &|i| narrow[i].view().into(), write);
            written.push(("in bf16", numbers(device, &to)));
        }
        written
    }

    pub fn sums<D: Device, E: Element>(device: &D) -> Written {
        let x = tensor::<D, E>(device, ROWS * WIDTH, 1);
        let mut written = Written::new();
        for write in [Write::Set, Write::Add] {
            let mut sum = tensor(device, WIDTH, 2);
            device.sum_rows(x.view(), sum.view_mut(), write);
            written.push(("of rows", numbers(device, &sum)));
        }
        let finite = [0.0, f32::MAX, f32::INFINITY, f32::NAN].map(|x| device.all_finite(of(device, &[x]).view()));
        assert_eq!(finite, [true, true, false, false]);
        written
    }

    /// For two ranks and one unit. Words that come from elements agree to the precision of f32.
    pub fn words<D: Device>(device: &D) -> Written {
        use zero_plan::{Config, Mesh, PlanBuf, Unit};
        let config = Config { mesh: Mesh::of_zero(2), stage: 1, ..Config::PLAIN };
        let unit = Unit { params: 64, takes: 64, input_bytes: 4, output_bytes: 4, ..Unit::NONE };
        let agreement = PlanBuf::new("", config, &[unit]).with(Agreement::of);
        let (mut words, hyper) = (of(device, &[1.0, f64::NAN, 2.0, 9.0]), of(device, &[HYPER]));
        let (loss, squares) = words.view_mut().split_at(1);
        let x = tensor::<D, f32>(device, WIDTH, 1);
        device.add_mean(x.view(), loss);
        device.squares(x.view().into(), squares.part(0, 1));
        let mut report = of(device, &[ReportBlock { is_finite: 0.0, ..REPORT }]);
        device.agree(&agreement, words.view(), hyper.view(), report.view_mut());
        let ReportBlock { loss, gradient_norm, grad_scale, is_finite } = values(device, &report)[0];
        vec![("report", [loss, gradient_norm, grad_scale, is_finite].map(|word| word as f32).to_vec())]
    }

    pub fn update<D: Device>(device: &D) -> Written {
        let (hyper, grads) = (of(device, &[HYPER]), tensor::<D, f32>(device, WIDTH, 4));
        let mut written = Written::new();
        for (decays, is_finite) in [(true, 1.0), (false, 1.0), (true, 0.0)] {
            let report = of(device, &[ReportBlock { is_finite, ..REPORT }]);
            let [mut params, mut m] = [1, 2].map(|seed| tensor::<D, f32>(device, WIDTH, seed));
            let mut v = of(device, &[0.5f32; WIDTH]);
            let weights = params.view_mut().into();
            let [to_m, to_v] = [&mut m, &mut v].map(|x| x.view_mut().into());
            let runs = [DecayRun { len: 3, decays }, DecayRun { len: WIDTH - 3, decays: !decays }];
            device.update(&runs, hyper.view(), report.view(), weights, grads.view().into(), to_m, to_v);
            written.extend([
                ("params", numbers(device, &params)),
                ("m", numbers(device, &m)),
                ("v", numbers(device, &v)),
            ]);
        }
        written
    }

    /// Parameters in bf16, with a master copy; only the copy is compared, because a number near a tie may be rounded either way.
    pub fn adamw<D: Device>(device: &D) -> Written {
        let (mut params, mut master) = (unwritten::<D, bf16>(device, WIDTH), tensor::<D, f32>(device, WIDTH, 1));
        let (mut m, mut v) = (tensor::<D, f32>(device, WIDTH, 2), of(device, &[0.5f32; WIDTH]));
        let weights = Weights { params: params.view_mut().into(), master: Some(master.view_mut().into()) };
        let step = AdamW::of(&HYPER, &REPORT, true);
        device.adamw(&step, weights, tensor::<D, bf16>(device, WIDTH, 4).view(), m.view_mut(), v.view_mut());
        vec![("master", numbers(device, &master)), ("m", numbers(device, &m)), ("v", numbers(device, &v))]
    }
    /// Also with parameters in bf16 and a master copy, and only the copy is compared, as for AdamW.
    pub fn muon<D: Device>(device: &D) -> Written {
        let hyper = of(device, &[HYPER]);
        let mut written = Written::new();
        for (decays, is_finite) in [(true, 1.0), (false, 1.0), (true, 0.0)] {
            let report = of(device, &[ReportBlock { is_finite, ..REPORT }]);
            let [mut gradients, mut m, mut params, mut master] =
                [1, 2, 3, 4].map(|seed| tensor::<D, f32>(device, WIDTH, seed));
            let mut narrow = unwritten::<D, bf16>(device, WIDTH);
            device.momentum(hyper.view(), report.view(), gradients.view_mut().into(), m.view_mut().into());
            let direction = gradients.view();
            device.step_along(decays, 1.5, hyper.view(), report.view(), params.view_mut().into(), direction);
            let weights = Weights { params: narrow.view_mut().into(), master: Some(master.view_mut().into()) };
            device.step_along(decays, 1.5, hyper.view(), report.view(), weights, direction);
            written.extend([
                ("direction", numbers(device, &gradients)),
                ("momentum", numbers(device, &m)),
                ("params", numbers(device, &params)),
                ("master", numbers(device, &master)),
            ]);
        }
        written
    }

    /// From an odd element on.
    pub fn orthogonal<D: Device>(device: &D) -> Written {
        let mut written = Written::new();
        for [rows, columns] in [[1, 19], [19, 1], [5, 7], [7, 5], [33, 64]] {
            let from = tensor::<D, f32>(device, 1 + rows * columns, 1);
            let mut room = of(device, &vec![u8::MAX; room_bytes::<f32>([rows, columns])]);
            let from = from.view().split_at(1).1.into();
            let found = orthogonalize::<D, f32>(device, [rows, columns], from, room.view_mut());
            let mut numbers = vec![f32::NAN; found.len()];
            device.read(found, &mut numbers);
            written.push(("orthogonalize", numbers));
        }
        written
    }
}
