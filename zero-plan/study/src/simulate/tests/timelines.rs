use super::*;

#[test]
fn each_op_runs_once_and_ops_of_a_rank_follow_one_another() {
    all(|plan, timeline, _| {
        for (lane, pipeline_stage) in timeline.lanes.iter().zip(plan.pipeline_stages) {
            assert_eq!(lane.spans.len(), pipeline_stage.step.len());
            for (op, span) in lane.spans.iter().enumerate() {
                assert_eq!(span.waited_s, span.start_s - lane.before_s(op));
                assert!(span.waited_s >= 0.0 && span.end_s >= span.start_s);
            }
        }
    });
}

/// A mesh with the most ranks: a lane stands for all ranks of a pipeline stage.
#[test]
fn four_thousand_ranks_are_as_many_lanes_as_pipeline_stages() {
    let mesh = Mesh { nodes: 512, zero: 64, replica: 8, pipeline: 8, ..Mesh::of_zero(1) };
    let config = Config { micro_batches: 32, prefetch: 1, ..config(3, mesh) };
    on(GPU, config, 64, |plan, timeline, _| {
        assert_eq!((plan.config.mesh.ranks(), timeline.lanes.len()), (4096, 8));
        assert!(
            timeline
                .lanes
                .iter()
                .zip(plan.pipeline_stages)
                .all(|(lane, pipeline_stage)| lane.spans.len() == pipeline_stage.step.len())
        );
    });
}

#[test]
fn the_parts_of_each_lane_are_the_whole_step() {
    all(|plan, timeline, _| {
        for pipeline in 0..timeline.lanes.len() {
            let parts = timeline.parts(plan, pipeline);
            assert!((parts.sum(|_| true) - timeline.step_s).abs() < 1e-9 * timeline.step_s, "{parts:?}");
        }
    });
}

#[test]
fn the_critical_path_is_as_long_as_the_step_and_has_no_gap() {
    all(|_, timeline, _| {
        let path = timeline.critical_path();
        assert_eq!((path[0].start_s, path[path.len() - 1].end_s), (0.0, timeline.step_s));
        assert!(path.windows(2).all(|pair| pair[0].end_s == pair[1].start_s), "{path:?}");
    });
}

/// For each op of each rank, its simulated end, and the earliest end that the proven order allows, in nanoseconds.
fn ends(plan: &Plan, timeline: &Timeline, hardware: &Hardware) -> Vec<(f64, f64)> {
    let costs = cost::Costs::new(plan, hardware, 1);
    let cost = |op: &Op| {
        let pipeline = op.unit().map_or(0, |unit| plan.placements[unit].pipeline_stage);
        let at = zero_plan::Coordinates { zero: 0, replica: 0, pipeline };
        (costs.seconds(at, *op) * 1e9) as u64
    };
    let earliest = makespan(plan, Pass::Train, &cost).unwrap().ends;
    let of_rank = |(rank, ends): (usize, Vec<u64>)| {
        let spans = &timeline.lanes[plan.config.mesh.coordinates(rank).pipeline].spans;
        assert_eq!(spans.len(), ends.len());
        spans.iter().zip(ends).map(|(span, end)| (span.end_s * 1e9, end as f64)).collect::<Vec<_>>()
    };
    earliest.into_iter().enumerate().flat_map(of_rank).collect()
}

#[test]
fn no_op_ends_before_the_order_that_is_proven_allows_it() {
    all(|plan, timeline, hardware| {
        let ends = ends(plan, timeline, hardware);
        assert!(ends.iter().any(|&(_, earliest)| earliest > 0.0));
        assert!(ends.iter().all(|&(end, earliest)| earliest <= end + 1.0), "{ends:?}");
    });
}

/// With free links, and under all orders of a pipeline, even if it spans two hosts. Each unit takes longer than the
/// previous unit, so that a pipeline stage also waits until the next pipeline stage has taken its parcels.
#[test]
fn with_free_links_each_op_ends_as_soon_as_the_order_that_is_proven_allows_it() {
    let free = free();
    let square = Mesh { zero: 2, replica: 2, pipeline: 2, ..Mesh::of_zero(1) };
    let pipeline = Mesh { nodes: 2, zero: 2, pipeline: 4, ..Mesh::of_zero(1) };
    let hosts = |zero, replica| {
        let order = [Axis::Pipeline, Axis::Zero, Axis::Replica];
        let mesh = Mesh { nodes: 2, zero, replica, pipeline: 4, order };
        Config { transport: TransportKind::Cluster, micro_batches: 4, ..config(2, mesh) }
    };
    let stages = (0..4).map(|stage| Config { micro_batches: 4, ..config(stage, square) });
    let orders = [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }].map(|order| Config {
        order,
        micro_batches: 8,
        ..config(1, pipeline)
    });
    for config in stages.chain(orders).chain([hosts(4, 1), hosts(1, 4)]) {
        let units: Vec<_> =
            (1..).zip(units(8)).map(|(nth, it)| Unit { operations: nth * it.operations, ..it }).collect();
        on_units(&free, config, &units, |plan, timeline, hardware| {
            let ends = ends(plan, timeline, hardware);
            let step = timeline.step_s * 1e9;
            assert!(ends.iter().all(|&(end, earliest)| (end - earliest).abs() < 1.0 + 1e-3 * step), "{ends:?}");
        });
    }
}

/// A pipeline of 4 stages, each of 2 units that take 1 us forward and 2 us backward.
#[test]
fn a_pipeline_waits_while_it_fills_and_drains() {
    let free = free();
    let mesh = Mesh { nodes: 2, zero: 2, pipeline: 4, ..Mesh::of_zero(1) };
    for (order, chunks) in [(Order::GPipe, 1.0), (Order::OneFOneB, 1.0), (Order::Interleaved { chunks: 2 }, 2.0)] {
        on(&free, Config { order, micro_batches: 8, ..config(1, mesh) }, 8, |plan, timeline, _| {
            // Three turns of a chunk, forward and backward: Narayanan et al., 2021, section 2.2.
            let bubble_us = 3.0 * 6.0 / chunks;
            for pipeline in 0..4 {
                let bubble_s = timeline.parts(plan, pipeline).bubble_s();
                assert!((bubble_s * 1e6 - bubble_us).abs() < 1e-3, "{order:?} {pipeline} {bubble_s}");
            }
        });
    }
}

/// One rank of two sends half of 1024 bytes over 1 GB/s for each gather: 0.512 us. The first unit's 1 us of computation
/// hides the second gather.
#[test]
fn prefetch_hides_what_fits_behind_computation() {
    // The last unit stays gathered, so the forward pass gathers three units and the backward pass two. Each of these
    // two waits for the link until the gradients of the previous unit have left.
    for (prefetch, times) in [(0, 3.0 + 2.0 * 2.0), (1, 1.0)] {
        on(GPU, Config { prefetch, ..config(3, Mesh::of_zero(2)) }, 3, |plan, timeline, _| {
            let parts = timeline.parts(plan, 0);
            let gathers = parts.sum(|part| matches!(part, StepPart::Exposed(Flow::Gather, LinkKind::Node)));
            assert!((gathers * 1e6 - times * 0.512).abs() < 1e-6, "{gathers} {times} {parts:?}");
        });
    }
}

#[test]
fn ranks_share_the_cores_of_their_node() {
    let cpu = cpu(2);
    let step_us = |ranks| {
        let mut step = 0.0;
        let hardware = Hardware::parse(&cpu).unwrap();
        let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
        PlanBuf::new("T", config, &units(1)).with(|plan| step = simulate(plan, &hardware).unwrap().step_s * 1e6);
        step.round()
    };
    // Each rank has two threads, one thread, or half a core.
    assert_eq!([1, 2, 4].map(step_us), [2.0, 3.0, 6.0]);
}

/// The measurements of a plan's units if each op takes this long, on ranks with this many threads.
pub(super) fn measured(plan: &Plan, [ranks, threads]: [usize; 2], time: OpTime) -> impl Iterator<Item = MeasuredUnit> {
    let OpTime { seconds, core_seconds } = time;
    let op = |&op| MeasuredOp { op, seconds, core_seconds: Some(core_seconds) };
    let units = measured_units(plan, threads, [plan.pipeline_stages[0].step.iter().map(op)]);
    units.into_iter().map(move |unit| MeasuredUnit { ranks, ..unit })
}

/// Milliseconds of a step of this many replicas with two threads each on two cores. Alone, a rank took `seconds` for
/// each op, in which it kept cores busy for `core_seconds`.
fn step_of_two_threads_ms(replicas: usize, [seconds, core_seconds]: [f64; 2]) -> f64 {
    let mut hardware = Hardware::parse(&cpu(2)).unwrap();
    let config = config(0, Mesh { replica: replicas, ..Mesh::of_zero(1) });
    let mut step_s = 0.0;
    PlanBuf::new("T", config, &units(1)).with(|plan| {
        hardware.measured.extend(measured(plan, [1, 2], OpTime { seconds, core_seconds }));
        step_s = simulate_with(plan, &hardware, 2).unwrap().step_s;
    });
    (step_s * 1e3).round()
}

/// Two threads that are no faster than one keep one core busy, so two such ranks can share two cores freely.
#[test]
fn threads_that_wait_for_one_another_leave_their_cores_to_others() {
    // Forward, backward and update.
    for (times, alone, two) in
        [([0.008, 0.008], 24.0, 24.0), ([0.004, 0.008], 12.0, 24.0), ([0.006, 0.009], 18.0, 27.0)]
    {
        assert_eq!([1, 2].map(|replicas| step_of_two_threads_ms(replicas, times)), [alone, two], "{times:?}");
    }
}

/// Four ranks of two threads on two cores use one core each, so a rank's threads take turns even while others wait.
#[test]
fn threads_of_a_rank_that_keeps_to_a_core_take_turns_with_it() {
    // Two ranks share each core: 8 ms of a core's work for each op.
    assert_eq!(step_of_two_threads_ms(4, [0.004, 0.008]), 48.0);
    let cpu = Hardware::parse(&cpu(2)).unwrap();
    let pipeline = Mesh { pipeline: 4, ..Mesh::of_zero(1) };
    PlanBuf::new("T", Config { micro_batches: 1, ..config(0, pipeline) }, &units(4)).with(|plan| {
        let [one, two] = [1, 2].map(|threads| simulate_with(plan, &cpu, threads).unwrap().step_s);
        assert!((one / two - 1.0).abs() < 1e-9, "{one} {two}");
    });
}

/// A thread that looks for work until the other thread has finished keeps its core from other ranks.
#[test]
fn threads_that_are_busy_without_use_take_their_cores_from_others() {
    assert_eq!([1, 2].map(|replicas| step_of_two_threads_ms(replicas, [0.008, 0.016])), [24.0, 48.0]);
}

/// AdamW's pass over memory is no faster with two threads, but Muon's products are, so two ranks take turns for products.
#[test]
fn products_of_an_update_keep_all_threads_busy() {
    let cpu = cpu(2);
    let update_us = |ranks| {
        let mut hardware = Hardware::parse(&cpu).unwrap();
        let mesh = Mesh { replica: ranks, ..Mesh::of_zero(1) };
        let config = Config { optimizer: OptimizerKind::Muon, ..config(0, mesh) };
        let mut took = 0.0;
        PlanBuf::new("T", config, &units(1)).with(|plan| {
            let one_core = |seconds| OpTime { seconds, core_seconds: seconds };
            let units = measured(plan, [1, 2], one_core(1e-6));
            hardware.measured.extend(units.map(|it| MeasuredUnit { update: one_core(4e-6), ..it }));
            let timeline = simulate_with(plan, &hardware, 2).unwrap();
            let ops = plan.pipeline_stages[0].step.iter().zip(&timeline.lanes[0].spans);
            let updates = ops.filter(|(op, _)| matches!(op, Op::Update { .. }));
            took = updates.map(|(_, span)| span.end_s - span.start_s).sum::<f64>() * 1e6;
        });
        took
    };
    // 4 us on one core, and 2.5 us on two cores for 5000 operations at 1 GFLOP/s a thread. Two ranks have one core
    // each, and need 4 x 1 + 2.5 x 2 us of it.
    assert!((update_us(1) - 6.5).abs() < 1e-6, "{}", update_us(1));
    assert!((update_us(2) - 9.0).abs() < 1e-6, "{}", update_us(2));
}

/// Threads that take turns cost the core time that was measured while they took turns, however long they were interrupted.
#[test]
fn threads_that_take_turns_cost_what_was_measured_of_them() {
    let step_ms = |[ranks, threads]: [usize; 2], alone, in_turns, change: fn(&mut Hardware)| {
        let mut hardware = Hardware::parse(&cpu(2)).unwrap();
        let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
        let mut step = 0.0;
        PlanBuf::new("T", config, &units(1)).with(|plan| {
            for (all, time) in [(2, alone), (4, in_turns)] {
                hardware.measured.extend(measured(plan, [all / threads, threads], time));
            }
            change(&mut hardware);
            step = simulate_with(plan, &hardware, threads).unwrap().step_s * 1e3;
        });
        step.round()
    };
    let [alone, two] = [0.008, 0.004].map(|seconds| OpTime { seconds, core_seconds: 0.008 });
    // Forward, backward and update. In turns, cores work a quarter longer for each, and four threads have half a core
    // each, whether they belong to four ranks or to two.
    for seconds in [0.010, 0.020, 0.090] {
        let in_turns = OpTime { seconds, core_seconds: 0.010 };
        assert_eq!([1, 2, 4].map(|ranks| step_ms([ranks, 1], alone, in_turns, |_| ())), [24.0, 24.0, 60.0]);
        assert_eq!([1, 2].map(|ranks| step_ms([ranks, 2], two, in_turns, |_| ())), [12.0, 30.0]);
        assert_eq!(step_ms([4, 1], alone, in_turns, compute_faster), (20.0 + 40.0 / 1.1_f64).round());
    }
}

/// A sum of 1024 bytes over two ranks with 4 threads each: a rank reads its half of both and writes it, 1536 bytes.
#[test]
fn sums_take_what_was_measured_of_them() {
    let cpu = GPU.replace("kind: Gpu", "kind: Cpu");
    let settles_s = |bandwidth: &str| {
        let mut settles_s = 0.0;
        let text = cpu.replace("bandwidth: 1e18", bandwidth);
        on(&text, config(2, Mesh::of_zero(2)), 1, |plan, timeline, _| {
            let ops = plan.pipeline_stages[0].step.iter().zip(&timeline.lanes[0].spans);
            let settles = ops.filter(|(op, _)| matches!(op, Op::Settle { .. }));
            settles_s += settles.map(|(_, span)| span.end_s - span.start_s).sum::<f64>();
        });
        settles_s
    };
    for (figures, us) in [("bandwidth: 1e9", 0.384), ("bandwidth: 1e9, sums: 5e8", 0.768)] {
        assert!((settles_s(figures) * 1e6 - us).abs() < 1e-9, "{figures}: {}", settles_s(figures));
    }
}

/// With sums half as fast, each op that sums terms takes twice as long, and no other op does.
#[test]
fn every_op_that_sums_takes_what_was_measured_of_sums() {
    let mesh = Mesh { nodes: 2, zero: 2, replica: 4, ..Mesh::of_zero(1) };
    let config = Config { transport: TransportKind::Cluster, ..config(2, mesh) };
    let mut tied = units(3);
    tied[2].source = 0;
    let on = |bandwidth: &str| {
        let text = GPU.replace("kind: Gpu", "kind: Cpu").replace("bandwidth: 1e18", bandwidth);
        Hardware::parse(&text).unwrap()
    };
    let (alike, slower) = (on("bandwidth: 1e9"), on("bandwidth: 1e9, sums: 5e8"));
    PlanBuf::new("T", config, &tied).with(|plan| {
        let seconds =
            |hardware: &Hardware, op| Costs::new(plan, hardware, 1).seconds(plan.config.mesh.coordinates(0), op);
        let mut sums = BTreeSet::new();
        for &op in plan.pipeline_stages[0].step {
            let times = seconds(&slower, op) / seconds(&alike, op);
            if times > 1.0 {
                assert!((times - 2.0).abs() < 1e-9, "{}: {times}", op.name());
                sums.insert(op.name());
            }
        }
        assert_eq!(sums, BTreeSet::from(["combine", "fold", "settle", "subtotal"]));
    });
}

/// On few cores, the bubble of a pipeline is filled by other ranks, so that a step takes as long as the work of all
/// pipeline stages together on these cores.
#[test]
fn waiting_takes_no_core() {
    let cpu = cpu(1);
    let mesh = Mesh { pipeline: 4, ..Mesh::of_zero(1) };
    on(&cpu, Config { micro_batches: 4, ..config(0, mesh) }, 4, |_, timeline, _| {
        assert!((timeline.step_s * 1e6 - 4.0 * 4.0 * 3.0).abs() < 1e-3, "{}", timeline.step_s);
    });
}

/// Ranks wait once for each of the sum over replicas, its spread and the agreement, however many ranks there are.
#[test]
fn ranks_that_share_memory_go_on_once_they_are_woken() {
    let cpu = |handover| {
        let node = format!("devices: 2{handover}");
        GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", &node)
    };
    let (asleep, awake) = (cpu(", handover: (apart: 1e-3, turns: 1e-2)"), cpu(""));
    for (ranks, handover_s, expected) in [(1, 1e-3, 0.0), (2, 1e-3, 3.0), (4, 1e-2, 3.0)] {
        let step_s = |text: &str| {
            let mut step_s = 0.0;
            let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
            on(text, config, 1, |_, timeline, _| step_s = timeline.step_s);
            step_s
        };
        let waits: f64 = (step_s(&asleep) - step_s(&awake)) / handover_s;
        assert!((waits - expected).abs() < 1e-6, "{ranks} ranks wait {waits} times");
    }
}

/// On a GPU. A forward does 1000 operations, a quarter of them attention's, and a backward twice as many.
#[test]
fn attention_has_its_own_rate() {
    let config = config(0, Mesh::of_zero(1));
    let config = Config { precision: Precision { compute: Width::BF16, ..config.precision }, ..config };
    let of = |text: &str| {
        let mut step_s = 0.0;
        let unit = Unit { attending: 250, ..units(1)[0] };
        on_units(text, config, &[unit], |_, timeline, _| step_s = timeline.step_s);
        step_s
    };
    let slower = |change: &str| of(&GPU.replace("matmul", &format!("{change}, matmul"))) - of(GPU);
    let attention = slower("attention: 0.1");
    assert!((attention / (3.0 * 250.0 / 1e9 * 9.0) - 1.0).abs() < 1e-6, "{attention}");
}

/// On a GPU, an op of a unit starts all its kernels, and any other op starts one kernel. A head that leaves its forward to
/// its backward starts none for forward, and a measured time includes the starts.
#[test]
fn kernels_begin_one_after_another() {
    let text = GPU.replace("matmul", "op: 1e-3, matmul");
    let units = [units(1)[0], Unit { attending: 250, ..units(2)[1] }, Unit { losses_in_backward: true, ..units(3)[2] }];
    let starts = |hardware: &Hardware| {
        let mut starts = Vec::new();
        PlanBuf::new("T", Config { recompute: Recompute::Fields(&["a"]), ..config(0, Mesh::of_zero(1)) }, &units).with(
            |plan| {
                let costs = Costs::new(plan, hardware, 1);
                for op in plan
                    .of_rank(0)
                    .step
                    .iter()
                    .filter(|op| matches!(op, Op::Forward { .. } | Op::Recompute { .. } | Op::Backward { .. }))
                {
                    starts.push((*op, (1e3 * costs.seconds(plan.config.mesh.coordinates(0), *op)).round() as usize));
                }
            },
        );
        starts
    };
    let mut hardware = Hardware::parse(&text).unwrap();
    for (op, begun) in starts(&hardware) {
        let PassKernels { forward, backward } = if op.unit() == Some(1) { LAYER_KERNELS } else { OTHER_KERNELS };
        let expected = match op {
            Op::Backward { .. } => backward,
            _ if op.unit() == Some(2) => 0,
            _ => forward,
        };
        assert_eq!(begun, expected, "{op:?}");
    }
    let time = OpTime { seconds: 1e-9, core_seconds: 1e-9 };
    hardware.measured =
        PlanBuf::new("T", config(0, Mesh::of_zero(1)), &units).with(|plan| measured(plan, [1, 1], time).collect());
    assert!(starts(&hardware).iter().all(|(_, begun)| *begun == 1));
}
