use super::*;

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

/// The path of a prediction is the chain of causes, with the units and micro-batches of its ops, and the prediction's
/// text has the peak.
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
        let rows = text.split("peak use of the arena").nth(1).unwrap().lines().skip(1).take(8);
        let rows: Vec<&str> = rows.collect();
        assert!(rows.iter().all(|row| row.contains(" to ")), "{text}");
        let peak = zero_plan::Bytes(prediction.pipeline_stages[0].peak.bytes).to_string();
        assert!(rows.iter().any(|row| row.contains(&peak)), "{peak}: {text}");
    });
}

/// Each improvement changes exactly its own figure: on hardware with only this change, a step takes as long.
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

/// On shared memory, latency is the time until a waiting rank continues; and a measured update is a pass over memory.
#[test]
fn what_would_help_a_processor_is_how_soon_ranks_go_on_and_memory() {
    let of_unit = |params: usize| {
        format!(
            "(model: \"T\", field: \"a\", position: 0, params: {params}, compute: F32, tokens: 1, threads: 1, ranks: 2, \
             forward: (seconds: 1e-3, core_seconds: 1e-3), backward: (seconds: 2e-3, core_seconds: 2e-3), \
             update: (seconds: 4e-3, core_seconds: 4e-3))"
        )
    };
    let text = format!(
        r#"(name: "x", device: (name: "d", kind: Cpu, memory: GB(80), matmul: (f32: 1e9, bf16: 1e9), bandwidth: 1e18, sums: 1e6),
        node: (devices: 2, handover: (apart: 1.1e-2, turns: 1.0)), measured: [{}])"#,
        of_unit(256)
    );
    let hardware = Hardware::parse(&text).unwrap();
    let mesh = Mesh { replica: 2, ..Mesh::of_zero(1) };
    let plan = PlanBuf::new("T", Config { length: 1, ..config(0, mesh) }, &units(2));
    let now = plan.with(|plan| Prediction::of(plan, &hardware, None)).unwrap();
    assert!(now.units_are_measured);
    let gain = |what: &str| now.step_s - now.better.iter().find(|better| better.what == what).unwrap().step_s;
    // Two units: each has 4 ms of update, 3 ms of computation, and a sum of 1536 bytes.
    for (what, expected) in [("memory bandwidth", 8e-3 + 2.0 * 1.536e-3), ("computation", 6e-3)] {
        let expected = expected * (1.0 - 1.0 / 1.1);
        assert!((gain(what) - expected).abs() < 1e-9, "{what}: {} {expected}", gain(what));
    }
    // The number of waits is whole.
    let waits = gain("latencies") / (1.1e-2 * (1.0 - 1.0 / 1.1));
    assert!(waits > 0.5 && (waits - waits.round()).abs() < 1e-6, "{waits}");
}

/// Bytes over bandwidth, latencies, and the exposed part of both, by hand: two ranks of two nodes, and one unit of 1024
/// bytes.
#[test]
fn traffic_is_bytes_over_bandwidth_and_latencies() {
    let mesh = Mesh { nodes: 2, ..Mesh::of_zero(2) };
    on(GPU, config(3, mesh), 1, |plan, timeline, hardware| {
        let it = Prediction::of(plan, hardware, None).unwrap();
        let flow = |flow: Flow| it.traffic.iter().find(|it| it.flow == flow && it.link == LinkKind::Network).unwrap();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        // Four links of 0.1 GB/s carry half of the unit, which is kept from the forward to the backward pass.
        let gather = flow(Flow::Gather);
        assert_eq!(gather.bytes, 512);
        near(gather.bandwidth, 4e8);
        near(gather.busy_s, 512.0 / 4e8);
        near(gather.latency_s, 1e-3);
        near(gather.exposed_s, 1e-3 + 512.0 / 4e8);
        near(gather.ring_s.unwrap(), 1e-3 + 512.0 / 4e8);
        near(gather.tree_s.unwrap(), 2e-3 + (512.0 + 1024.0) / 4e8);
        // The agreement takes one latency there and one back.
        let agreement = flow(Flow::Agreement);
        assert_eq!((agreement.bytes, agreement.ring_s), (0, None));
        near(agreement.exposed_s, 2e-3);
        let all: f64 = it.traffic.iter().map(|it| it.exposed_s).sum();
        near(all, timeline.parts(plan, 0).exposed_s());
    });
}

/// 3 x 1000 operations of each of two units, for two micro-batches of two ranks, divided by the operations that two
/// devices can do in a step.
#[test]
fn the_share_of_the_peak_is_what_a_step_needs_of_what_devices_can_do() {
    let config = Config { micro_batches: 2, recompute: zero_plan::Recompute::Every(1), ..config(0, Mesh::of_zero(2)) };
    on(GPU, config, 2, |plan, timeline, hardware| {
        let mfu = 3.0 * 2000.0 * 2.0 * 2.0 / (timeline.step_s * 2.0 * 1e9);
        assert!((timeline.mfu(plan, hardware) / mfu - 1.0).abs() < 1e-12);
    });
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

/// A plan for one kind of device is changed for another kind, with each node as a host.
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
