//! States on disk: a piece is 2048 elements of each of two moments, so 16384 bytes are fetched, and as many stored.

use zero_plan::{DeviceKind, Offload, TierKind, TransportKind, UpdatePlace};

use super::*;

const PIECE_BYTES: f64 = 16384.0;

/// One rank a core, whose ops take no time but for operations, at 1 GFLOP/s.
fn on_disk(direct: &str) -> String {
    cpu(8).replace("devices: 8", &format!("devices: 8, disk: (read: 1e9, write: 1e9, direct: ({direct}))"))
}

fn offloaded(config: Config, prefetch: usize) -> Config {
    Config { offload: Offload { optimizer: TierKind::Disk, prefetch, piece_bytes: 8192, ..Offload::NONE }, ..config }
}

/// A unit of this many pieces on one rank, whose forward and backward take this many seconds.
fn unit(pieces: usize, computing_s: f64) -> Unit {
    Unit { params: 2048 * pieces, takes: 2048 * pieces, operations: (computing_s / 3.0 * 1e9) as usize, ..Unit::NONE }
}

/// Seconds by which a step takes longer than it computes.
fn exposed_s(direct: &str, config: Config, unit: Unit) -> f64 {
    let mut exposed_s = 0.0;
    let config = Config { mesh: Mesh { order: Axis::ALL, ..config.mesh }, ..config };
    on_units(&on_disk(direct), config, &[unit], |plan, timeline, _| {
        let parts = timeline.parts(plan, 0);
        let computing_s = parts.sum(|part| matches!(part, StepPart::Forward | StepPart::Backward));
        exposed_s = timeline.step_s - computing_s;
        let on_disk = |part| matches!(part, StepPart::Exposed(Flow::Fetch | Flow::Store, LinkKind::Disk));
        assert!((parts.sum(on_disk) - exposed_s).abs() < 1e-9, "{parts:?}");
        let path = timeline.critical_path();
        assert_eq!(path.last().map(|last| last.end_s), Some(timeline.step_s));
        assert!(path.windows(2).all(|pair| pair[0].end_s == pair[1].start_s));
    });
    exposed_s
}

fn assert_ms(found_s: f64, ms: f64) {
    assert!((found_s * 1e3 - ms).abs() < 1e-6, "{} ms, expected {ms} ms", found_s * 1e3);
}

/// The disk never rests in the update, so all bytes but those of the first pieces are exposed at its rate.
#[test]
fn a_slow_disk_is_exposed_by_its_bytes_at_its_rate() {
    for (prefetch, pieces) in [(0, 4), (1, 4), (3, 12)] {
        let config = offloaded(config(0, Mesh::of_zero(1)), prefetch);
        let bytes = PIECE_BYTES * (2 * pieces - (prefetch + 2)) as f64;
        let exposed = |disk: &str, computing_s| exposed_s(disk, config, unit(pieces, computing_s));
        let slow = "read: 1e6, write: 1e6, both: 1e6";
        assert_ms(exposed(slow, 3.0), bytes / 1e3);
        // Without computation, nothing hides the first pieces.
        assert_ms(exposed(slow, 0.0), PIECE_BYTES * 2.0 * pieces as f64 / 1e3);
        assert_ms(exposed("read: 4e6, write: 4e6, both: 4e6", 3.0), bytes / 4e3);
    }
}

/// Two slots and three pieces: after the first store, the last fetch and the second store share the disk, and then the
/// last store has it alone.
#[test]
fn reads_and_writes_share_a_disk() {
    let config = offloaded(config(0, Mesh::of_zero(1)), 0);
    let exposed = |disk: &str| exposed_s(disk, config, unit(3, 3.0));
    assert_ms(exposed("read: 4e6, write: 2e6, both: 3e6"), PIECE_BYTES * (2.0 / 2e3 + 1.0 / 1.5e3));
    // If it can do both at full rate, writes at 2 MB/s decide.
    assert_ms(exposed("read: 4e6, write: 2e6, both: 6e6"), PIECE_BYTES * 3.0 / 2e3);
    // Each fetch and store has a read or a write for each moment. Of the last fetch and the second store, the latencies
    // pass after the bytes.
    let late = "read: 4e6, write: 2e6, both: 3e6, latency: 1e-3";
    assert_ms(exposed(late), PIECE_BYTES * (2.0 / 2e3 + 1.0 / 1.5e3) + 3.0 * 2.0);
}

/// A piece comes to a slot once the piece before it is stored, is updated once it is there, and is stored after that.
#[test]
fn what_is_in_a_slot_is_done_before_the_slot_is_used_again() {
    let config = offloaded(config(0, Mesh::of_zero(1)), 0);
    on_units(&on_disk("read: 4e6, write: 2e6, both: 3e6"), config, &[unit(6, 3.0)], |plan, timeline, _| {
        let (lane, mut free_s, mut seen) = (&timeline.lanes[0], [0.0; 2], 0);
        for (op, (&kind, span)) in plan.pipeline_stages[0].step.iter().zip(&lane.spans).enumerate() {
            let (slot, [start_s, end_s]) = match kind {
                Op::Fetch { piece, .. } | Op::Store { piece, .. } => {
                    let transfer = lane.transfers.iter().find(|it| it.op == op).unwrap();
                    (piece.slot, [transfer.start_s, transfer.end_s])
                }
                Op::Update { piece: Some(piece), .. } => (piece.slot, [span.start_s, span.end_s]),
                _ => continue,
            };
            assert!(start_s >= free_s[slot], "{kind:?} begins at {start_s}, before {}", free_s[slot]);
            (free_s[slot], seen) = (end_s, seen + 1);
        }
        assert_eq!(seen, 3 * 6);
    });
}

/// Replicas keep the same states, so two on one node take twice as long, and two on their own nodes do not.
#[test]
fn ranks_of_a_node_share_its_disk() {
    let disk = "read: 1e6, write: 1e6, both: 1e6";
    for (nodes, replica, ranks_of_disk) in [(1, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0), (2, 4, 2.0)] {
        let mesh = Mesh { nodes, replica, ..Mesh::of_zero(1) };
        let mut step_s = [0.0; 2];
        for (step_s, direct) in step_s.iter_mut().zip([disk, "read: 1e18, write: 1e18"]) {
            on_units(&on_disk(direct), offloaded(config(0, mesh), 0), &[unit(4, 3.0)], |_, timeline, _| {
                *step_s = timeline.step_s;
            });
        }
        assert_ms(step_s[0] - step_s[1], ranks_of_disk * PIECE_BYTES * 6.0 / 1e3);
    }
}

/// Pipeline stages on one node share its disk too: two stages of one unit each move as much as one stage of both.
#[test]
fn pipeline_stages_of_a_node_share_its_disk() {
    let disk = on_disk("read: 1e6, write: 1e6, both: 1e6");
    let units = [0, 1].map(|index| Unit { field: "a", index: Some(index), source: index, ..unit(4, 0.0) });
    for (nodes, shared) in [(1, 2.0), (2, 1.0)] {
        let mesh = Mesh { nodes, pipeline: 2, ..Mesh::of_zero(1) };
        let text = disk.replace("1e8, latency: 1e-3", "1e18, latency: 0.0");
        on_units(&text, offloaded(config(0, mesh), 0), &units, |_, timeline, _| {
            assert_ms(timeline.step_s, shared * PIECE_BYTES * 8.0 / 1e3);
        });
    }
}

/// With a disk that takes no time, a step takes as long as without offload, whether updates were measured or not.
#[test]
fn on_a_disk_that_takes_no_time_a_step_takes_as_long_as_in_memory() {
    let fast = on_disk("read: 1e18, write: 1e18").replace("bandwidth: 1e18", "bandwidth: 1e9");
    for (stage, mesh) in [(0, Mesh::of_zero(1)), (1, Mesh::of_zero(4)), (3, Mesh::of_zero(2))]
        .into_iter()
        .chain([(2, Mesh { pipeline: 2, ..Mesh::of_zero(2) }), (3, Mesh { replica: 2, ..Mesh::of_zero(2) })])
    {
        let plain = config(stage, mesh);
        let units: Vec<Unit> =
            (0..4).map(|i| Unit { field: "a", index: Some(i), source: i, ..unit(5 + i, 1e-3) }).collect();
        for is_measured in [false, true] {
            let step_s = [plain, offloaded(plain, 1)].map(|config| {
                let mut hardware = Hardware::parse(&fast).unwrap();
                PlanBuf::new("T", config, &units).with(|plan| {
                    let time = OpTime { seconds: 1e-3, core_seconds: 1e-3 };
                    hardware.measured =
                        super::timelines::measured(plan, [1, 1], time).filter(|_| is_measured).collect();
                    hardware.measured.iter_mut().for_each(|unit| unit.update = time);
                    simulate_with(plan, &hardware, 1).unwrap().step_s
                })
            });
            assert!((step_s[1] / step_s[0] - 1.0).abs() < 1e-9, "stage {stage}: {step_s:?}");
        }
    }
}

/// Four pieces of one rank on a disk of 1 MB/s: 6 of the 8 fetches and stores are exposed.
#[test]
fn a_prediction_says_what_states_on_disk_cost() {
    let text = on_disk("read: 1e6, write: 1e6, both: 1e6")
        .replace("write: 1e9, direct", "write: 1e9, endurance: MB(10), direct");
    let mesh = Mesh { replica: 2, ..Mesh::of_zero(1) };
    on_units(&text, offloaded(config(0, mesh), 0), &[unit(4, 3.0)], |plan, timeline, hardware| {
        let prediction = Prediction::of(plan, hardware, None).unwrap();
        crate::documented::assert_documented(&serde_json::to_value(&prediction).unwrap());
        let TierPrediction { read_bytes, written_bytes, exposed_s, bytes_per_s, .. } =
            *prediction.disk.as_ref().unwrap();
        assert!(prediction.host.is_none());
        assert_eq!([read_bytes, written_bytes].map(|bytes| bytes as f64), [4.0 * PIECE_BYTES; 2]);
        assert_eq!(bytes_per_s, 1e6);
        assert_ms(exposed_s, 2.0 * 6.0 * PIECE_BYTES / 1e3);
        let on_disk = prediction.traffic.iter().filter(|it| it.link == LinkKind::Disk);
        let on_disk: Vec<_> = on_disk.map(|it| (it.flow, it.bytes)).collect();
        assert_eq!(on_disk, [(Flow::Fetch, read_bytes), (Flow::Store, written_bytes)]);
        let disk = prediction.disk.as_ref().unwrap();
        let per_step = 2.0 * 4.0 * PIECE_BYTES;
        let wear = disk.wear.as_ref().unwrap();
        assert!((wear.written_bytes_per_day / (per_step * 86_400.0 / timeline.step_s) - 1.0).abs() < 1e-9);
        assert_eq!(wear.lasts_steps, Some((10e6 / per_step).floor()));
        // Four threads a rank compute for 750 ms. A step may become 7.5 ms longer, so the exposed bytes may take that long.
        let hidden = disk.hidden_at_bytes_per_s.unwrap() * 0.0075 / (2.0 * 6.0 * PIECE_BYTES);
        assert!((0.99..1.03).contains(&hidden), "{hidden}");
        let better = prediction.better.iter().find(|better| better.what == "disk").unwrap();
        assert_ms(prediction.step_s - better.step_s, 2.0 * 6.0 * PIECE_BYTES / 1e3 * (1.0 - 1.0 / 1.1));
        let text = PredictionText(&prediction).to_string();
        assert!(text.contains("waits 197 ms for a disk of 0.00 GB/s") && text.contains("endures 76 steps"), "{text}");
    });
    on_units(&text, config(0, mesh), &[unit(4, 3.0)], |plan, _, hardware| {
        let prediction = Prediction::of(plan, hardware, None).unwrap();
        assert!(prediction.disk.is_none() && prediction.better.iter().all(|better| better.what != "disk"));
    });
    on_units(
        &on_disk("read: 1e18, write: 1e18"),
        offloaded(config(0, mesh), 0),
        &[unit(4, 3.0)],
        |plan, _, hardware| {
            let disk = Prediction::of(plan, hardware, None).unwrap().disk.unwrap();
            assert_eq!((disk.hidden_at_bytes_per_s, disk.wear.and_then(|wear| wear.lasts_steps)), (None, None));
        },
    );
}

/// Devices of a node each have their link, unless it is shared.
#[test]
fn a_prediction_says_what_states_in_host_memory_cost() {
    let mesh = Mesh { replica: 2, ..Mesh::of_zero(1) };
    let config = offloaded(config(0, mesh), 0);
    let config = Config { offload: Offload { optimizer: TierKind::Host, ..config.offload }, ..config };
    for (link, times) in
        [("read: 1e6, write: 1e6, both: 1e6", 1.0), ("read: 2e6, write: 2e6, both: 2e6, shared_by: 4", 2.0)]
    {
        let text = GPU.replace("devices: 8", &format!("devices: 8, host_link: ({link})"));
        on_units(&text, config, &[unit(4, 3.0)], |plan, timeline, hardware| {
            let prediction = Prediction::of(plan, hardware, None).unwrap();
            crate::documented::assert_documented(&serde_json::to_value(&prediction).unwrap());
            assert!(prediction.disk.is_none());
            let host = prediction.host.as_ref().unwrap();
            assert_eq!([host.read_bytes, host.written_bytes].map(|bytes| bytes as f64), [4.0 * PIECE_BYTES; 2]);
            assert_eq!((host.bytes_per_s, &host.wear), (1e6 / times, &None));
            assert_ms(host.exposed_s, times * 6.0 * PIECE_BYTES / 1e3);
            assert!(
                prediction.better.iter().any(|better| better.what == "host link" && better.step_s < timeline.step_s)
            );
            let text = PredictionText(&prediction).to_string();
            assert!(text.contains("for a link to the host of") && text.contains("fetches, host link"), "{text}");
            assert!(host.in_a_line().contains("would hide it"), "{}", host.in_a_line());
        });
    }
}

#[test]
fn z0177_disks_without_rates_and_ranks_on_gpus() {
    let config = offloaded(config(1, Mesh::of_zero(2)), 1);
    let plan = PlanBuf::new("T", config, &[unit(4, 1.0)]);
    for text in [cpu(2), cpu(2).replace("devices: 2", "devices: 2, disk: (read: 1e9, write: 1e9)")] {
        let refused = plan.with(|plan| simulate(plan, &Hardware::parse(&text).unwrap()).unwrap_err());
        assert_eq!(refused, Impossible::NoDirectRates);
        assert!(refused.to_string().contains("`node.disk.direct`") && refused.help().contains("cargo zero measure"));
        assert!(Hardware::parse(&on_disk("read: 7e9, write: 4e9")).is_ok(), "what the help shows can be read");
    }
    // A GPU also needs a link to its host, through which bytes pass.
    let gpu = GPU.replace("devices: 8", "devices: 8, disk: (read: 1e9, write: 1e9, direct: (read: 1e9, write: 1e9))");
    let config = on_hardware(config, &Hardware::parse(&gpu).unwrap()).unwrap();
    let plan = PlanBuf::new("T", config, &[unit(4, 1.0)]);
    let refused = |text: &str| plan.with(|plan| simulate(plan, &Hardware::parse(text).unwrap()).err());
    assert_eq!([GPU, &gpu].map(refused), [Some(Impossible::NoDirectRates), Some(Impossible::NoHostLink)]);
    assert_eq!(refused(&gpu.replace("devices: 8", "devices: 8, host_link: (read: 1e9, write: 1e9)")), None);
}

/// The link carries a part of 8192 bytes while the disk works on the next one, so that each op takes as long as on a disk alone,
/// and one part over the link. States in host memory beside those on the disk add all of their bytes.
#[test]
fn what_a_gpu_has_on_disk_also_passes_its_link() {
    let gpu = |link: f64, disk: f64| {
        let keys = format!(
            "devices: 8, host_link: (read: {link}, write: {link}), disk: (read: 1e9, write: 1e9, direct: (read: {disk}, write: {disk}))"
        );
        GPU.replace("devices: 8", &keys)
    };
    let step_s = |link, disk, parameters| {
        let mut step_s = 0.0;
        let config = offloaded(Config { stage: 3, ..config(0, Mesh::of_zero(1)) }, 0);
        let config = Config { offload: Offload { parameters, ..config.offload }, ..config };
        let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config };
        on_units(&gpu(link, disk), config, &[unit(1, 0.0)], |plan, timeline, hardware| {
            step_s = timeline.step_s;
            let prediction = Prediction::of(plan, hardware, None).unwrap();
            let disk = prediction.disk.as_ref().unwrap();
            assert_eq!([disk.read_bytes, disk.written_bytes].map(|bytes| bytes as f64), [PIECE_BYTES; 2]);
            assert_eq!(prediction.host.is_some(), parameters == TierKind::Host);
            let text = PredictionText(&prediction).to_string();
            assert!(text.contains("fetches, disk") && text.contains("a node writes"), "{text}");
        });
        step_s
    };
    let [none_s, with_link_s, with_disk_s] =
        [(1e18, 1e18), (1e6, 1e18), (1e18, 1e6)].map(|(link, disk)| step_s(link, disk, TierKind::Device));
    // A piece is fetched and stored.
    assert_ms(with_disk_s - none_s, 2.0 * PIECE_BYTES / 1e3);
    assert_ms(with_link_s - none_s, 2.0 * PIECE_BYTES / 2.0 / 1e3);
    // Parameters of 8192 bytes come for the forward and the backward, and for the update, after which they go.
    let [none_s, with_link_s] = [1e18, 1e6].map(|link| step_s(link, 1e18, TierKind::Host));
    assert_ms(with_link_s - none_s, 5.0 * PIECE_BYTES / 2.0 / 1e3);
}

/// A host that updates what a GPU's link is too slow for: the sums of 4 pieces of 2048 f32 go there, and as many parameters
/// both ways, while the host touches 30 bytes for each parameter at its rate. The device has no copies, so the host needs them.
#[test]
fn a_host_updates_at_its_rate_and_needs_only_sums_and_parameters() {
    let gpu = |keys: &str| GPU.replace("devices: 8", &format!("devices: 8, {keys}"));
    let on_host = Offload {
        optimizer: TierKind::Host,
        update_on: UpdatePlace::Host,
        prefetch: 0,
        piece_bytes: 8192,
        ..Offload::NONE
    };
    let config = Config { offload: on_host, ..config(0, Mesh::of_zero(1)) };
    let step_s = |keys: &str, config: Config| {
        let mut step_s = 0.0;
        let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config };
        on_units(&gpu(keys), config, &[unit(4, 0.0)], |_, timeline, _| step_s = timeline.step_s);
        step_s
    };
    let fast = "host_link: (read: 1e18, write: 1e18)";
    let updates = |rate: f64, link: &str| step_s(&format!("{link}, host_updates: {rate}"), config);
    let none_s = updates(1e18, fast);
    let elements = 4.0 * 2048.0;
    assert_ms(updates(1e6, fast) - none_s, elements * 28.0 / 1e3);
    // Replicas of one host share its cores.
    let replicas = Config { mesh: Mesh { replica: 2, ..config.mesh }, ..config };
    let [slow_s, fast_s] = [1e6, 1e18].map(|rate| step_s(&format!("{fast}, host_updates: {rate}"), replicas));
    assert!((slow_s - fast_s - 2.0 * elements * 28.0 / 1e6).abs() < 1e-3, "{slow_s} {fast_s}");
    let of_gpus = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config };
    on_units(&gpu(&format!("{fast}, host_updates: 1e6")), of_gpus, &[unit(4, 0.0)], |plan, timeline, hardware| {
        let prediction = Prediction::of(plan, hardware, None).unwrap();
        let better = prediction.better.iter().find(|better| better.what == "updates by the host").unwrap();
        assert_ms(timeline.step_s - better.step_s, elements * 28.0 / 1e3 * (1.0 - 1.0 / 1.1));
    });
    // Two slots: the sums and parameters of two pieces are there before the update, and the last parameters come back after it.
    let slow = updates(1e18, "host_link: (read: 1e6, write: 1e6)") - none_s;
    assert!(slow * 1e6 >= elements * 8.0 && slow * 1e6 <= elements * 12.0, "{slow}");
    let plan = PlanBuf::new(
        "T",
        Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config },
        &[unit(4, 0.0)],
    );
    let refused = plan.with(|plan| simulate(plan, &Hardware::parse(&gpu(fast)).unwrap()).unwrap_err());
    assert!(refused == Impossible::NoHostUpdates && refused.to_string().contains("`node.host_updates`"));
    let key = refused.help().split('`').nth(3).unwrap();
    assert!(Hardware::parse(&gpu(key)).is_ok(), "the help can be read");
}

#[test]
fn z0177_links_to_hosts_without_rates_and_ranks_on_processors() {
    let config = offloaded(config(1, Mesh::of_zero(2)), 1);
    let config = Config { offload: Offload { optimizer: TierKind::Host, ..config.offload }, ..config };
    let plan = PlanBuf::new("T", config, &[unit(4, 1.0)]);
    let refused = plan.with(|plan| simulate(plan, &Hardware::parse(GPU).unwrap()).unwrap_err());
    assert_eq!(refused, Impossible::NoHostLink);
    assert!(refused.to_string().contains("`node.host_link`"));
    let link = refused.help().split('`').nth(3).unwrap();
    assert!(
        Hardware::parse(&GPU.replace("devices: 8", &format!("devices: 8, {link}"))).is_ok(),
        "the help can be read"
    );
    assert_eq!(on_hardware(config, &Hardware::parse(&cpu(2)).unwrap()), Err(Impossible::HostOfProcessor));
}
