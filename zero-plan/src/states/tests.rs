//! Tests of the published tables, cell by cell, and of plans against the same formulas.

use super::published::{LayerOperations, PassTimes, Pipelining};
use super::*;
use crate::build::PlanBuf;
use crate::config::{Often, Order, Recompute, TransportKind, Width};
use crate::layout::Kind;
use crate::mesh::Mesh;
use crate::plan::Plan;
use crate::traffic::Traffic;
use crate::unit::Unit;

const BILLION: usize = 1_000_000_000;

const fn widths(params_bytes: usize, gradients_bytes: usize, optimizer_bytes: usize) -> StateBytes {
    StateBytes { params_bytes, gradients_bytes, optimizer_bytes }
}

/// Mixed precision with Adam, as in the ZeRO paper.
const MIXED: StateBytes = widths(2, 2, 12);

/// A size in decimal GB as Table 1 prints it: sizes from 257 GB up are cut to whole numbers, those below two GB have
/// two decimals, and others one, rounded half up.
fn as_printed(bytes: usize) -> f64 {
    let rounded = |unit: usize| ((bytes + unit / 2) / unit) as f64 * unit as f64 / BILLION as f64;
    match bytes {
        0..2_000_000_000 => rounded(BILLION / 100),
        2_000_000_000..257_000_000_000 => rounded(BILLION / 10),
        _ => (bytes / BILLION) as f64,
    }
}

#[test]
fn table_1_of_the_zero_paper() {
    // Ranks; then stages 1, 2 and 3 of 7.5B, 128B and 1T parameters, in GB.
    type Row = (usize, [[f64; 3]; 3]);
    const TABLE: [Row; 6] = [
        (1, [[120.0, 120.0, 120.0], [2048.0, 2048.0, 2048.0], [16000.0, 16000.0, 16000.0]]),
        (4, [[52.5, 41.3, 30.0], [896.0, 704.0, 512.0], [7000.0, 5500.0, 4000.0]]),
        (16, [[35.6, 21.6, 7.5], [608.0, 368.0, 128.0], [4750.0, 2875.0, 1000.0]]),
        (64, [[31.4, 16.6, 1.88], [536.0, 284.0, 32.0], [4187.0, 2218.0, 250.0]]),
        (256, [[30.4, 15.4, 0.47], [518.0, 263.0, 8.0], [4046.0, 2054.0, 62.5]]),
        (1024, [[30.1, 15.1, 0.12], [513.0, 257.0, 2.0], [4011.0, 2013.0, 15.6]]),
    ];
    for (ranks, models) in TABLE {
        for (params, cells) in [15 * BILLION / 2, 128 * BILLION, 1000 * BILLION].into_iter().zip(models) {
            for (stage, cell) in (1..).zip(cells) {
                let bytes = MIXED.per_rank(params, ranks, stage).total();
                assert_eq!(as_printed(bytes), cell, "{params} on {ranks} at stage {stage}");
            }
        }
    }
}

#[test]
fn figure_1_of_the_zero_paper() {
    let bytes = [0, 1, 2, 3].map(|stage| MIXED.per_rank(15 * BILLION / 2, 64, stage).total());
    // By hand: 16 x 7.5; 4 x 7.5 + 12 x 7.5 / 64; 2 x 7.5 + 14 x 7.5 / 64; 16 x 7.5 / 64.
    assert_eq!(bytes, [120_000_000_000, 31_406_250_000, 16_640_625_000, 1_875_000_000]);
    assert_eq!(bytes.map(|bytes| (bytes as f64 / 1e8).round() / 10.0), [120.0, 31.4, 16.6, 1.9]);
}

#[test]
fn examples_of_tutorials() {
    let in_gb = |states: StateBytes| {
        let StateBytes { params_bytes, gradients_bytes, optimizer_bytes } = states;
        [params_bytes, gradients_bytes, optimizer_bytes, states.total()].map(|bytes| bytes as f64 / 1e9)
    };
    // 7B in fp32 with Adam; half of everything on each of two ranks.
    assert_eq!(in_gb(widths(4, 4, 8).per_rank(7 * BILLION, 1, 0)), [28.0, 28.0, 56.0, 112.0]);
    assert_eq!(in_gb(widths(4, 4, 8).per_rank(7 * BILLION, 2, 3)), [14.0, 14.0, 28.0, 56.0]);
    // A 4B model in bf16, Adam included, on two ranks of 24 GB.
    assert_eq!(in_gb(widths(2, 2, 4).per_rank(4 * BILLION, 2, 0)), [8.0, 8.0, 16.0, 32.0]);
    assert_eq!(in_gb(widths(2, 2, 4).per_rank(4 * BILLION, 2, 1)), [8.0, 8.0, 8.0, 24.0]);
    assert_eq!(in_gb(widths(2, 2, 4).per_rank(4 * BILLION, 2, 2)), [8.0, 4.0, 8.0, 20.0]);
    assert_eq!(in_gb(widths(2, 2, 4).per_rank(4 * BILLION, 2, 3)), [4.0, 4.0, 8.0, 16.0]);
    // 7B in fp16: two moments in fp32 are 56 GB, where 28 is often quoted.
    assert_eq!(in_gb(widths(2, 2, 8).per_rank(7 * BILLION, 1, 0)), [14.0, 14.0, 56.0, 84.0]);
    // 13B on 8 ranks of 80 GB: stage 1 leaves 8.5 GB for activations, stage 2 31.25.
    let totals = [0, 1, 2, 3].map(|stage| in_gb(MIXED.per_rank(13 * BILLION, 8, stage))[3]);
    assert_eq!(totals, [208.0, 71.5, 48.75, 26.0]);
    // Three ranks, widths 1 : 1 : 2: often quoted as 75, 50 and 33 % of plain data parallelism.
    let percent = |stage| 100.0 * widths(1, 1, 2).per_rank(3 * BILLION, 3, stage).total() as f64 / 12e9;
    assert_eq!([1, 2, 3].map(|stage| (percent(stage) * 10.0).round() / 10.0), [66.7, 50.0, 33.3]);
}

/// Table 2, left: the largest model on 32 GB a device, without model parallelism, in billions. Each further row
/// multiplies devices by the degree of model parallelism, which multiplies all cells.
#[test]
fn table_2_of_the_zero_paper() {
    let largest = |stage: u8, ranks: usize| {
        let fits = |params: usize| MIXED.per_rank(params, ranks, stage).total() <= 32 * BILLION;
        // In tenths of a billion, cut as the paper does.
        (1..).take_while(|tenths| fits(tenths * BILLION / 10)).last().unwrap()
    };
    assert_eq!([0, 1, 2, 3].map(|stage| largest(stage, 64)), [20, 76, 144, 1280]);
}

#[test]
fn seventy_billions_on_eight() {
    let total = |stage| MIXED.per_rank(70 * BILLION, 8, stage).total() / BILLION;
    assert_eq!([0, 1, 2, 3].map(total), [1120, 385, 262, 140]);
    // The parameters alone are 8.75 billion a rank, of 2 bytes each. For all states, 80 GB are too few and 180 enough.
    assert_eq!(MIXED.per_rank(70 * BILLION, 8, 3).params_bytes, 8_750_000_000 * 2);
}

#[test]
fn what_does_not_divide_is_rounded_up() {
    assert_eq!(MIXED.per_rank(3, 4, 3), widths(2, 2, 9));
}

#[test]
fn volumes_of_section_7() {
    let volume = |config: Config| (Volume::of(&config).reduce_scatters, Volume::of(&config).all_gathers);
    let at_stages = |config: Config| [0, 1, 2, 3].map(|stage| volume(config.at_stage(stage)));
    assert_eq!(at_stages(Config::PLAIN), [(1, 1), (1, 1), (1, 1), (1, 2)]);
    let four = Config { micro_batches: 4, ..Config::PLAIN };
    assert_eq!(at_stages(four), [(4, 1), (4, 1), (4, 1), (4, 8)]);
    assert_eq!(at_stages(Config { reduce: Often::PerStep, ..four })[3], (1, 8));
    assert_eq!(at_stages(Config { gather: Often::PerStep, reduce: Often::PerStep, ..four })[3], (1, 1));
    assert_eq!([0, 1, 2, 3].map(|stage| Volume::of(&Config::PLAIN.at_stage(stage)).total()), [2, 2, 2, 3]);
}

#[test]
fn bubble_times() {
    use Pipelining::*;
    let times = PassTimes { forward: 5.0, input_gradient: 7.0, weight_gradient: 3.0 };
    let time = |schedule: Pipelining| schedule.bubble_time(4, &times);
    assert_eq!([GPipe, OneFOneB].map(time), [45.0, 45.0]);
    assert_eq!(time(Interleaved { chunks: 2 }), 22.5);
    assert_eq!([ZeroBubbleH1, ZeroBubbleH2].map(time), [27.0, 18.0]);
}

#[test]
fn bubble_rates() {
    let bubble = |schedule: Pipelining| schedule.bubble(4, 8, &PassTimes::ALIKE);
    let plain = bubble(Pipelining::OneFOneB);
    assert_eq!(plain, Bubble { of_step: 3.0 / 11.0, over_ideal: 3.0 / 8.0 });
    assert_eq!(bubble(Pipelining::GPipe), plain);
    assert_eq!(bubble(Pipelining::Interleaved { chunks: 2 }).over_ideal, plain.over_ideal / 2.0);
    assert_eq!(bubble(Pipelining::Interleaved { chunks: 2 }).of_step, 3.0 / 19.0);
    // A third of the idle time. Over the ideal time that is a third of the rate; over the step, which gets shorter too,
    // it is slightly more: (p-1) / (3 m + p-1).
    assert_eq!(bubble(Pipelining::ZeroBubbleH1).over_ideal, plain.over_ideal / 3.0);
    assert_eq!(bubble(Pipelining::ZeroBubbleH1).of_step, 3.0 / 27.0);
    assert_eq!(bubble(Pipelining::ZeroBubbleH2), Bubble { of_step: 0.0, over_ideal: 0.0 });
}

#[test]
fn bubbles_of_configurations_are_the_published_ones() {
    for order in [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 3 }] {
        let mesh = Mesh { pipeline: 4, ..Mesh::of_zero(2) };
        let bubble = Bubble::of(&Config { mesh, order, micro_batches: 8, ..Config::PLAIN });
        let published = Pipelining::from(order).bubble(4, 8, &PassTimes::ALIKE);
        assert!((bubble.of_step - published.of_step).abs() < 1e-15, "{order:?}");
        assert!((bubble.over_ideal - published.over_ideal).abs() < 1e-15, "{order:?}");
    }
}

#[test]
fn activations_in_flight() {
    use Pipelining::*;
    let most = |schedule: Pipelining| schedule.activations_max(4, 16);
    assert_eq!([GPipe, OneFOneB, ZeroBubbleH1, ZeroBubbleH2].map(most), [16.0, 4.0, 4.0, 7.0]);
    // p (1 + (p-1) / (p v))
    assert_eq!(most(Interleaved { chunks: 2 }), 4.0 * (1.0 + 3.0 / 8.0));
    assert_eq!(OneFOneB.activations_max(4, 3), 3.0);
}

#[test]
fn operations_of_a_transformer_layer() {
    // s = 2, b = 3, h = 5: sbh = 30.
    let expected = LayerOperations { forward: 30 * 128, input_gradient: 30 * 136, weight_gradient: 30 * 120 };
    assert_eq!(LayerOperations::of(2, 3, 5), expected);
    // By hand, without the formula: products with 4 h^2 (attention) and 8 h^2 (feed-forward) weights for each of s b
    // tokens, and scores and sums over s tokens, with a multiplication and an addition each.
    let (s, b, h) = (1024, 2, 768);
    assert_eq!(LayerOperations::of(s, b, h).forward, 2 * s * b * 12 * h * h + 2 * b * 2 * s * s * h);
}

/// Units whose flat buffers need no padding on four ranks.
fn units(count: usize) -> Vec<Unit> {
    let unit = |i| Unit {
        field: "layers",
        index: Some(i),
        params: 64 * (1 + i % 3),
        takes: 64 * (1 + i % 3),
        source: i,
        saved_bytes: 128,
        input_bytes: 64,
        output_bytes: 64,
        operations: 1000,
        ..Unit::NONE
    };
    (0..count).map(unit).collect()
}

const fn precision(params: Width, reduce: Width, master: Width, moments: Width) -> Precision {
    Precision { params, reduce, master, moments, ..Config::PLAIN.precision }
}

const PRECISIONS: [(Precision, StateBytes); 4] = {
    use Width::{BF16, F32};
    [
        (precision(F32, F32, F32, F32), widths(4, 4, 8)),
        (precision(BF16, BF16, F32, F32), MIXED),
        (precision(BF16, BF16, BF16, BF16), widths(2, 2, 4)),
        (precision(BF16, BF16, BF16, F32), widths(2, 2, 8)),
    ]
};

/// The states that a rank of `plan` keeps from one step to the next, and the gradients that it keeps from their sum to
/// the update.
fn states_of(plan: &Plan) -> StateBytes {
    let memory = &plan.pipeline_stages[0].memory;
    let bytes = |kind| memory.region(kind).bytes;
    // From stage 2 on, local gradients only pass through a ring of staging buffers. The paper does not count these,
    // because its gradients go directly from backward into shards. Nor does it count the slots that parameters are
    // gathered or converted into (`Kind::Gathered`), and the f32 gradients of the unit in backward
    // (`Kind::UnitGradients`).
    let local = if plan.config.stage >= 2 { 0 } else { bytes(Kind::Gradients) };
    StateBytes {
        params_bytes: bytes(Kind::Parameters),
        gradients_bytes: local + bytes(Kind::Reduced),
        optimizer_bytes: bytes(Kind::Master) + bytes(Kind::Optimizer),
    }
}

#[test]
fn arenas_take_what_the_formulas_say() {
    for (precision, per_param) in PRECISIONS {
        assert_eq!(StateBytes::of_param(&precision), per_param);
        for transport in [TransportKind::Local, TransportKind::Shm] {
            for (ranks, stage) in [1, 2, 4].into_iter().flat_map(|ranks| [0, 1, 2, 3].map(|stage| (ranks, stage))) {
                let mesh = Mesh::of_zero(ranks);
                let config = Config { mesh, stage, precision, transport, bucket_bytes: 300, ..Config::PLAIN };
                PlanBuf::new("Layers", config, &units(6)).with(|plan| {
                    assert_eq!(plan.check(), Ok(()));
                    assert_eq!(plan.padded(), plan.params());
                    assert_eq!(states_of(plan), per_param.per_rank(plan.params(), ranks, stage), "{config:?}");
                });
            }
        }
    }
}

#[test]
fn what_arenas_hold_beyond_the_formulas() {
    let config = Config { mesh: Mesh::of_zero(4), bucket_bytes: 4 * 128, ..Config::PLAIN };
    // The ring of staging: two buckets, the largest of which is one unit of 192 elements.
    for stage in [2, 3] {
        PlanBuf::new("Layers", config.at_stage(stage), &units(6)).with(|plan| {
            assert_eq!(plan.pipeline_stages[0].memory.region(Kind::Gradients).bytes, 2 * 192 * 4);
        });
    }
    // Sums over micro-batches need a separate place beside local gradients, unless these are summed first.
    let four = Config { micro_batches: 4, ..config };
    PlanBuf::new("Layers", four.at_stage(1), &units(6)).with(|plan| {
        assert_eq!(states_of(plan).gradients_bytes, 4 * plan.params() + 4 * plan.params() / 4);
    });
    PlanBuf::new("Layers", Config { reduce: Often::PerStep, ..four.at_stage(1) }, &units(6)).with(|plan| {
        assert_eq!(states_of(plan).gradients_bytes, 4 * plan.params());
    });
}

/// Volume of a plan of one pipeline stage in Psi, by the same two kinds, counted from its ops. Parameters that are used
/// twice in a row, and so gathered once for both uses, are added again as `shared`, in elements.
fn volume_of(plan: &Plan, shared: usize) -> (f64, f64) {
    let traffic = Traffic::of(plan, 0, plan.pipeline_stages[0].step);
    let (params, reduce) = (plan.config.precision.params.bytes(), plan.config.precision.reduce.bytes());
    let ranks = plan.config.mesh.zero;
    let in_psi = |elements: usize| (elements * ranks) as f64 / ((ranks - 1) * plan.params()) as f64;
    let gathered = traffic.gather_bytes / params + shared / ranks * (ranks - 1);
    (in_psi(traffic.reduce_bytes / reduce), in_psi(gathered + traffic.spread_bytes / reduce))
}

#[test]
fn schedules_move_the_published_volumes() {
    let units = units(6);
    let (first, last) = (units[0].params, units[5].params);
    for (precision, _) in PRECISIONS {
        for (micro_batches, stage) in [1, 4].into_iter().flat_map(|m| [0, 1, 2, 3].map(|stage| (m, stage))) {
            for (gather, reduce) in [
                (Often::PerMicroBatch, Often::PerMicroBatch),
                (Often::PerMicroBatch, Often::PerStep),
                (Often::PerStep, Often::PerStep),
            ] {
                let mesh = Mesh::of_zero(4);
                let config = Config { mesh, stage, micro_batches, gather, reduce, precision, ..Config::PLAIN };
                // The last unit's backward follows its forward, and the first unit's next forward follows its backward.
                let per_use = config.shards_parameters() && !config.holds_parameters();
                let shared = if per_use { micro_batches * last + (micro_batches - 1) * first } else { 0 };
                let Volume { reduce_scatters, all_gathers, .. } = Volume::of(&config);
                PlanBuf::new("Layers", config, &units).with(|plan| {
                    let counted = volume_of(plan, shared);
                    assert_eq!(counted, (reduce_scatters as f64, all_gathers as f64), "{config:?}");
                });
            }
        }
    }
}

#[test]
fn pipelines_keep_the_published_activations() {
    for order in [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }, Order::Interleaved { chunks: 3 }] {
        for (pipeline_stages, micro_batches) in [(2, 2), (2, 8), (3, 9), (4, 4), (4, 16)] {
            let mesh = Mesh { pipeline: pipeline_stages, ..Mesh::of_zero(1) };
            let config = Config { mesh, order, micro_batches, recompute: Recompute::None, ..Config::PLAIN };
            PlanBuf::new("Layers", config, &units(12)).with(|plan| {
                let slots = (0..pipeline_stages).map(|pipeline| plan.tables().activation_slots(pipeline)).max();
                let published = Pipelining::from(order).activations_max(pipeline_stages, micro_batches);
                let chunks = config.chunks_per_rank() as f64;
                assert_eq!(slots, Some((published * chunks).round() as usize), "{config:?}");
                // Every slot is as large as the largest chunk: the same in bytes.
                let memory = &plan.pipeline_stages[0].memory;
                let bytes = plan.tables().activation_slots(0) * memory.activation_slot_bytes;
                assert_eq!(memory.region(Kind::Activations).bytes, bytes);
            });
        }
    }
}
