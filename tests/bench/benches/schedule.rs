//! Micro-benchmark: what an op of the schedule costs where layers compute nothing, on one rank. Throughput is in ops.

use std::time::Duration;

use bench::schedule::{Bare, Tiny, plan, time};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zero_runtime::model::Model;

mod quick;

fn step<M: Model>(criterion: &mut Criterion, stage: u8) {
    let (plan, ops) = plan::<M>(stage);
    let mut group = criterion.benchmark_group("step of empty layers");
    group.throughput(Throughput::Elements(ops as u64));
    group.bench_function(BenchmarkId::new(M::PLAN.model, format!("stage {stage}")), |bencher| {
        bencher.iter_custom(|steps| {
            let seconds = time::<M>(&plan, steps).expect("the memory of a tiny model");
            Duration::from_secs_f64(seconds.iter().sum())
        });
    });
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    step::<Bare>(criterion, 0);
    step::<Tiny>(criterion, 0);
    step::<Tiny>(criterion, 3);
}

criterion_group!(name = benches; config = quick::config(); targets = steps);
criterion_main!(benches);
