use zero_plan::config::*;
use zero_plan::*;

fn units(n: usize, tied: bool) -> Vec<Unit> {
    (0..n)
        .map(|i| {
            let t = tied && i + 1 == n;
            let params = [100, 40, 0, 333, 17][i % 5];
            Unit {
                field: "u",
                position: i,
                params: if t { 0 } else { params },
                takes: if t { 50 } else { params },
                source: if t { 0 } else { i },
                saved: 30,
                workspace: 20,
                input: 32,
                output: 32,
                operations: 100 + i,
                ..Unit::NONE
            }
        })
        .collect()
}

#[test]
fn grid() {
    let mut count = 0;
    for pipeline in [1, 2, 3, 4] {
        for order in [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }, Order::Interleaved { chunks: 3 }]
        {
            for (zero, replica) in [(1, 1), (2, 1), (3, 2), (1, 2), (4, 1)] {
                for stage in 0..4 {
                    for mb in [pipeline, 2 * pipeline, 3 * pipeline] {
                        for gather in [Often::PerMicroBatch, Often::PerStep] {
                            for reduce in [Often::PerMicroBatch, Often::PerStep] {
                                for tied in [false, true] {
                                    for bucket_bytes in [1, 1000, usize::MAX] {
                                        for (recompute, params, grads, transport, prefetch) in [
                                            (Recompute::None, Width::F32, Width::F32, Transport::Shm, 0),
                                            (Recompute::Every(2), Width::BF16, Width::F32, Transport::Local, 1),
                                            (Recompute::Every(1), Width::F32, Width::BF16, Transport::Local, 9),
                                        ] {
                                            let config = Config {
                                                mesh: Mesh { pipeline, zero, replica, ..Mesh::of_zero(1) },
                                                order,
                                                stage,
                                                micro_batches: mb,
                                                gather,
                                                reduce,
                                                bucket_bytes,
                                                recompute,
                                                precision: Precision { params, reduce: grads, ..Precision::default() },
                                                transport,
                                                prefetch,
                                                ..Config::PLAIN
                                            };
                                            let buf = PlanBuf::new("x", config, &units(13, tied));
                                            buf.with(|plan| {
                                                if let Err(f) = plan.check() {
                                                    for (s, st) in plan.stages.iter().enumerate() {
                                                        println!("stage {s}");
                                                        for (i, op) in st.step.iter().enumerate() {
                                                            println!("{i} {op:?}");
                                                        }
                                                    }
                                                    panic!("{f:?} {config:?}");
                                                }
                                            });
                                            count += 1;
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{count}");
}
