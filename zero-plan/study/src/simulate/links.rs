//! Links: how long a collective or a parcel takes between its ranks, by published formulas. Never knows its start.
//!
//! With `p` ranks, `n` bytes in the whole buffer, a latency `α` and `β` seconds a byte, an all-gather and a
//! reduce-scatter take, on a ring, `(p - 1) α + (p - 1)/p n β`, and by binomial trees (a gather to one rank and a
//! broadcast, or a reduction and a scatter), `2 ⌈log2 p⌉ α + ((p - 1)/p + ⌈log2 p⌉) n β`, because a broadcast and a
//! reduction pass on the whole buffer in each round (Thakur, Rabenseifner, Gropp: Optimization of Collective
//! Communication Operations in MPICH, 2005, sections 4 and 5; Chan, Heimlich, Purkayastha, van de Geijn: Collective
//! communication, 2007).
//! NCCL uses rings for both, with as many rings as a node has links, so that a node sends `(p - 1)/p n` over all its
//! links. If `p` ranks are on `m` nodes, `m - 1` steps of a ring go from node to node and `p - m` stay within a node,
//! each with its own latency (NVIDIA/nccl, `src/graph/tuning.cc`); a tree joins the ranks of each node, then the nodes.

use zero_plan::{Axis, Coordinates, Mesh};

use super::timeline::{Flow, LinkKind};
use crate::hardware::{Hardware, Processor};

/// The links by which some ranks reach one another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// The kind of the slowest link.
    pub link: LinkKind,
    /// Bytes a second that one rank sends while all other ranks of its node also send.
    pub bandwidth: f64,
    /// Seconds until the first byte of a message within a node arrives.
    pub latency_within: f64,
    /// The same for a message from node to node.
    pub latency_between: f64,
    /// The number of these ranks.
    pub ranks: usize,
    /// The number of nodes of these ranks.
    pub nodes: usize,
    /// How messages follow one another.
    pub order: MessageOrder,
}

/// The successive messages of a collective or a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrder {
    /// Each rank sends the bytes directly to the ranks that need them, to all at once.
    Straight,
    /// Around a ring, without the last step.
    Ring,
    /// Up a binomial tree, and down again.
    Tree,
}

impl Route {
    /// Nothing is sent.
    pub const MEMORY: Self = Self {
        link: LinkKind::Memory,
        bandwidth: f64::INFINITY,
        latency_within: 0.0,
        latency_between: 0.0,
        ranks: 1,
        nodes: 1,
        order: MessageOrder::Straight,
    };

    /// Seconds that this many bytes of one rank occupy the link.
    pub fn busy_s(&self, bytes: usize) -> f64 {
        bytes as f64 / self.bandwidth
    }

    /// Seconds from when the last byte leaves until a collective is over.
    pub fn latency_s(&self) -> f64 {
        self.messages_s(self.order)
    }

    /// Seconds of an all-gather or a reduce-scatter of a buffer of `bytes` on a ring.
    pub fn ring_s(&self, bytes: usize) -> f64 {
        self.messages_s(MessageOrder::Ring) + self.busy_s(bytes / self.ranks * self.ranks.saturating_sub(1))
    }

    /// Seconds of the same collective on a tree.
    pub fn tree_s(&self, bytes: usize) -> f64 {
        let others = self.ranks.saturating_sub(1);
        self.messages_s(MessageOrder::Tree) + self.busy_s(bytes / self.ranks * others + rounds(self.ranks) * bytes)
    }

    fn messages_s(&self, order: MessageOrder) -> f64 {
        let (ranks, nodes) = (self.ranks, self.nodes);
        let [within, between] = match order {
            MessageOrder::Straight if nodes > 1 => [0, 1],
            MessageOrder::Straight => [usize::from(ranks > 1), 0],
            MessageOrder::Ring => [ranks - nodes, nodes - 1],
            MessageOrder::Tree => [2 * rounds(ranks.div_ceil(nodes)), 2 * rounds(nodes)],
        };
        within as f64 * self.latency_within + between as f64 * self.latency_between
    }
}

/// Rounds of a tree, each of which doubles the number of reached ranks: the logarithm to base 2, rounded up.
const fn rounds(ranks: usize) -> usize {
    ranks.next_power_of_two().trailing_zeros() as usize
}

/// The links by which ranks of a mesh reach one another on some hardware.
#[derive(Clone, Copy, Debug)]
pub struct Routes<'a> {
    hardware: &'a Hardware,
    mesh: &'a Mesh,
}

impl<'a> Routes<'a> {
    /// The routes of a mesh.
    pub fn new(hardware: &'a Hardware, mesh: &'a Mesh) -> Self {
        Self { hardware, mesh }
    }

    /// The route of a collective along `zero` or `replica`. All communicators along the axis work at once.
    pub fn collective(&self, axis: Axis, pipeline: usize) -> Route {
        let at = Coordinates { zero: 0, replica: 0, pipeline };
        let member = |i| match axis {
            Axis::Zero => Coordinates { zero: i, ..at },
            _ => Coordinates { replica: i, ..at },
        };
        let ranks = self.mesh.len(axis);
        let node = |i| self.mesh.node(self.mesh.rank(member(i)));
        let together = (0..ranks).filter(|&i| node(i) == node(0)).count();
        let order = match self.hardware.device.kind {
            // Each rank reads from every other rank.
            Processor::Cpu => MessageOrder::Straight,
            Processor::Gpu => MessageOrder::Ring,
        };
        let groups = self.mesh.ranks_per_node() / together;
        let nodes = ranks.div_ceil(together);
        Route { ranks, nodes, order, ..self.route(together < ranks, together > 1, groups) }
    }

    /// The route of a rank that sends to other nodes while every other rank of its node does too.
    pub fn between_hosts(&self, ranks: usize) -> Route {
        Route { ranks, nodes: self.mesh.nodes, ..self.route(true, false, self.mesh.ranks_per_node()) }
    }

    /// The route of a parcel from one pipeline stage to another. All ranks of a node may send one at once.
    pub fn parcel(&self, from: usize, to: usize) -> Route {
        let node = |pipeline| self.mesh.node(self.mesh.rank(Coordinates { zero: 0, replica: 0, pipeline }));
        let crosses = node(from) != node(to);
        let route = self.route(crosses, false, self.mesh.ranks_per_node());
        Route { ranks: 1 + usize::from(from != to), nodes: 1 + usize::from(crosses), ..route }
    }

    /// The route of the agreement of all ranks: few bytes, which ranks on processors read from one another, and ranks on
    /// GPUs send up and down a tree.
    pub fn agreement(&self) -> Route {
        let Mesh { nodes, .. } = *self.mesh;
        let route = self.route(nodes > 1, true, self.mesh.ranks_per_node());
        let order = match self.hardware.device.kind {
            Processor::Cpu => MessageOrder::Straight,
            Processor::Gpu => MessageOrder::Tree,
        };
        Route { ranks: self.mesh.ranks(), nodes, order, ..route }
    }

    /// A route through the network or within a node, if this many senders of a node share the network. Bytes that cross
    /// nodes also go from device to device within a node if `within`.
    fn route(&self, crosses: bool, within: bool, senders: usize) -> Route {
        let node = self.hardware.node.link.map(|link| {
            let share = link.shared_by.min(self.mesh.ranks_per_node()) as f64;
            Route {
                link: LinkKind::Node,
                bandwidth: link.bandwidth / share,
                latency_within: link.latency,
                ..Route::MEMORY
            }
        });
        match (crosses, self.hardware.network) {
            (true, Some(network)) => {
                let bandwidth = network.bandwidth * network.links as f64 / senders as f64;
                let inside = node.filter(|_| within).map_or(f64::INFINITY, |node| node.bandwidth);
                let bandwidth = bandwidth.min(inside);
                let latency_within = node.map_or(0.0, |node| node.latency_within);
                let latency_between = network.latency;
                Route { link: LinkKind::Network, bandwidth, latency_within, latency_between, ..Route::MEMORY }
            }
            _ => node.unwrap_or(self.memory()),
        }
    }

    /// Memory that ranks share: nothing is sent, and a waiting rank continues once it is woken.
    fn memory(&self) -> Route {
        let node = &self.hardware.node;
        let takes_turns = self.mesh.ranks_per_node() > node.devices;
        let latency_within = node.handover.map_or(0.0, |it| if takes_turns { it.turns } else { it.apart });
        Route { latency_within, ..Route::MEMORY }
    }
}

impl Flow {
    /// The axis of a collective; none for a flow that is not a collective along one axis.
    pub const fn axis(self) -> Option<Axis> {
        match self {
            Flow::Gather | Flow::Reduce => Some(Axis::Zero),
            Flow::ReplicaReduce => Some(Axis::Replica),
            Flow::Spread | Flow::Parcel | Flow::Agreement | Flow::Fetch | Flow::Store => None,
        }
    }
}
