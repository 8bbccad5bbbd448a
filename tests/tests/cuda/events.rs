//! Events: a plan needs each of its events. Without any one of them, the proof rejects the plan, and a step has wrong results in
//! some order of the pretend devices' work. So these devices would also reveal a missing event that the proof does not require.

use zero_engine::{Engine, RunError};
use zero_plan::{
    Config, DeviceKind, Offload, Op, OptimizerKind, Plan, PlanBuf, TierKind, TransportKind, prove_streams,
};
use zero_ranks::transport::local;
use zero_runtime::prelude::*;
use zero_tests::pretend;
use zero_tests::training::{HYPER, mesh, noise};

/// The number of different ids that [`noise`] draws.
const VOCAB: usize = 29;

/// The fewest units such that some are gathered ahead, settled during the backward of another, and tied.
#[zero(stage = 3, ranks = 2, sequences = 2, length = 8, device = Cuda)]
struct Small {
    embed: Embedding<VOCAB, 8, 12>,
    first: Linear<12, 12>,
    second: Linear<12, 12>,
    #[tied(embed)]
    head: LmHead<12, VOCAB>,
}

/// Two slots, of which each unit needs one.
const ON_HOST: Offload = Offload { optimizer: TierKind::Host, prefetch: 0, piece_bytes: 8192, ..Offload::NONE };

/// Two steps: one that runs op by op, and one that is captured.
const STEPS: u64 = 2;

/// One of this many orders reveals a missing event: mostly the first, but for some events about one in 20.
const SEEDS: u64 = 256;

/// Bits of all results of two steps on all ranks; an error if a rank itself notices the fault.
fn bits(plan: &Plan, seed: u64) -> Result<Vec<u64>, RunError> {
    pretend::seed(seed);
    let batch = noise(plan.config);
    let ranks = local::run(plan, Result::is_err, |transport| {
        let mut engine = Engine::new(Small::PROGRAM, transport);
        let rank = engine.arena().coordinates().data_rank(&plan.config.mesh);
        engine.initialize(5);
        let mut bits = Vec::new();
        for step in 0..STEPS {
            let report = engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets))?;
            bits.extend([report.loss, report.gradient_norm].map(f64::to_bits));
        }
        for unit in 0..plan.units.len() {
            let parameters = engine.parameters(unit)?.unwrap_or_default();
            bits.extend(parameters.iter().map(|param| u64::from(param.to_bits())));
        }
        Ok(bits)
    });
    let ranks: Result<Vec<_>, _> = ranks.expect("the memory of a tiny model").into_iter().collect();
    ranks.map(|ranks| ranks.concat())
}

/// Whether only the model of places requires an event, because in that model the op after the event reads parameters that the op
/// does not really read: the table of an embedding, in backward, and, below stage 3, the rank's own shard, which a gather leaves in
/// place.
fn is_for_the_model(plan: &Plan, ops: &[Op], before: Op) -> bool {
    let computes = ops.iter().find(|op| matches!(op, Op::Forward { .. } | Op::Backward { .. }));
    let is_of_table = matches!((ops[0], computes), (Op::Wait { unit: 0, .. }, Some(Op::Backward { unit: 0, .. })));
    let is_own_shard = matches!((ops[0], before), (Op::Gather { .. }, Op::Update { .. }));
    is_of_table || is_own_shard && !plan.config.shards_parameters()
}

/// Removes events of the step of each pipeline stage, one at a time. Returns those whose absence no order reveals.
fn unnoticed(config: Config) -> Vec<String> {
    let config = Config { device: DeviceKind::Cuda, memory_bytes: None, ..config };
    let whole = PlanBuf::new(Small::PLAN.model, config, Small::PLAN.units);
    let expected = whole.with(|plan| bits(plan, 0)).expect("steps without faults");
    let (mut unnoticed, mut events) = (Vec::new(), 0);
    let pipeline_stages = whole.pipeline_stages();
    for (pipeline, op) in (0..pipeline_stages.len())
        .flat_map(|pipeline| (0..pipeline_stages[pipeline].step.len()).map(move |op| (pipeline, op)))
    {
        let mut queue = pipeline_stages[pipeline].step_queue.to_vec();
        let Some(before) = queue[op].after.take() else { continue };
        let mut pipeline_stages = whole.pipeline_stages();
        pipeline_stages[pipeline].step_queue = &queue;
        let plan = whole.as_plan(&pipeline_stages);
        let (ops, before) = (&pipeline_stages[pipeline].step[op..], pipeline_stages[pipeline].step[before as usize]);
        // Another event, or a count, may still order them.
        if prove_streams(&plan).is_ok() || is_for_the_model(&plan, ops, before) {
            continue;
        }
        events += 1;
        if (1..=SEEDS).all(|seed| bits(&plan, seed).as_ref() == Ok(&expected)) {
            unnoticed.push(format!("{:?} after {before:?}", ops[0]));
        }
    }
    assert!(events >= 4, "a plan with {events} events");
    unnoticed
}

/// Asserts for each configuration that an event which its plan needs cannot be taken away unnoticed. Runs the calling test,
/// by its name, in another process.
fn assert_noticed(test: &str, configs: &[Config]) {
    if zero_tests::long::is_left_out("event that is taken away") || pretend::libraries().is_none() {
        return;
    }
    if !cfg!(debug_assertions) {
        // If a unit is gathered again too early, its contents are the same as before, unless its release has left other numbers.
        eprintln!("NOT TESTED: only debug builds poison the slots that they release");
        return;
    }
    if !pretend::is_another() {
        // Zeros in fresh memory cost less than a pattern, and are wrong numbers too.
        let variables = [("PRETEND_POISON", "0")];
        let output = pretend::again(&format!("events::{test}"), &variables);
        let said = String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success(), "{said}");
    }
    assert!(pretend::is_cuda());
    for &config in configs {
        assert_eq!(unnoticed(config), Vec::<String>::new());
    }
}

/// A configuration with devices that reach one another.
fn of(config: Config) -> Config {
    Config { prefetch: 1, bucket_bytes: 1, micro_batches: 2, transport: TransportKind::Peer, ..config }
}

/// On one rank, where most events are those of pieces.
#[test]
fn an_event_of_a_tier_that_is_taken_away_is_noticed_by_some_seed() {
    let test = "an_event_of_a_tier_that_is_taken_away_is_noticed_by_some_seed";
    assert_noticed(test, &[of(Config { mesh: mesh(1, 1, 1), offload: ON_HOST, ..Small::PLAN.config.at_stage(0) })]);
}

#[test]
fn an_event_that_is_taken_away_is_noticed_by_some_seed() {
    let nccl = TransportKind::Nccl;
    let configs = [
        of(Config { mesh: mesh(1, 1, 2), ..Small::PLAN.config.at_stage(3) }),
        of(Config { mesh: mesh(1, 1, 2), ..Small::PLAN.config.at_stage(1) }),
        of(Config { mesh: mesh(2, 1, 1), ..Small::PLAN.config.at_stage(0) }),
        of(Config { mesh: mesh(1, 1, 2), optimizer: OptimizerKind::Muon, ..Small::PLAN.config.at_stage(2) }),
        Config { transport: nccl, ..of(Config { mesh: mesh(1, 1, 2), ..Small::PLAN.config.at_stage(3) }) },
        Config { transport: nccl, ..of(Config { mesh: mesh(1, 1, 2), ..Small::PLAN.config.at_stage(2) }) },
    ];
    assert_noticed("an_event_that_is_taken_away_is_noticed_by_some_seed", &configs);
}
