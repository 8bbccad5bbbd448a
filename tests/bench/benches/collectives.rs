//! Micro-benchmark: collectives of two ranks that are threads, in lockstep. Throughput is in bytes of the buffer.

use std::time::Duration;

use bench::claims::size;
use bench::collectives::{BYTES, Collective};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zero_engine::Collectives;
use zero_ranks::transport::{Lost, Shared, local};
use zero_runtime::device::Cpu;
use zero_runtime::plan::Plan;

mod quick;

/// Time of `iterations` collectives on the first rank. If gradients are reduced, an all-reduce first writes all memory that is
/// read: memory that was never written is one page of zeros, which is faster to read.
fn time(plan: &Plan, collective: Collective, iterations: u64) -> Duration {
    let ranks = local::run(plan, Result::is_err, |transport: Shared<'_, Cpu>| {
        let mut ranks = Collectives::new(transport, Cpu::default());
        let reduces = matches!(collective, Collective::ReduceScatter | Collective::AllReduce);
        if reduces {
            Collective::AllReduce.time(&mut ranks, 1)?;
        }
        collective.time(&mut ranks, 1)?;
        collective.time(&mut ranks, iterations)
    });
    let ranks: Result<Vec<Duration>, Lost> = ranks.expect("memory for two buffers").into_iter().collect();
    ranks.expect("no rank fails")[0]
}

fn collectives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("collective of 2 ranks");
    for bytes in BYTES {
        group.throughput(Throughput::Bytes(bytes as u64));
        for collective in Collective::ALL {
            // A reduce-scatter on the plan of an all-reduce is its first half.
            let planned = if collective == Collective::ReduceScatter { Collective::AllReduce } else { collective };
            planned.plan(bytes).with(|plan| {
                group.bench_function(BenchmarkId::new(collective.name(), size(bytes)), |bencher| {
                    bencher.iter_custom(|iterations| time(plan, collective, iterations));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(name = benches; config = quick::config(); targets = collectives);
criterion_main!(benches);
