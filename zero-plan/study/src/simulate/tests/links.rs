use super::*;

#[test]
fn what_is_sent_is_what_the_plan_counts() {
    all(|plan, timeline, _| {
        for (number, (lane, pipeline_stage)) in timeline.lanes.iter().zip(plan.pipeline_stages).enumerate() {
            let sent: usize = lane.transfers.iter().map(|transfer| transfer.bytes).sum();
            let counted = zero_plan::Traffic::of(plan, plan.first_rank(number), pipeline_stage.step);
            assert_eq!(sent, counted.total_bytes() - counted.agree_bytes);
        }
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
fn rings_and_trees_take_what_the_formulas_say() {
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    let one = Route { link: LinkKind::Node, bandwidth: 1e9, latency_within: 1e-6, ranks: 8, ..Route::MEMORY };
    near(one.ring_s(8000), 7e-6 + 7e-6);
    // A gather of 7/8 of the 8000 bytes, and three rounds of all bytes.
    near(one.tree_s(8000), 2.0 * 3e-6 + 7e-6 + 3.0 * 8e-6);
    // Each rank sends as much as the ring.
    let ring = Route { order: MessageOrder::Ring, ..one };
    near(ring.busy_s(7000) + ring.latency_s(), ring.ring_s(8000));
    // Four ranks on each of two nodes: one step of a ring leaves a node, and six stay within a node.
    let two = Route { link: LinkKind::Network, nodes: 2, latency_between: 1e-3, ..one };
    near(two.ring_s(8000), 1e-3 + 6e-6 + 7e-6);
    near(two.tree_s(8000), 2.0 * (1e-3 + 2e-6) + 7e-6 + 3.0 * 8e-6);
    near(two.latency_s(), 1e-3);
    near(Route::MEMORY.latency_s(), 0.0);
}

/// On two nodes of four ranks, `zero` along all eight ranks is limited by a node's four network links of 0.1 GB/s, and
/// along four ranks within a node by the node's own links; four groups of replicas across nodes share the network.
#[test]
fn what_crosses_nodes_takes_the_network() {
    let hardware = Hardware::parse(GPU).unwrap();
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
    let mesh = Mesh { nodes: 2, ..Mesh::of_zero(8) };
    let wide = Routes::new(&hardware, &mesh).collective(Axis::Zero, 0);
    assert_eq!((wide.link, wide.ranks, wide.nodes, wide.order), (LinkKind::Network, 8, 2, MessageOrder::Ring));
    near(wide.bandwidth, 4e8);
    let mesh = Mesh { nodes: 2, zero: 4, replica: 2, ..Mesh::of_zero(1) };
    let routes = Routes::new(&hardware, &mesh);
    let (inside, across) = (routes.collective(Axis::Zero, 0), routes.collective(Axis::Replica, 0));
    assert_eq!((inside.link, across.link), (LinkKind::Node, LinkKind::Network));
    near(inside.bandwidth, 1e9);
    near(across.bandwidth, 1e8);
}

/// MPI carries as many bytes as the plan counts, however hosts divide the axes.
#[test]
fn what_goes_between_hosts_is_what_the_plan_counts() {
    let orders = [Axis::ALL, [Axis::Replica, Axis::Pipeline, Axis::Zero]];
    // Each mesh has two orders of axes, so that hosts divide it along either axis.
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

/// NCCL gathers in rings, but terms of sums go directly to the rank that sums them.
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

/// Two ranks of a host share its four links of 0.1 GB/s. Each rank sends its quarter of a unit's 1024 bytes only to its
/// counterpart. On two hosts of one rank each, a rank sends half over all links.
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
    let latency_us = |text: &str, nodes, ranks| {
        let (hardware, mesh) = (Hardware::parse(text).unwrap(), Mesh { nodes, ..Mesh::of_zero(ranks) });
        Routes::new(&hardware, &mesh).agreement().latency_s() * 1e6
    };
    let gpu = GPU.replace("latency: 0.0", "latency: 1e-6");
    let cpu = gpu.replace("kind: Gpu", "kind: Cpu");
    assert_eq!([1, 2, 8].map(|ranks| latency_us(&cpu, 1, ranks).round()), [0.0, 1.0, 1.0]);
    assert_eq!([1, 2, 8].map(|ranks| latency_us(&gpu, 1, ranks).round()), [0.0, 2.0, 6.0]);
    // Two nodes of four ranks: twice 1 ms between nodes, and twice two rounds within each node.
    assert_eq!([&cpu, &gpu].map(|text| latency_us(text, 2, 8).round()), [1000.0, 2004.0]);
}
