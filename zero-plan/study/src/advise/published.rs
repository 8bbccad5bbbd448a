//! Published: figures of others about states that leave the device, beside the same figures counted from plans, or by their
//! own formulas where a plan has no such state. Writes `docs/published.md`; no row is left out because it misses.

mod times;

use core::fmt::Write;

use zero_plan::{
    Config, DeviceKind, Home, Kind, Mesh, Offload, PlanBuf, Precision, Recompute, TierKind, TransportKind, Unit, Width,
};

const KIB: usize = 1 << 10;
const GIB: f64 = (1u64 << 30) as f64;
const TIB: f64 = (1u64 << 40) as f64;

/// Narrow parameters with gradients, a copy and moments in f32: 2 + 4 + 12 bytes a parameter.
const WIDTHS: Precision = Precision {
    compute: Width::BF16,
    params: Width::BF16,
    reduce: Width::F32,
    master: Width::F32,
    moments: Width::F32,
};

/// What a rank of a plan keeps of a model, in bytes.
#[derive(Clone, Copy)]
struct Kept {
    parameters: usize,
    gradients: usize,
    /// Of the optimizer, on the device and in the host's memory.
    optimizer: [usize; 2],
    activations: usize,
    /// Gathered parameters and gradients on their way.
    in_flight: usize,
}

/// Counts the regions of a plan of units with these parameters and outputs, on ranks that shard everything.
fn kept(params: &[usize], output_bytes: usize, config: Config) -> Kept {
    let unit = |(index, &params): (usize, &usize)| Unit {
        field: "units",
        index: Some(index),
        params,
        takes: params,
        source: index,
        input_bytes: if index == 0 { 0 } else { output_bytes },
        output_bytes,
        ..Unit::NONE
    };
    let units: Vec<Unit> = params.iter().enumerate().map(unit).collect();
    PlanBuf::new("Published", config, &units).with(|plan| {
        let memory = &plan.of_rank(0).memory;
        let of = |kind| memory.region(kind).bytes;
        let states = of(Kind::Master) + of(Kind::Optimizer);
        let on_host = memory.bytes_of(Home::Host);
        Kept {
            parameters: of(Kind::Parameters),
            gradients: of(Kind::Reduced),
            optimizer: [states - on_host, on_host],
            activations: of(Kind::Activations),
            in_flight: of(Kind::Gathered) + of(Kind::Gradients),
        }
    })
}

impl Kept {
    /// All states of parameters.
    fn states(&self) -> usize {
        self.parameters + self.gradients + self.optimizer[0] + self.optimizer[1]
    }
}

/// Stage 3 over this many GPUs.
fn config(ranks: usize) -> Config {
    Config {
        mesh: Mesh::of_zero(ranks),
        stage: 3,
        prefetch: 0,
        bucket_bytes: 1,
        recompute: Recompute::Every(1),
        precision: WIDTHS,
        sequences: 2,
        length: KIB,
        device: DeviceKind::Cuda,
        transport: TransportKind::Peer,
        ..Config::PLAIN
    }
}

/// The same with the optimizer's states in the host's memory.
fn offloaded(ranks: usize) -> Config {
    Config {
        offload: Offload { optimizer: TierKind::Host, prefetch: 1, piece_bytes: 1 << 30, ..Offload::NONE },
        ..config(ranks)
    }
}

/// A model of ZeRO-Infinity's table: layers, width, and published parameters in T, states and activations in TiB.
struct InfinityRow {
    layers: usize,
    width: usize,
    published: [f64; 3],
}

const INFINITY: [InfinityRow; 5] = [
    InfinityRow { layers: 80, width: 10 * KIB, published: [0.10, 1.83, 0.05] },
    InfinityRow { layers: 100, width: 20 * KIB, published: [0.50, 9.16, 0.12] },
    InfinityRow { layers: 128, width: 25 * KIB, published: [1.01, 18.31, 0.20] },
    InfinityRow { layers: 195, width: 64 * KIB, published: [10.05, 182.81, 0.76] },
    InfinityRow { layers: 315, width: 160 * KIB, published: [101.47, 1845.70, 3.08] },
];

/// GPUs of a DGX-2, on which the 32 sequences of the table are two a GPU.
const DGX_2: usize = 16;

impl InfinityRow {
    /// Parameters in T, and states and kept activations in TiB, as they are published.
    fn ours(&self) -> [f64; 3] {
        let params = vec![12 * self.width * self.width; self.layers];
        let all: usize = params.iter().sum();
        let narrow = KIB * 2 * self.width * Width::BF16.bytes();
        let kept = kept(&params, narrow, config(DGX_2));
        let of_all_ranks = |bytes: usize| (DGX_2 * bytes) as f64;
        let halves = (2 * all) as f64;
        [all as f64 / 1e12, (of_all_ranks(kept.states()) + halves) / TIB, of_all_ranks(kept.activations) / TIB]
    }
}

/// Peak of a V100 in ZeRO-Infinity, in operations a second.
const PEAK: f64 = 70e12;

/// ZeRO-Infinity's efficiency: operations for each byte that travels, and bytes a second.
fn efficiency(operations_per_byte: f64, bandwidth: f64) -> f64 {
    let reached = operations_per_byte * bandwidth;
    reached / (reached + PEAK)
}

/// What travels, the rate and the batch, operations for each byte, bytes a second, and the published share in percent.
const EFFICIENCIES: [(&str, f64, f64, f64); 3] = [
    ("parameters and gradients at 70 GB/s, batch 1", 1024.0, 70e9, 50.6),
    ("states of the optimizer at 1.5 TB/s, batch 2", 2.0 * 1024.0 / 4.0, 1.5e12, 91.6),
    ("checkpoints of activations at 2 GB/s, width 2K", 24.0 * 2048.0, 2e9, 58.4),
];

/// T5-3B: parameters of its embedding, of a layer of its encoder and of one of its decoder, and of everything else.
const T5: (usize, [usize; 2], usize) = (32_128 * 1024, [50_333_696, 67_111_936], 2 * 1024 + 2 * 32 * 32);

/// The parameters of T5-3B, unit by unit.
fn t5() -> Vec<usize> {
    let layers = T5.1.into_iter().flat_map(|params| [params; 24]);
    [T5.0].into_iter().chain(layers).chain([T5.2]).collect()
}

/// A row of DeepSpeed's estimator for 8 GPUs of one node: stage, what is offloaded, published GB of a host and of a GPU,
/// and their formulas.
struct EstimatorRow {
    what: &'static str,
    published: [f64; 2],
    host: fn(f64, f64) -> f64,
    gpu: fn(f64, f64) -> f64,
}

/// Its factor for further buffers of a host.
const SPARE: f64 = 1.5;
const GPUS: f64 = 8.0;

/// Arguments of the formulas: parameters, and those of the largest layer.
const ESTIMATOR: [EstimatorRow; 8] = [
    EstimatorRow {
        what: "2, optimizer",
        published: [127.48, 5.31],
        host: |all, _| all * (4.0 * GPUS).max(16.0) * SPARE,
        gpu: |all, _| 2.0 * all,
    },
    EstimatorRow {
        what: "2, nothing",
        published: [127.48, 15.93],
        host: |all, _| all * 4.0 * GPUS * SPARE,
        gpu: |all, _| 4.0 * all + 16.0 * all / GPUS,
    },
    EstimatorRow {
        what: "3, optimizer and parameters",
        published: [71.71, 0.12],
        host: |all, _| all * 18.0 * SPARE,
        gpu: |_, largest| 4.0 * largest,
    },
    EstimatorRow {
        what: "3, the same, without `zero.Init`",
        published: [127.48, 0.12],
        host: |all, _| all * (4.0 * GPUS).max(18.0) * SPARE,
        gpu: |_, largest| 4.0 * largest,
    },
    EstimatorRow {
        what: "3, optimizer",
        published: [63.74, 0.79],
        host: |all, _| all * 16.0 * SPARE,
        gpu: |all, largest| 4.0 * largest + 2.0 * all / GPUS,
    },
    EstimatorRow {
        what: "3, the same, without `zero.Init`",
        published: [127.48, 0.79],
        host: |all, _| all * (4.0 * GPUS).max(16.0) * SPARE,
        gpu: |all, largest| 4.0 * largest + 2.0 * all / GPUS,
    },
    EstimatorRow {
        what: "3, nothing",
        published: [1.47, 6.10],
        host: |_, largest| largest * 4.0 * GPUS * SPARE,
        gpu: |all, largest| 4.0 * largest + 18.0 * all / GPUS,
    },
    EstimatorRow {
        what: "3, the same, without `zero.Init`",
        published: [127.48, 6.10],
        host: |all, _| all * 4.0 * GPUS * SPARE,
        gpu: |all, largest| 4.0 * largest + 18.0 * all / GPUS,
    },
];

impl EstimatorRow {
    fn ours(&self) -> [f64; 2] {
        let (all, largest) = (t5().iter().sum::<usize>() as f64, T5.0 as f64);
        [(self.host)(all, largest), (self.gpu)(all, largest)].map(|bytes| bytes / GIB)
    }
}

/// Another published figure: its source, what it is, the figure as published, ours with the same digits, and how ours is
/// made.
struct Figure {
    what: &'static str,
    published: &'static str,
    ours: String,
    how: &'static str,
}

fn figures() -> Vec<Figure> {
    let (gb, gib) = (|bytes: usize| bytes as f64 / 1e9, |bytes: usize| bytes as f64 / GIB);
    let operator = kept(
        &[4 * (25 * KIB) * (25 * KIB)],
        0,
        Config { precision: Precision { reduce: Width::BF16, ..WIDTHS }, ..config(DGX_2) },
    );
    let glm = kept(&[8_000_000_000; 93], 0, offloaded(32));
    let small = kept(&[1_000_000_000; 13], 0, Config { stage: 2, ..config(1) });
    let infinity = INFINITY[2].ours()[0] * 1e12;
    let qwen = gib(8 * 596_049_920);
    vec![
        Figure {
            what: "ZeRO-Infinity: the largest operator at width 25K, parameters and gradients",
            published: "9.77 GiB",
            ours: format!("{:.2} GiB", gib(operator.in_flight)),
            how: "plan: gathered parameters and a bucket",
        },
        Figure {
            what: "ZeRO-Infinity: 1 T parameters on a DGX-2 with 28 TB of NVMe",
            published: "fits",
            ours: if infinity * 20.0 < 28e12 { "fits" } else { "does not fit" }.to_owned(),
            how: "20 bytes a parameter: 20.1 TB",
        },
        Figure {
            what: "ZeRO-Offload: 13 B parameters in 2 bytes on a V100 of 32 GB",
            published: "26 GB",
            ours: format!("{:.0} GB", gb(small.parameters)),
            how: "plan: parameters",
        },
        Figure {
            what: "ZeRO-Offload: 40 B parameters beside 1.5 TB of host memory",
            published: "720 GB",
            ours: format!("{:.0} GB", gb(kept(&[1_000_000_000; 40], 0, config(1)).states())),
            how: "plan: all states, of which ours leave the optimizer's 480 GB",
        },
        Figure {
            what: "miles: GLM-5.2, 744 B parameters, states of the optimizer a rank of 32, beside 276.6 GB of HBM",
            published: "279.0 GB",
            ours: format!("{:.1} GB", gb(glm.optimizer[1])),
            how: "plan: the tier of a rank",
        },
        Figure {
            what: "NeMo-RL, issue 3628: what offload saves of Qwen3-0.6B on a GPU, 15.24 to 10.53 GiB",
            published: "4.71 GiB",
            ours: format!("{qwen:.2} GiB (miss)"),
            how: "8 bytes a parameter",
        },
    ]
}

const HEAD: &str = "\
# Published figures of offload

What others have published about states that leave the device, beside the same figures counted from plans of this project. Where a plan
has no such state, the figure follows from the published formula, and the table says so. A test writes this page
(`UPDATE_EXPECT=1 cargo test -p zero-study --lib published`), fails if it is out of date, and compares each figure with the published
digits. Predicted throughputs are in [predictions.md](predictions.md); [offload.md](offload.md) says what offload is here.

";

const INFINITY_HEAD: &str = "\
## ZeRO-Infinity: memory

arXiv 2104.07857: 12 parameters a layer and square of the width, 32 sequences of 1024 tokens. States take 20 bytes a parameter: 2 for the
parameter, 2 + 4 for its gradient in half precision and in f32, 12 for the copy and the moments. A plan with `precision: (compute: BF16,
params: BF16)` at stage 3 over 16 ranks has 18 of them; the 2 bytes of gradients in half precision are added by formula, because here
only a bucket of gradients exists beside the sums. Activations are the outputs that the plan keeps with `recompute: Every(1)`.

| layers x width | parameters | published | states, TiB | published | activations kept, TiB | published |
|---|---|---|---|---|---|---|
";

const EFFICIENCY_HEAD: &str = "
## ZeRO-Infinity: efficiency

By its formula: operations a byte times bandwidth, divided by the same plus a peak of 70 TFLOP/s. A byte of parameters and gradients
serves as many operations as a batch has tokens, a byte of the optimizer a quarter of that, and a byte of activations 24 times the width.

| what travels | efficiency | published |
|---|---|---|
";

const ESTIMATOR_HEAD: &str = "
## DeepSpeed's estimator

`docs/code-docs/source/memory.rst`: T5-3B on one node of 8 GPUs, in GiB. By its formulas, with 1.5 times the bytes of a host, from the
parameters of the model, unit by unit.

| stage and what is offloaded | host | published | a GPU | published |
|---|---|---|---|---|
";

const OTHERS_HEAD: &str = "
## Others

| figure | ours | published | ours is |
|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned() + INFINITY_HEAD;
    for row in &INFINITY {
        let ([params, states, activations], published) = (row.ours(), row.published);
        let _ = writeln!(
            page,
            "| {} x {}K | {params:.2} T | {:.2} T | {states:.2} | {:.2} | {activations:.2} | {:.2} |",
            row.layers,
            row.width / KIB,
            published[0],
            published[1],
            published[2],
        );
    }
    page += EFFICIENCY_HEAD;
    for (what, operations, bandwidth, published) in EFFICIENCIES {
        let _ = writeln!(page, "| {what} | {:.1} % | {published:.1} % |", efficiency(operations, bandwidth) * 100.0);
    }
    page += ESTIMATOR_HEAD;
    for row in &ESTIMATOR {
        let ([host, gpu], published) = (row.ours(), row.published);
        let _ = writeln!(page, "| {} | {host:.2} | {:.2} | {gpu:.2} | {:.2} |", row.what, published[0], published[1]);
    }
    page += &shards();
    page += OTHERS_HEAD;
    for Figure { what, published, ours, how } in figures() {
        let _ = writeln!(page, "| {what} | {ours} | {published} | {how} |");
    }
    page + &times::added_times()
}

/// What plans of T5-3B keep, beside the shards of the estimator.
fn shards() -> String {
    let [plain, moved] = [config(8), offloaded(8)].map(|config| kept(&t5(), 0, config));
    let gib = |bytes: usize| bytes as f64 / GIB;
    format!(
        "\nCounted from plans at stage 3: a rank keeps {:.2} GiB of states, which are the 18 bytes a parameter of the last two rows\n\
         without the largest layer. With `offload: (optimizer: Host)`, {:.2} GiB of them are in the host's memory, and {:.2} GiB on the\n\
         GPU: DeepSpeed also moves gradients.\n",
        gib(plain.states()),
        gib(moved.optimizer[1]),
        gib(moved.parameters + moved.gradients),
    )
}

#[test]
fn the_page_of_published_figures_is_up_to_date() {
    expect_test::expect_file!["../../../../docs/published.md"].assert_eq(&page());
}

/// With as many digits as are published.
#[test]
fn figures_are_those_that_are_published() {
    let same = |ours: f64, published: f64, digits: usize, what: &str| {
        assert_eq!(format!("{ours:.digits$}"), format!("{published:.digits$}"), "{what}");
    };
    for row in &INFINITY {
        row.ours()
            .into_iter()
            .zip(row.published)
            .for_each(|(ours, published)| same(ours, published, 2, "ZeRO-Infinity"));
    }
    for (what, operations, bandwidth, published) in EFFICIENCIES {
        same(efficiency(operations, bandwidth) * 100.0, published, 1, what);
    }
    for row in &ESTIMATOR {
        row.ours().into_iter().zip(row.published).for_each(|(ours, published)| same(ours, published, 2, row.what));
    }
    for figure in figures() {
        let is_same = figure.ours == figure.published;
        assert_ne!(is_same, figure.ours.ends_with("(miss)"), "{}: {}", figure.what, figure.ours);
    }
}

/// The states that a plan counts are the bytes of the formulas, where both say how many there are.
#[test]
fn plans_and_formulas_agree() {
    let all: usize = t5().iter().sum();
    assert_eq!(all, 2_851_598_336);
    let [plain, moved] = [config(8), offloaded(8)].map(|config| kept(&t5(), 0, config));
    // Units are padded to whole lines on each rank, and in a tier to whole blocks.
    let close = |found: usize, expected: usize| assert!((expected..expected + expected / 1000).contains(&found));
    close(plain.states(), 18 * all / 8);
    close(moved.optimizer[1], 12 * all / 8);
    assert_eq!(moved.parameters + moved.gradients, plain.parameters + plain.gradients);
    assert_eq!(moved.optimizer[0], 0);
}
