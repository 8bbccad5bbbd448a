//! Steps as graphs: they have the bits of steps that run op by op, in whatever order a device works, and after their capture each
//! is one launch. A failure of a graph is one error, and other ranks end too.

use zero_core::model::Program;
use zero_engine::{Engine, Hyper, RunError};
use zero_plan::{Config, DeviceKind, Mesh, Offload, PlanBuf, Stream, TierKind, TransportKind};
use zero_ranks::transport::{Lost, Transport, local};
use zero_runtime::device::Device;
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, mesh, noise};

/// Enough for each graph to be launched again after its capture: one step is not captured, and there are two graphs, or one if NCCL
/// carries the numbers.
const STEPS: u64 = 7;

/// Calls that give a device work outside of a graph.
const CALLS: [&str; 11] = [
    "cuLaunchKernel",
    "cuMemcpyAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuStreamBeginCapture_v2",
    "cuGraphInstantiateWithFlags",
    "cuMemHostAlloc",
    // The pretend NCCL puts its work into queues by this call.
    "pretend_enqueue_when",
];

/// The transports between devices. A machine with GPUs may have no NCCL.
fn transports() -> &'static [TransportKind] {
    if pretend::is_hardware() { &[TransportKind::Peer] } else { &[TransportKind::Peer, TransportKind::Nccl] }
}

/// The driver calls of one step: launches of graphs, and all other counted calls. Queries whether the step has ended are not
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    launches: u64,
    others: u64,
}

impl Asked {
    fn so_far() -> Self {
        Self { launches: pretend::count("cuGraphLaunch"), others: CALLS.map(pretend::count).iter().sum() }
    }

    fn since(self, before: Self) -> Self {
        Self { launches: self.launches - before.launches, others: self.others - before.others }
    }
}

/// Results of one rank: bits of everything learned and evaluated, and the driver calls of each step.
type Run = (Vec<u64>, Vec<Asked>);

/// Trains with another learning rate at each step.
struct Train {
    transport: TransportKind,
    change: fn(Config) -> Config,
    is_eager: bool,
    /// Between steps, evaluates, predicts and profiles. Reads ids outside of the vocabulary in the second step, which would be
    /// captured, and in one that would be launched again.
    is_varied: bool,
}

impl Train {
    fn on<D: Device>(self, program: &'static Program<D>) -> Vec<Run> {
        let config = (self.change)(program.plan.config);
        let config = Config { device: DeviceKind::Cuda, transport: self.transport, memory_bytes: None, ..config };
        let batch = noise(config);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            let ranks = local::run(
                plan,
                |_| false,
                |transport| {
                    let mut engine = Engine::new(program, transport);
                    let rank = engine.arena().coordinates().data_rank(&config.mesh);
                    engine.run_eagerly(self.is_eager);
                    engine.initialize(5);
                    let (mut bits, mut asked) = (Vec::new(), Vec::new());
                    for step in 0..STEPS {
                        if self.is_varied && [1, 4].contains(&step) {
                            let report = engine.step(&HYPER, |part, ids, targets| {
                                batch(step, rank, part, ids, targets);
                                targets[0] = u32::MAX;
                            });
                            assert!(matches!(report, Err(RunError::OutOfRange(_))), "{report:?}");
                        }
                        if self.is_varied && step == 5 {
                            engine.record(1);
                        }
                        let hyper = Hyper { lr: HYPER.lr / (step + 1) as f64, ..HYPER };
                        let before = Asked::so_far();
                        let report = engine.step(&hyper, |part, ids, targets| batch(step, rank, part, ids, targets));
                        let report = report.expect("a step without faults");
                        asked.push(Asked::so_far().since(before));
                        bits.extend([report.loss, report.gradient_norm].map(f64::to_bits));
                        // An evaluation exchanges numbers too, so that the next step has the same place for its numbers.
                        if self.is_varied && step == 3 {
                            let loss = engine.evaluate(|part, ids, targets| batch(step + 50, rank, part, ids, targets));
                            bits.push(loss.expect("an evaluation").to_bits());
                        }
                        if self.is_varied && step == 4 {
                            let mut logits = vec![0.0; program.inputs.vocabulary.expect("ids")];
                            engine.predict(&[1, 2, 3], &mut logits).expect("a prediction");
                            bits.extend(logits.iter().map(|logit| u64::from(logit.to_bits())));
                        }
                    }
                    for unit in 0..plan.units.len() {
                        let parameters = engine.parameters(unit).expect("parameters").unwrap_or_default();
                        bits.extend(parameters.iter().map(|param| u64::from(param.to_bits())));
                    }
                    (bits, asked)
                },
            );
            ranks.expect("the memory of a tiny model")
        })
    }
}

fn train(name: &str, train: Train) -> Vec<Run> {
    train.on(cuda_program(name))
}

/// Compares graphs with eager steps, under several orders of the device's work, and NCCL with devices that reach one
/// another.
struct Same<'a> {
    seeds: &'a [u64],
    change: fn(Config) -> Config,
}

impl Same<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) {
        let Self { seeds, change } = self;
        let run = |transport, is_eager| {
            let ranks = Train { transport, change, is_eager, is_varied: true }.on(program);
            ranks.into_iter().map(|(bits, _)| bits).collect::<Vec<_>>()
        };
        let eager = run(TransportKind::Peer, true);
        for &transport in transports() {
            for &seed in seeds {
                pretend::seed(seed);
                let name = program.plan.model;
                assert!(run(transport, false) == eager, "{name}, {transport:?}: other bits under seed {seed}");
            }
        }
    }
}

fn assert_same(name: &str, seeds: &[u64], change: fn(Config) -> Config) {
    Same { seeds, change }.on(cuda_program(name));
}

fn on(mesh: Mesh, stage: u8, config: Config) -> Config {
    Config { mesh, ..config.at_stage(stage) }
}

#[test]
fn stages_give_the_bits_of_eager_steps() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    assert_same("zero3", &[1], |config| on(mesh(1, 1, 1), 0, config));
    assert_same("zero3", &[2], |config| on(mesh(1, 2, 1), 0, config));
    assert_same("zero3", &[3], |config| on(mesh(1, 1, 2), 1, config));
    assert_same("muon", &[6], |config| on(mesh(1, 1, 2), 2, config));
    assert_same("zero3", &[5], |config| on(mesh(1, 2, 2), 3, config));
    assert_same("bf16", &[7], |config| on(mesh(1, 1, 2), 3, config));
}

#[test]
fn pipelines_give_the_bits_of_eager_steps() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    assert_same("interleaved", &[8], |config| on(mesh(2, 1, 1), 0, config));
    assert_same("interleaved", &[9], |config| config);
}

/// The first step runs op by op, the next two, or one, are captured, and from then on each step is a single launch.
#[test]
fn a_step_is_one_launch() {
    // Only the pretend driver counts calls.
    if pretend::libraries().is_none() || !pretend::is_cuda() {
        return;
    }
    let run = |transport, is_eager| {
        let change = |config| on(mesh(1, 1, 2), 3, config);
        train("zero3", Train { transport, change, is_eager, is_varied: false })
    };
    for &transport in transports() {
        let captured = if transport == TransportKind::Peer { 2 } else { 1 };
        for (_, asked) in run(transport, false) {
            let launches: Vec<u64> = asked.iter().map(|step| step.launches).collect();
            assert_eq!(launches, [0, 1, 1, 1, 1, 1, 1]);
            let others: Vec<u64> = asked.iter().map(|step| step.others).collect();
            let (asked_for, launched) = others.split_at(1 + captured);
            assert!(asked_for.iter().all(|&calls| calls > 50), "{others:?}");
            // Reading the report waits for the queues of all other streams.
            assert!(launched.iter().all(|&calls| calls == Stream::ALL.len() as u64 - 1), "{others:?}");
        }
        for (_, asked) in run(transport, true) {
            assert!(asked.iter().all(|step| step.launches == 0 && step.others > 50), "{asked:?}");
        }
    }
}

/// Trains two ranks until a call fails on one of them. Returns the errors of both, and the number of graphs that each has launched.
struct Fail(TransportKind);

impl Fail {
    fn on<D: Device>(self, program: &'static Program<D>) -> Vec<(RunError, u64)> {
        let config = on(mesh(1, 1, 2), 3, program.plan.config);
        let config = Config { device: DeviceKind::Cuda, transport: self.0, memory_bytes: None, ..config };
        let batch = noise(config);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            let ranks = local::run(
                plan,
                |_| true,
                |transport| {
                    let mut engine = Engine::new(program, transport);
                    let rank = engine.arena().coordinates().data_rank(&config.mesh);
                    engine.initialize(5);
                    let mut steps = (0..).map(|step| {
                        engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets)).err()
                    });
                    let error = steps.find_map(|error| error).expect("no rank goes on alone");
                    (error, pretend::count("cuGraphLaunch"))
                },
            );
            ranks.expect("the memory of a tiny model")
        })
    }
}

/// Numbers of launches are compared up to this: from the second graph on, ranks may be one launch apart.
const LAUNCHES_MAX: u64 = 3;

/// Tests failures in separate processes. Each is a kind of call, the code of the error, and the number of graphs that this rank has
/// launched by then.
fn fail(transport: TransportKind, test: &str, failures: &[(&str, &str, u64)]) {
    if pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        assert!(pretend::is_cuda());
        let ends = Fail(transport).on(cuda_program("zero3"));
        assert_eq!(pretend::held(), 0, "{ends:?}");
        let broken = ends.iter().filter_map(|(error, launches)| match error {
            RunError::Lost(Lost::Device(broken)) => Some((broken, *launches)),
            _ => None,
        });
        let [(broken, launches)] = broken.collect::<Vec<_>>()[..] else { panic!("{ends:?}") };
        let ended = RunError::Lost(Lost::Ended { rank: broken.rank });
        assert!(ends.iter().any(|(error, _)| *error == ended), "{ends:?}");
        assert!(broken.to_string().contains(&format!("--> rank {}, in ", broken.rank)), "{broken}");
        let told = format!("{} {}", broken.failure.code, launches.min(LAUNCHES_MAX));
        assert_eq!(told, std::env::var("EXPECTED").unwrap(), "{ends:?}");
        return;
    }
    for (failure, code, launches) in failures {
        let variables = [("PRETEND_FAIL", *failure), ("EXPECTED", &format!("{code} {launches}"))];
        let output = pretend::again(&format!("graphs::{test}"), &variables);
        assert!(output.status.success(), "{failure}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// If a launch fails, the other rank's graph may be waiting for work that this rank never does. A failure without a name in the
/// driver is Z0440.
#[test]
fn a_graph_that_fails_ends_all_ranks() {
    let failures = [
        ("cuStreamBeginCapture_v2:2", "Z0440", 0),
        ("cuStreamGetCaptureInfo_v3:3", "Z0440", 0),
        ("cuGraphAddBatchMemOpNode:5", "Z0440", 0),
        ("cuStreamUpdateCaptureDependencies_v2:4", "Z0440", 0),
        ("cuStreamEndCapture:1", "Z0440", 0),
        ("cuGraphInstantiateWithFlags:3", "Z0440", 1),
        ("cuGraphUpload:2", "Z0440", 0),
        ("cuGraphLaunch:1", "Z0440", 1),
        ("cuGraphLaunch:9", "Z0440", LAUNCHES_MAX),
        ("cuGraphExecBatchMemOpNodeSetParams:7", "Z0440", 2),
    ];
    fail(TransportKind::Peer, "a_graph_that_fails_ends_all_ranks", &failures);
}

/// The same with NCCL: it fails during the capture, and while the graph runs, when only its state is queried.
#[test]
fn a_graph_of_what_nccl_carries_that_fails_ends_all_ranks() {
    let failures = [
        ("cuStreamEndCapture:1", "Z0440", 0),
        ("cuGraphLaunch:1", "Z0440", 1),
        ("cuGraphLaunch:9", "Z0440", LAUNCHES_MAX),
        ("pretend_enqueue_when:90", "Z0446", 0),
        ("ncclGroupEnd:60", "Z0446", 0),
        ("look:4000", "Z0446", LAUNCHES_MAX),
    ];
    fail(TransportKind::Nccl, "a_graph_of_what_nccl_carries_that_fails_ends_all_ranks", &failures);
}

/// Free bytes of rank 0's device: before the first step, after it, after the third and after the last, while no rank is
/// in a step.
struct Settle(Offload);

impl Settle {
    fn on<D: Device>(self, program: &'static Program<D>) -> [usize; 4] {
        let config = Config { offload: self.0, ..on(mesh(1, 1, 2), 3, program.plan.config) };
        let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, memory_bytes: None, ..config };
        let batch = noise(config);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            let ranks = local::run(plan, Result::is_err, |transport| {
                let mut engine = Engine::new(program, transport);
                let rank = engine.arena().coordinates().data_rank(&config.mesh);
                engine.rehearse()?;
                engine.initialize(5);
                let mut left = Vec::new();
                for step in 0..STEPS {
                    if [0, 1, 3].contains(&step) {
                        left.push(left_between_steps(&mut engine)?);
                    }
                    engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets))?;
                }
                left.push(left_between_steps(&mut engine)?);
                Ok::<_, RunError>(left)
            });
            let left = ranks.expect("the memory of a tiny model").swap_remove(0).expect("steps without faults");
            left.try_into().expect("four looks")
        })
    }
}

/// All ranks meet before and after the query. They exchange numbers twice, so that the next step has the same place for its numbers
/// as without this.
fn left_between_steps<'p, D: Device, T: Transport<'p, D>>(engine: &mut Engine<'p, D, T>) -> Result<usize, RunError> {
    engine.gather_numbers(&[0.0])?;
    let left = pretend::free_bytes();
    engine.gather_numbers(&[0.0])?;
    Ok(left)
}

/// Kernels are loaded before the first step, both graphs exist after the third, and later steps take no memory.
#[test]
fn memory_is_what_it_is_after_the_third_step() {
    let inside = || {
        assert!(pretend::is_cuda());
        for offload in
            [Offload::NONE, Offload { optimizer: TierKind::Host, prefetch: 1, piece_bytes: 8192, ..Offload::NONE }]
        {
            let [before, first, third, last] = Settle(offload).on(cuda_program("zero3"));
            assert_eq!(last, third, "memory that was taken after the third step");
            // A GPU may load kernels when they are first launched.
            if !pretend::is_hardware() {
                assert_eq!(first, before, "memory that was taken by a step of which nothing is kept");
                assert!(third < first, "graphs that take no memory of the pretend device");
            }
        }
    };
    // Other tests allocate memory of the pretend devices too; on a GPU, tests run one after another.
    if pretend::is_hardware() || pretend::is_another() {
        return inside();
    }
    if pretend::libraries().is_some() {
        let output = pretend::again("graphs::memory_is_what_it_is_after_the_third_step", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
