//! Micro-benchmark: the cost of an op of the schedule on one rank, if layers compute nothing. Throughput is in ops.

use std::time::Duration;

use bench::schedule::{Bare, Tiny, plan, time};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zero_core::model::{Model, Program};
use zero_runtime::device::Device;

mod quick;

fn step<D: Device>(program: &'static Program<D>, criterion: &mut Criterion, stage: u8) {
    let (plan, ops) = plan(program, stage);
    let mut group = criterion.benchmark_group("step of empty layers");
    group.throughput(Throughput::Elements(ops as u64));
    group.bench_function(BenchmarkId::new(program.plan.model, format!("stage {stage}")), |bencher| {
        bencher.iter_custom(|steps| {
            let seconds = time(program, &plan, steps).expect("the memory of a tiny model");
            Duration::from_secs_f64(seconds.iter().sum())
        });
    });
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    step(Bare::PROGRAM, criterion, 0);
    step(Tiny::PROGRAM, criterion, 0);
    step(Tiny::PROGRAM, criterion, 3);
}

criterion_group!(name = benches; config = quick::config(); targets = steps);
criterion_main!(benches);
