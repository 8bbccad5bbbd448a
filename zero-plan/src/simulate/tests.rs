use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, DeviceKind, OptimizerKind, Order, TransportKind};
use crate::hardware::{MeasuredUnit, measured_units};
use crate::mesh::{Axis, Mesh};
use crate::pipeline::Pass;
use crate::schedule::Op;
use crate::traffic::Traffic;
use crate::unit::{Matrices, Unit};

/// Operations and bytes take whole microseconds on it: 1 GFLOP/s, 1 GB/s.
const GPU: &str = r#"(name: "x", device: (name: "d", kind: Gpu, memory: GB(80), matmul: (f32: 1e9, bf16: 1e9), bandwidth: 1e18),
    node: (devices: 8, link: (bandwidth: 1e9, latency: 0.0)), network: (bandwidth: 1e8, latency: 1e-3, links: 4))"#;

fn units(count: usize) -> Vec<Unit> {
    let matrices = Matrices { room_bytes: 64, operations: 5000, operations_max: 5000 };
    let unit = Unit { params: 256, takes: 256, operations: 1000, input_bytes: 512, output_bytes: 512, ..Unit::NONE };
    let unit = Unit { matrices, ..unit };
    (0..count).map(|index| Unit { field: "a", index: Some(index), source: index, ..unit }).collect()
}

fn config(stage: u8, mesh: Mesh) -> Config {
    Config { mesh, bucket_bytes: 0, transport: TransportKind::Local, ..Config::PLAIN.at_stage(stage) }
}

fn on(text: &str, config: Config, count: usize, check: impl FnMut(&Plan, &Timeline, &Hardware)) {
    on_units(text, config, &units(count), check);
}

fn on_units(text: &str, config: Config, units: &[Unit], mut check: impl FnMut(&Plan, &Timeline, &Hardware)) {
    let hardware = Hardware::parse(text).unwrap();
    PlanBuf::new("T", config, units).with(|plan| {
        let timeline = simulate(plan, &hardware).unwrap();
        check(plan, &timeline, &hardware);
    });
}

/// All kinds of plans: stages, replicas, pipelines, micro-batches, and a mesh across nodes.
fn all(check: impl Fn(&Plan, &Timeline, &Hardware)) {
    let across = Mesh { nodes: 2, zero: 4, replica: 2, ..Mesh::of_zero(1) };
    let pipeline = Mesh { nodes: 2, zero: 2, pipeline: 4, ..Mesh::of_zero(1) };
    for mesh in [Mesh::of_zero(1), Mesh::of_zero(4), across, pipeline] {
        for stage in 0..4 {
            for order in [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }] {
                let is_interleaved = matches!(order, Order::Interleaved { .. });
                if is_interleaved && mesh.pipeline == 1 {
                    continue;
                }
                let prefetch = usize::from(stage == 3);
                for optimizer in [OptimizerKind::AdamW, OptimizerKind::Muon] {
                    let config = Config { order, micro_batches: 4, prefetch, optimizer, ..config(stage, mesh) };
                    on(GPU, config, 8, &check);
                }
            }
        }
    }
}

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

#[test]
fn what_is_sent_is_what_the_plan_counts() {
    all(|plan, timeline, _| {
        for (number, (lane, pipeline_stage)) in timeline.lanes.iter().zip(plan.pipeline_stages).enumerate() {
            let sent: usize = lane.transfers.iter().map(|transfer| transfer.bytes).sum();
            let counted = crate::traffic::Traffic::of(plan, plan.first_rank(number), pipeline_stage.step);
            assert_eq!(sent, counted.total_bytes() - counted.agree_bytes);
        }
    });
}

/// As many ranks as a mesh may have: a lane stands for all ranks of a pipeline stage.
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
fn transfers_of_a_link_follow_one_another() {
    all(|_, timeline, _| {
        for lane in &timeline.lanes {
            for link in LinkKind::ALL.into_iter().filter(|&link| link != LinkKind::Memory) {
                let own: Vec<_> = lane.transfers.iter().filter(|transfer| transfer.link == link).collect();
                assert!(own.windows(2).all(|pair| pair[1].start_s >= pair[0].free_s));
                assert!(
                    own.iter().all(|it| it.asked_s <= it.start_s && it.start_s <= it.free_s && it.free_s <= it.end_s)
                );
            }
        }
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

/// When each op of each rank ends under links, and the earliest at which the order that is proven allows it, in nanoseconds.
fn ends(plan: &Plan, timeline: &Timeline, hardware: &Hardware) -> Vec<(f64, f64)> {
    let costs = cost::Costs::new(plan, hardware, 1);
    let cost = |op: &Op| {
        let pipeline = op.unit().map_or(0, |unit| plan.placements[unit].pipeline_stage);
        let at = crate::mesh::Coordinates { zero: 0, replica: 0, pipeline };
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

/// Without links, and under all orders of a pipeline, also where its ends are on two hosts. Each unit takes longer than the one
/// before it, so that a pipeline stage also waits until the next one has taken what it has sent.
#[test]
fn with_free_links_each_op_ends_as_soon_as_the_order_that_is_proven_allows_it() {
    let free =
        GPU.replace("1e8, latency: 1e-3", "1e18, latency: 0.0").replace("bandwidth: 1e9, lat", "bandwidth: 1e18, lat");
    let square = Mesh { zero: 2, replica: 2, pipeline: 2, ..Mesh::of_zero(1) };
    let pipeline = Mesh { nodes: 2, zero: 2, pipeline: 4, ..Mesh::of_zero(1) };
    let hosts = |zero, replica| {
        let order = [Axis::Pipeline, Axis::Zero, Axis::Replica];
        let mesh = Mesh { nodes: 2, zero, replica, pipeline: 4, order };
        Config { transport: TransportKind::Cluster, micro_batches: 4, ..config(2, mesh) }
    };
    let stages = (0..4).map(|stage| Config { micro_batches: 4, ..config(stage, square) });
    let orders = [Order::GPipe, Order::OneFOneB, Order::Interleaved { chunks: 2 }]
        .map(|order| Config { order, micro_batches: 8, ..config(1, pipeline) });
    for config in stages.chain(orders).chain([hosts(4, 1), hosts(1, 4)]) {
        let units: Vec<_> = (1..).zip(units(8)).map(|(nth, it)| Unit { operations: nth * it.operations, ..it }).collect();
        on_units(&free, config, &units, |plan, timeline, hardware| {
            let ends = ends(plan, timeline, hardware);
            let step = timeline.step_s * 1e9;
            assert!(ends.iter().all(|&(end, earliest)| (end - earliest).abs() < 1.0 + 1e-3 * step), "{ends:?}");
        });
    }
}

#[test]
fn memory_over_time_has_the_peak_of_the_plan() {
    all(|plan, timeline, hardware| {
        let prediction = Prediction::of(plan, hardware, None).unwrap();
        crate::documented::assert_documented(&serde_json::to_value(&prediction).unwrap());
        for (pipeline, own) in prediction.pipeline_stages.iter().enumerate() {
            let PeakPrediction { at_s, bytes, .. } = own.peak;
            assert_eq!(bytes, plan.peak(pipeline).total_bytes());
            assert!(own.in_use.contains(&(at_s, bytes)) && at_s < timeline.step_s);
            assert!(own.in_use.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 != pair[1].1));
        }
    });
}

/// The path of a prediction is the chain of causes, with the units and micro-batches of its ops, and its text has the peak.
#[test]
fn a_prediction_has_its_critical_path_op_by_op() {
    all(|plan, timeline, hardware| {
        let prediction = Prediction::of(plan, hardware, None).unwrap();
        let path = &prediction.path;
        assert_eq!((path[0].start_s, path[path.len() - 1].end_s), (0.0, timeline.step_s));
        assert!(path.windows(2).all(|pair| pair[0].end_s == pair[1].start_s));
        for (told, segment) in path.iter().zip(timeline.critical_path()) {
            assert_eq!((told.start_s, told.end_s), (segment.start_s, segment.end_s));
            let Cause::Op { lane, op } = segment.what else { continue };
            let op = plan.pipeline_stages[lane].step[op];
            assert_eq!(plan.config.mesh.coordinates(told.rank).pipeline, lane);
            assert_eq!(told.micro_batch, op.micro_batch());
            assert_eq!(told.unit, op.unit().map(|unit| format!("a[{unit}]")));
        }
        let sum: f64 = prediction.critical.iter().map(|kind| kind.seconds).sum();
        assert!((sum / timeline.step_s - 1.0).abs() < 1e-9);
        let text = PredictionText(&prediction).to_string();
        let rows = text.split("most of the arena in use").nth(1).unwrap().lines().skip(1).take(8);
        let rows: Vec<&str> = rows.collect();
        assert!(rows.iter().all(|row| row.contains(" to ")), "{text}");
        let peak = crate::message::Bytes(prediction.pipeline_stages[0].peak.bytes).to_string();
        assert!(rows.iter().any(|row| row.contains(&peak)), "{peak}: {text}");
    });
}

/// A pipeline of 4 stages, each of 2 units that take 1 us forward and 2 us back.
#[test]
fn a_pipeline_waits_while_it_fills_and_drains() {
    let free =
        GPU.replace("1e8, latency: 1e-3", "1e18, latency: 0.0").replace("bandwidth: 1e9, lat", "bandwidth: 1e18, lat");
    let mesh = Mesh { nodes: 2, zero: 2, pipeline: 4, ..Mesh::of_zero(1) };
    for (order, chunks) in [(Order::GPipe, 1.0), (Order::OneFOneB, 1.0), (Order::Interleaved { chunks: 2 }, 2.0)] {
        on(&free, Config { order, micro_batches: 8, ..config(1, mesh) }, 8, |plan, timeline, _| {
            // Three turns of a chunk, forward and back: Narayanan et al., 2021, section 2.2.
            let bubble_us = 3.0 * 6.0 / chunks;
            for pipeline in 0..4 {
                let bubble_s = timeline.parts(plan, pipeline).bubble_s();
                assert!((bubble_s * 1e6 - bubble_us).abs() < 1e-3, "{order:?} {pipeline} {bubble_s}");
            }
        });
    }
}

/// One rank of two sends half of 1024 bytes over 1 GB/s for each gather: 0.512 us. Computation hides the second behind the
/// first unit's 1 us.
#[test]
fn prefetch_hides_what_fits_behind_computation() {
    // The last unit stays gathered, so the forward pass gathers three units and the backward pass two, each of which waits for
    // the link until the gradients of the unit before have left.
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
    let cpu =
        GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", "devices: 2");
    let step_us = |ranks| {
        let mut step = 0.0;
        let hardware = Hardware::parse(&cpu).unwrap();
        let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
        PlanBuf::new("T", config, &units(1)).with(|plan| step = simulate(plan, &hardware).unwrap().step_s * 1e6);
        step.round()
    };
    // Two threads, one each, and half a core each.
    assert_eq!([1, 2, 4].map(step_us), [2.0, 3.0, 6.0]);
}

/// Two threads that are no faster than one keep one core busy: two such ranks do not hinder one another on two cores.
#[test]
fn threads_that_wait_for_one_another_leave_their_cores_to_others() {
    let cpu =
        GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", "devices: 2");
    let step_ms = |ranks, by_two: f64| {
        let mut hardware = Hardware::parse(&cpu).unwrap();
        let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
        let mut step = 0.0;
        PlanBuf::new("T", config, &units(1)).with(|plan| {
            for (threads, s) in [(1, 0.008), (2, by_two)] {
                let ops = plan.pipeline_stages[0].step.iter().map(|&op| (op, s));
                let units = measured_units(plan, threads, [ops]);
                hardware.measured.extend(units.into_iter().map(|unit| MeasuredUnit { ranks: 2 / threads, ..unit }));
            }
            step = simulate_with(plan, &hardware, 2).unwrap().step_s * 1e3;
        });
        step.round()
    };
    // Forward, backward and update.
    assert_eq!([step_ms(1, 0.008), step_ms(2, 0.008)], [24.0, 24.0]);
    assert_eq!([step_ms(1, 0.004), step_ms(2, 0.004)], [12.0, 24.0]);
    assert_eq!([step_ms(1, 0.006), step_ms(2, 0.006)], [18.0, 24.0]);
}

/// What was measured of threads that took turns counts where they do, without the time in which others had the cores.
#[test]
fn threads_that_take_turns_cost_what_was_measured_of_them() {
    let cpu =
        GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", "devices: 2");
    let mut hardware = Hardware::parse(&cpu).unwrap();
    let mut step_ms = |ranks, in_turns_s| {
        let config = config(0, Mesh { replica: ranks, ..Mesh::of_zero(1) });
        let mut step = 0.0;
        PlanBuf::new("T", config, &units(1)).with(|plan| {
            hardware.measured.clear();
            for (ranks, s) in [(2, 0.008), (4, in_turns_s)] {
                let ops = plan.pipeline_stages[0].step.iter().map(|&op| (op, s));
                let units = measured_units(plan, 1, [ops]);
                hardware.measured.extend(units.into_iter().map(|unit| MeasuredUnit { ranks, ..unit }));
            }
            step = simulate_with(plan, &hardware, 1).unwrap().step_s * 1e3;
        });
        step.round()
    };
    // Forward, backward and update. With four ranks, half a core each costs a quarter more than that: each takes twice 10 ms.
    assert_eq!([1, 2, 4].map(|ranks| step_ms(ranks, 0.020)), [24.0, 24.0, 60.0]);
    // None was interrupted, so that nothing of it was another one's.
    assert_eq!(step_ms(4, 0.008), 48.0);
}

/// The bubble of a pipeline on few cores is filled by other ranks: 4 pipeline stages on 2 cores take as long as the work of
/// all of them on two.
#[test]
fn waiting_takes_no_core() {
    let cpu =
        GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", "devices: 1");
    let mesh = Mesh { pipeline: 4, ..Mesh::of_zero(1) };
    on(&cpu, Config { micro_batches: 4, ..config(0, mesh) }, 4, |_, timeline, _| {
        assert!((timeline.step_s * 1e6 - 4.0 * 4.0 * 3.0).abs() < 1e-3, "{}", timeline.step_s);
    });
}

/// The sum over replicas, its spread and the agreement are each waited for once, however many ranks there are.
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

#[test]
fn rings_and_trees_take_what_the_formulas_say() {
    let route = Route { link: LinkKind::Node, bandwidth: 1e9, latency: 1e-6, ranks: 8, hops: 7 };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    near(route.ring_s(8000), 7e-6 + 7e-6);
    // A gather of 7/8 and three rounds of all 8000 bytes.
    near(route.tree_s(8000), 2.0 * 3e-6 + 7e-6 + 3.0 * 8e-6);
    // Each rank sends what the ring sends.
    near(route.busy_s(7000) + route.latency_s(), route.ring_s(8000));
}

/// Of two nodes of four ranks, `zero` along all eight is bound by what a node sends over its four links of 0.1 GB/s; along
/// four within a node by the node's links; and replicas across share the network four ways.
#[test]
fn what_crosses_nodes_takes_the_network() {
    let hardware = Hardware::parse(GPU).unwrap();
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
    let mesh = Mesh { nodes: 2, ..Mesh::of_zero(8) };
    let wide = Routes::new(&hardware, &mesh).collective(Axis::Zero, 0);
    assert_eq!((wide.link, wide.ranks, wide.hops), (LinkKind::Network, 8, 7));
    near(wide.bandwidth, 4e8);
    let mesh = Mesh { nodes: 2, zero: 4, replica: 2, ..Mesh::of_zero(1) };
    let routes = Routes::new(&hardware, &mesh);
    let (inside, across) = (routes.collective(Axis::Zero, 0), routes.collective(Axis::Replica, 0));
    assert_eq!((inside.link, across.link), (LinkKind::Node, LinkKind::Network));
    near(inside.bandwidth, 1e9);
    near(across.bandwidth, 1e8);
}

/// What MPI carries is what the plan counts, however hosts cut the axes.
#[test]
fn what_goes_between_hosts_is_what_the_plan_counts() {
    let orders = [Axis::ALL, [Axis::Replica, Axis::Pipeline, Axis::Zero]];
    // Of two nodes, each has both halves of two replicas, one replica, or two of four.
    for ((nodes, zero, replica), order, stage) in [(2, 4, 2), (4, 4, 2), (8, 4, 2), (2, 2, 4)]
        .into_iter()
        .flat_map(|mesh| orders.into_iter().flat_map(move |order| (0..4).map(move |stage| (mesh, order, stage))))
    {
        let mesh = Mesh { nodes, zero, replica, pipeline: 1, order };
        let config = Config { transport: TransportKind::Cluster, ..config(stage, mesh) };
        on(&GPU.replace("kind: Gpu", "kind: Cpu"), config, 3, |plan, timeline, _| {
            let carried = timeline.lanes[0].transfers.iter().filter(|it| it.link == LinkKind::Network);
            let counted = Traffic::between_hosts(plan, 0, plan.pipeline_stages[0].step);
            assert_eq!(carried.map(|it| it.bytes).sum::<usize>(), counted.total_bytes() - counted.agree_bytes);
        });
    }
}

/// NCCL gathers in rings, but terms of sums go to the rank that sums them.
#[test]
fn what_gpus_of_several_hosts_sum_goes_straight() {
    for stage in 0..4 {
        let mesh = Mesh { nodes: 2, zero: 4, replica: 2, ..Mesh::of_zero(1) };
        for order in [Axis::ALL, [Axis::Replica, Axis::Pipeline, Axis::Zero]] {
            let (device, transport) = (DeviceKind::Cuda, TransportKind::Nccl);
            let config = Config { device, transport, ..config(stage, Mesh { order, ..mesh }) };
            on(GPU, config, 3, |plan, timeline, _| {
                let straight = timeline.lanes[0].transfers.iter().filter(|it| {
                    it.link == LinkKind::Network && [Flow::Reduce, Flow::ReplicaReduce].contains(&it.flow)
                });
                let counted = Traffic::between_hosts(plan, 0, plan.pipeline_stages[0].step);
                let counted = counted.reduce_bytes + counted.replica_reduce_bytes;
                assert_eq!(straight.map(|it| it.bytes).sum::<usize>(), counted, "stage {stage}, {order:?}");
            });
        }
    }
}

/// Two ranks of a host share its four links of 0.1 GB/s. Of the 1024 bytes of a unit, each rank sends its quarter to its
/// counterpart alone; on two hosts of one rank each, one sends half over all links.
#[test]
fn ranks_of_a_host_send_their_own_shards_to_counterparts() {
    let cpu = GPU.replace("kind: Gpu", "kind: Cpu");
    for (ranks, bytes, us) in [(4, 256, 1.28), (2, 512, 1.28)] {
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(ranks) };
        let config = Config { transport: TransportKind::Cluster, ..config(3, mesh) };
        on(&cpu, config, 1, |_, timeline, _| {
            let Transfer { flow, link, bytes: sent, start_s, free_s, end_s, .. } = timeline.lanes[0].transfers[0];
            assert_eq!((flow, link, sent), (Flow::Gather, LinkKind::Network, bytes));
            assert!(((free_s - start_s) * 1e6 - us).abs() < 1e-9, "{}", free_s - start_s);
            assert!(((end_s - free_s) * 1e3 - 1.0).abs() < 1e-9, "one latency");
        });
    }
}

#[test]
fn ranks_of_a_processor_agree_in_one_exchange() {
    let hops = |text: &str, ranks| {
        let (hardware, mesh) = (Hardware::parse(text).unwrap(), Mesh::of_zero(ranks));
        Routes::new(&hardware, &mesh).agreement().hops
    };
    let cpu = GPU.replace("kind: Gpu", "kind: Cpu");
    assert_eq!([1, 2, 8].map(|ranks| hops(&cpu, ranks)), [0, 1, 1]);
    assert_eq!([1, 2, 8].map(|ranks| hops(GPU, ranks)), [0, 2, 6]);
}

#[test]
fn z0177_a_plan_that_the_hardware_cannot_run() {
    let alone = GPU.replace(", network: (bandwidth: 1e8, latency: 1e-3, links: 4)", "");
    let bare = alone.replace(", link: (bandwidth: 1e9, latency: 0.0)", "");
    let two = Mesh { nodes: 2, ..Mesh::of_zero(4) };
    for (text, mesh, expected) in [
        (GPU, Mesh::of_zero(9), Impossible::Devices { ranks: 9, devices: 8 }),
        (&alone, two, Impossible::NoNetwork { nodes: 2 }),
        (&bare, Mesh::of_zero(2), Impossible::NoLink { ranks: 2 }),
    ] {
        let hardware = Hardware::parse(text).unwrap();
        PlanBuf::new("T", config(0, mesh), &units(2)).with(|plan| {
            assert_eq!(simulate(plan, &hardware), Err(expected.clone()));
        });
    }
}

/// Of what would help, each is what it says and nothing else: with hardware that is better in just that, a step takes as long.
#[test]
fn what_would_help_is_what_does() {
    let mesh = Mesh { nodes: 2, zero: 2, replica: 2, ..Mesh::of_zero(1) };
    let gpus = [
        ("computation", vec![("f32: 1e9, bf16: 1e9", "f32: 1.1e9, bf16: 1.1e9")]),
        ("memory bandwidth", vec![("bandwidth: 1e7", "bandwidth: 1.1e7")]),
        ("links of a node", vec![("link: (bandwidth: 1e9", "link: (bandwidth: 1.1e9")]),
        ("network", vec![("network: (bandwidth: 1e8", "network: (bandwidth: 1.1e8")]),
        ("latencies", vec![("latency: 1e-3", "latency: 0.90909090909090909e-3")]),
    ];
    let text = GPU.replace("bandwidth: 1e18", "bandwidth: 1e7");
    let plan = PlanBuf::new("T", Config { device: DeviceKind::Cuda, ..config(3, mesh) }, &units(4));
    let predicted = |text: &str| {
        let hardware = Hardware::parse(text).unwrap();
        plan.with(|plan| Prediction::of(plan, &hardware, None)).unwrap()
    };
    let now = predicted(&text);
    assert_eq!(now.better.len(), gpus.len());
    for (what, changes) in gpus {
        let better = changes.iter().fold(text.clone(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        let said = now.better.iter().find(|better| better.what == what).unwrap().step_s;
        let step_s = predicted(&better).step_s;
        assert!((said / step_s - 1.0).abs() < 1e-9 && said < now.step_s, "{what}: {said}, {step_s} of {}", now.step_s);
    }
}

/// On shared memory, latency is what it takes until a rank goes on; and an update that was measured is a pass over memory.
#[test]
fn what_would_help_a_processor_is_how_soon_ranks_go_on_and_memory() {
    let of_unit = |params: usize| {
        format!(
            "(model: \"T\", field: \"a\", position: 0, params: {params}, compute: F32, tokens: 1, threads: 1, ranks: 2, \
             forward: 1e-3, backward: 2e-3, update: 4e-3)"
        )
    };
    let text = format!(
        r#"(name: "x", device: (name: "d", kind: Cpu, memory: GB(80), matmul: (f32: 1e9, bf16: 1e9), bandwidth: 1e18),
        node: (devices: 2, handover: (apart: 1.1e-2, turns: 1.0)), measured: [{}])"#,
        of_unit(256)
    );
    let hardware = Hardware::parse(&text).unwrap();
    let mesh = Mesh { replica: 2, ..Mesh::of_zero(1) };
    let plan = PlanBuf::new("T", Config { length: 1, ..config(0, mesh) }, &units(2));
    let now = plan.with(|plan| Prediction::of(plan, &hardware, None)).unwrap();
    assert!(now.units_are_measured);
    let gain = |what: &str| now.step_s - now.better.iter().find(|better| better.what == what).unwrap().step_s;
    // Two units: each takes 4 ms of an update, and 3 ms of computation.
    for (what, expected) in [("memory bandwidth", 8e-3), ("computation", 6e-3)] {
        let expected = expected * (1.0 - 1.0 / 1.1);
        assert!((gain(what) - expected).abs() < 1e-9, "{what}: {} {expected}", gain(what));
    }
    // Ranks wait a whole number of times.
    let waits = gain("latencies") / (1.1e-2 * (1.0 - 1.0 / 1.1));
    assert!(waits > 0.5 && (waits - waits.round()).abs() < 1e-6, "{waits}");
}

/// Bytes over bandwidth, latencies and what of both is exposed, by hand: two ranks of two nodes, and one unit of 1024 bytes.
#[test]
fn traffic_is_bytes_over_bandwidth_and_latencies() {
    let mesh = Mesh { nodes: 2, ..Mesh::of_zero(2) };
    on(GPU, config(3, mesh), 1, |plan, timeline, hardware| {
        let it = Prediction::of(plan, hardware, None).unwrap();
        let flow = |flow: Flow| it.traffic.iter().find(|it| it.flow == flow && it.link == LinkKind::Network).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        // Four links of 0.1 GB/s, and half of the unit, which is held from the forward to the backward pass.
        let gather = flow(Flow::Gather);
        assert_eq!(gather.bytes, 512);
        near(gather.bandwidth, 4e8);
        near(gather.busy_s, 512.0 / 4e8);
        near(gather.latency_s, 1e-3);
        near(gather.exposed_s, 1e-3 + 512.0 / 4e8);
        near(gather.ring_s.unwrap(), 1e-3 + 512.0 / 4e8);
        near(gather.tree_s.unwrap(), 2e-3 + (512.0 + 1024.0) / 4e8);
        // The agreement is a latency there and one back.
        let agreement = flow(Flow::Agreement);
        assert_eq!((agreement.bytes, agreement.ring_s), (0, None));
        near(agreement.exposed_s, 2e-3);
        let all: f64 = it.traffic.iter().map(|it| it.exposed_s).sum();
        near(all, timeline.parts(plan, 0).exposed_s());
    });
}

/// 3 x 1000 operations of each of two units, for two micro-batches of two ranks, of what two devices can do in a step.
#[test]
fn the_share_of_the_peak_is_what_a_step_needs_of_what_devices_can_do() {
    let config = Config { micro_batches: 2, recompute: crate::Recompute::Every(1), ..config(0, Mesh::of_zero(2)) };
    on(GPU, config, 2, |plan, timeline, hardware| {
        let mfu = 3.0 * 2000.0 * 2.0 * 2.0 / (timeline.step_s * 2.0 * 1e9);
        assert!((timeline.mfu(plan, hardware) / mfu - 1.0).abs() < 1e-12);
    });
}

/// A plan for one kind of device is taken as it would have to be on another, with each node a host.
#[test]
fn a_plan_is_that_of_the_hardware() {
    let (gpu, cpu) = (Hardware::parse(GPU).unwrap(), Hardware::parse(&GPU.replace("kind: Gpu", "kind: Cpu")).unwrap());
    let hosts = Mesh { nodes: 2, ..Mesh::of_zero(4) };
    let of = |mesh, device, transport| Config { mesh, device, transport, ..Config::PLAIN.at_stage(3) };
    let (here, nccl) = (TransportKind::Shm, of(Mesh::of_zero(4), DeviceKind::Cuda, TransportKind::Nccl));
    for (config, hardware, expected) in [
        (of(Mesh::of_zero(4), DeviceKind::Cpu, here), &gpu, (DeviceKind::Cuda, TransportKind::Peer)),
        (nccl, &gpu, (DeviceKind::Cuda, TransportKind::Nccl)),
        (of(hosts, DeviceKind::Cpu, here), &gpu, (DeviceKind::Cuda, TransportKind::Nccl)),
        (of(hosts, DeviceKind::Cuda, TransportKind::Nccl), &cpu, (DeviceKind::Cpu, TransportKind::Cluster)),
        (nccl, &cpu, (DeviceKind::Cpu, TransportKind::Shm)),
    ] {
        let on = on_hardware(config, hardware).unwrap();
        assert_eq!((on.device, on.transport), expected, "{config:?}");
    }
    let muon = Config { optimizer: OptimizerKind::Muon, ..of(hosts, DeviceKind::Cpu, here) };
    assert_eq!(on_hardware(muon, &cpu), Err(Impossible::Directions));
    assert!(on_hardware(muon, &gpu).is_ok());
}
