mod links;
mod predictions;
mod publication;
mod tiers;
mod timelines;

use std::collections::BTreeSet;

use zero_plan::{
    Axis, Config, DeviceKind, Mesh, Op, OptimizerKind, Order, OrthogonalCost, Pass, PlanBuf, Precision, Recompute,
    Traffic, TransportKind, Unit, Width, makespan,
};

use super::*;
use crate::hardware::{MeasuredOp, MeasuredUnit, OpTime, measured_units};

/// A GPU of 1 GFLOP/s and links of 1 GB/s, so that operations and bytes take whole microseconds.
const GPU: &str = r#"(name: "x", device: (name: "d", kind: Gpu, memory: GB(80), matmul: (f32: 1e9, bf16: 1e9), bandwidth: 1e18),
    node: (devices: 8, link: (bandwidth: 1e9, latency: 0.0)), network: (bandwidth: 1e8, latency: 1e-3, links: 4))"#;

/// The same GPU, but sending takes no time.
fn free() -> String {
    GPU.replace("1e8, latency: 1e-3", "1e18, latency: 0.0").replace("bandwidth: 1e9, lat", "bandwidth: 1e18, lat")
}

/// A processor with this many cores, whose ranks share memory.
fn cpu(cores: usize) -> String {
    let node = format!("devices: {cores}");
    GPU.replace("kind: Gpu", "kind: Cpu").replace("devices: 8, link: (bandwidth: 1e9, latency: 0.0)", &node)
}

fn units(count: usize) -> Vec<Unit> {
    let matrices = OrthogonalCost { room_bytes: 64, operations: 5000, operations_max: 5000 };
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
