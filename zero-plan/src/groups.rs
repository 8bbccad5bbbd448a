//! Groups: the ranks that share a communicator, and the pipeline stages between which parcels are sent. Knows the mesh
//! and ties, but no ops.

use crate::mesh::Coordinates;
use crate::plan::Plan;
use crate::schedule::Parcel;

/// The ranks that a communicator spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The ranks of one replica of one pipeline stage.
    Zero,
    /// The ranks of one pipeline stage that hold the same shards.
    Replica,
    /// All ranks.
    World,
}

impl Scope {
    pub const ALL: [Scope; 3] = [Scope::Zero, Scope::Replica, Scope::World];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Zero => "`zero`",
            Scope::Replica => "`replica`",
            Scope::World => "world",
        }
    }
}

/// Communicators and channels of a mesh.
pub(crate) struct Groups {
    /// The ranks of each communicator.
    pub members: Vec<Vec<usize>>,
    /// The communicator of each rank in each scope.
    communicators: Vec<[usize; Scope::ALL.len()]>,
    /// The ranks that each rank sends each kind of parcel to, and receives it from.
    receivers: Vec<[usize; Parcel::ALL.len()]>,
    senders: Vec<[usize; Parcel::ALL.len()]>,
}

impl Groups {
    pub fn of(plan: &Plan) -> Self {
        let mesh = &plan.config.mesh;
        let places: Vec<Coordinates> = (0..mesh.ranks()).map(|rank| mesh.coordinates(rank)).collect();
        let communicator = |at: &Coordinates| {
            let zero = at.pipeline * mesh.replica + at.replica;
            let replica = mesh.pipeline * mesh.replica + at.pipeline * mesh.zero + at.zero;
            [zero, replica, mesh.pipeline * (mesh.replica + mesh.zero)]
        };
        let communicators: Vec<_> = places.iter().map(communicator).collect();
        let mut members = vec![Vec::new(); mesh.pipeline * (mesh.replica + mesh.zero) + 1];
        for (rank, of_rank) in communicators.iter().enumerate() {
            for &communicator in of_rank {
                members[communicator].push(rank);
            }
        }
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        for at in &places {
            let peer = |pipeline| mesh.rank(Coordinates { pipeline, ..*at });
            receivers.push(Parcel::ALL.map(|parcel| peer(plan.parcel_receiver(parcel, at.pipeline))));
            senders.push(Parcel::ALL.map(|parcel| peer(plan.parcel_sender(parcel, at.pipeline))));
        }
        Self { members, communicators, receivers, senders }
    }

    pub fn ranks(&self) -> usize {
        self.communicators.len()
    }

    /// The communicator of a rank in a scope.
    pub fn communicator(&self, rank: usize, scope: Scope) -> usize {
        self.communicators[rank][scope as usize]
    }

    /// The rank that receives this kind of parcel from `rank`.
    pub fn receiver(&self, rank: usize, parcel: Parcel) -> usize {
        self.receivers[rank][parcel as usize]
    }

    /// The rank that sends this kind of parcel to `rank`.
    pub fn sender(&self, rank: usize, parcel: Parcel) -> usize {
        self.senders[rank][parcel as usize]
    }
}

impl Plan<'_> {
    /// The pipeline stage that receives this kind of parcel from pipeline stage `pipeline`.
    pub const fn parcel_receiver(&self, parcel: Parcel, pipeline: usize) -> usize {
        let pipeline_stages = self.config.mesh.pipeline;
        // Only the last unit may be tied.
        let tied = self.units.len() - 1;
        match parcel {
            Parcel::Activations => (pipeline + 1) % pipeline_stages,
            Parcel::Gradients => (pipeline + pipeline_stages - 1) % pipeline_stages,
            Parcel::TiedGradients => self.placements[self.units[tied].source].pipeline_stage,
            Parcel::TiedParameters => self.placements[tied].pipeline_stage,
        }
    }

    /// The pipeline stage that sends this kind of parcel to pipeline stage `pipeline`.
    pub const fn parcel_sender(&self, parcel: Parcel, pipeline: usize) -> usize {
        // The sender of a parcel receives its opposite.
        let opposite = match parcel {
            Parcel::Activations => Parcel::Gradients,
            Parcel::Gradients => Parcel::Activations,
            Parcel::TiedGradients => Parcel::TiedParameters,
            Parcel::TiedParameters => Parcel::TiedGradients,
        };
        self.parcel_receiver(opposite, pipeline)
    }
}
