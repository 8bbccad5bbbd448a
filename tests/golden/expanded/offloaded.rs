// `Zero3` under specs/zero3.ron with states on disk, as `cargo zero expand` writes it.
// ZeRO stage 3, prefetch 2. Mesh: zero 2, replica 1, pipeline 1.
// Offsets and lengths are in bytes: those of buffers within their regions.

#[allow(unused_imports)]
use zero_plan::{Axis, Home, Kind, Parcel};
use zero_study::expand::step::*;

pub const PRIVATE_BYTES: usize = 4_157_440;
pub const SHARED_BYTES: usize = 262_144;
pub const COMMON_BYTES: usize = 86_784;
pub const DISK_BYTES: usize = 393_216;
pub const PARAMETERS: ArenaRegion = ArenaRegion::new(Kind::Parameters, Home::Disk, 0, 131_072);
pub const GATHERED: ArenaRegion = ArenaRegion::new(Kind::Gathered, Home::Common, 0, 86_784);
pub const GRADIENTS: ArenaRegion = ArenaRegion::new(Kind::Gradients, Home::Shared, 0, 262_144);
pub const REDUCED: ArenaRegion = ArenaRegion::new(Kind::Reduced, Home::Private, 0, 73_088);
pub const OPTIMIZER: ArenaRegion = ArenaRegion::new(Kind::Optimizer, Home::Disk, 131_072, 262_144);
pub const ACTIVATIONS: ArenaRegion =
    ArenaRegion::new(Kind::Activations, Home::Private, 73_088, 3_311_616);
pub const ACTIVATION_GRADIENTS: ArenaRegion =
    ArenaRegion::new(Kind::ActivationGradients, Home::Private, 3_384_704, 98_304);
pub const WORKSPACE: ArenaRegion =
    ArenaRegion::new(Kind::Workspace, Home::Private, 3_483_008, 491_520);
pub const OPTIMIZER_WINDOW: ArenaRegion =
    ArenaRegion::new(Kind::OptimizerWindow, Home::Private, 3_977_216, 98_304);
pub const PARAMETERS_WINDOW: ArenaRegion =
    ArenaRegion::new(Kind::ParametersWindow, Home::Private, 4_075_520, 49_152);
pub const SHARDS: ArenaRegion = ArenaRegion::new(Kind::Shards, Home::Private, 4_124_672, 32_768);

/// `embed`: 3_768 parameters.
pub const EMBED: UnitBuffers = UnitBuffers {
    number: 0,
    parameters: PARAMETERS.at(0, 7_552),
    gradients: GRADIENTS.at(131_072, 15_104),
    reduced: REDUCED.at(0, 7_552),
    first_moment: OPTIMIZER.at(0, 7_552),
    second_moment: OPTIMIZER.at(131_072, 7_552),
    output: ACTIVATIONS.at(4_096, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[0]`: 7_224 parameters.
pub const BLOCKS_0: UnitBuffers = UnitBuffers {
    number: 1,
    parameters: PARAMETERS.at(16_384, 14_464),
    gradients: GRADIENTS.at(146_176, 28_928),
    reduced: REDUCED.at(7_552, 14_464),
    first_moment: OPTIMIZER.at(16_384, 14_464),
    second_moment: OPTIMIZER.at(147_456, 14_464),
    saved: ACTIVATIONS.at(53_248, 751_616),
    output: ACTIVATIONS.at(804_864, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[1]`: 7_224 parameters.
pub const BLOCKS_1: UnitBuffers = UnitBuffers {
    number: 2,
    parameters: PARAMETERS.at(40_960, 14_464),
    gradients: GRADIENTS.at(175_104, 28_928),
    reduced: REDUCED.at(22_016, 14_464),
    first_moment: OPTIMIZER.at(40_960, 14_464),
    second_moment: OPTIMIZER.at(172_032, 14_464),
    saved: ACTIVATIONS.at(854_016, 751_616),
    output: ACTIVATIONS.at(1_605_632, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[2]`: 7_224 parameters.
pub const BLOCKS_2: UnitBuffers = UnitBuffers {
    number: 3,
    parameters: PARAMETERS.at(65_536, 14_464),
    gradients: GRADIENTS.at(204_032, 28_928),
    reduced: REDUCED.at(36_480, 14_464),
    first_moment: OPTIMIZER.at(65_536, 14_464),
    second_moment: OPTIMIZER.at(196_608, 14_464),
    saved: ACTIVATIONS.at(1_654_784, 751_616),
    output: ACTIVATIONS.at(2_406_400, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[3]`: 7_224 parameters.
pub const BLOCKS_3: UnitBuffers = UnitBuffers {
    number: 4,
    parameters: PARAMETERS.at(90_112, 14_464),
    gradients: GRADIENTS.at(232_960, 28_928),
    reduced: REDUCED.at(50_944, 14_464),
    first_moment: OPTIMIZER.at(90_112, 14_464),
    second_moment: OPTIMIZER.at(221_184, 14_464),
    saved: ACTIVATIONS.at(2_455_552, 751_616),
    output: ACTIVATIONS.at(3_207_168, 49_152),
    ..UnitBuffers::NONE
};

/// `norm`: 48 parameters.
pub const NORM: UnitBuffers = UnitBuffers {
    number: 5,
    parameters: PARAMETERS.at(106_496, 128),
    gradients: GRADIENTS.at(261_888, 256),
    reduced: REDUCED.at(65_408, 128),
    first_moment: OPTIMIZER.at(106_496, 128),
    second_moment: OPTIMIZER.at(237_568, 128),
    saved: ACTIVATIONS.at(3_256_320, 4_096),
    output: ACTIVATIONS.at(3_260_416, 49_152),
    ..UnitBuffers::NONE
};

/// `head`, which computes on the parameters of `embed`.
pub const HEAD: UnitBuffers = UnitBuffers {
    number: 6,
    gradients: GRADIENTS.at(0, 15_104),
    reduced: REDUCED.at(65_536, 7_552),
    output: ACTIVATIONS.at(3_309_568, 2_048),
    ..UnitBuffers::NONE
};

/// HEAD to HEAD.
pub const BUCKET_0: BucketBuffer = BucketBuffer::new(0, GRADIENTS.at(0, 15_104));
/// EMBED to NORM.
pub const BUCKET_1: BucketBuffer = BucketBuffer::new(1, GRADIENTS.at(131_072, 131_072));
pub const SLOT_0: SlotBuffer = SlotBuffer::new(0, GATHERED.at(0, 28_928));
pub const SLOT_1: SlotBuffer = SlotBuffer::new(1, GATHERED.at(28_928, 28_928));
pub const SLOT_2: SlotBuffer = SlotBuffer::new(2, GATHERED.at(57_856, 28_928));
pub const SHARD_0: SlotBuffer = SlotBuffer::new(0, SHARDS.at(0, 16_384));
pub const SHARD_1: SlotBuffer = SlotBuffer::new(1, SHARDS.at(16_384, 16_384));
pub const ACTIVATIONS_0: SlotBuffer = SlotBuffer::new(0, ACTIVATIONS.at(0, 3_311_616));
pub const WINDOW_0: WindowBuffer = WindowBuffer {
    number: 0,
    parameters: PARAMETERS_WINDOW.at(0, 16_384),
    first_moment: OPTIMIZER_WINDOW.at(0, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(49_152, 16_384),
    ..WindowBuffer::NONE
};
pub const WINDOW_1: WindowBuffer = WindowBuffer {
    number: 1,
    parameters: PARAMETERS_WINDOW.at(16_384, 16_384),
    first_moment: OPTIMIZER_WINDOW.at(16_384, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(65_536, 16_384),
    ..WindowBuffer::NONE
};
pub const WINDOW_2: WindowBuffer = WindowBuffer {
    number: 2,
    parameters: PARAMETERS_WINDOW.at(32_768, 16_384),
    first_moment: OPTIMIZER_WINDOW.at(32_768, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(81_920, 16_384),
    ..WindowBuffer::NONE
};

/// A training step.
pub fn step(rank: &mut impl StepOps) {
    // Forward of micro-batch 0.
    rank.fetch(EMBED, UnitPiece(0), WINDOW_0, 24_576);
    rank.fetch(BLOCKS_0, UnitPiece(0), WINDOW_1, 49_152);
    rank.fetch(BLOCKS_1, UnitPiece(0), WINDOW_2, 49_152);
    rank.fetch_shard(EMBED, SHARD_0, 8_192);
    rank.fetch_shard(BLOCKS_0, SHARD_1, 16_384);
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.fetch_shard(BLOCKS_1, SHARD_0, 16_384);
    rank.gather(BLOCKS_0, SLOT_1, 28_928);
    rank.fetch_shard(BLOCKS_2, SHARD_1, 16_384);
    rank.gather(BLOCKS_1, SLOT_2, 28_928);
    rank.fetch_shard(BLOCKS_3, SHARD_0, 16_384);
    rank.wait(EMBED, 15_104);
    rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 49_152);
    rank.release(EMBED, 15_104);
    rank.gather(BLOCKS_2, SLOT_0, 28_928);
    rank.fetch_shard(NORM, SHARD_1, 4_096);
    rank.wait(BLOCKS_0, 28_928);
    rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_0, 28_928);
    rank.gather(BLOCKS_3, SLOT_1, 28_928);
    rank.fetch_shard(EMBED, SHARD_0, 8_192);
    rank.wait(BLOCKS_1, 28_928);
    rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_1, 28_928);
    rank.gather(NORM, SLOT_2, 256);
    rank.fetch_shard(NORM, SHARD_1, 4_096);
    rank.wait(BLOCKS_2, 28_928);
    rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_2, 28_928);
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.fetch_shard(BLOCKS_3, SHARD_0, 16_384);
    rank.wait(BLOCKS_3, 28_928);
    rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_3, 28_928);
    rank.wait(NORM, 256);
    rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 53_248);
    rank.release(NORM, 256);
    rank.gather(NORM, SLOT_1, 256);
    rank.fetch_shard(BLOCKS_2, SHARD_1, 16_384);
    rank.gather(BLOCKS_3, SLOT_2, 28_928);
    rank.fetch_shard(BLOCKS_1, SHARD_0, 16_384);
    rank.wait(EMBED, 15_104);
    rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 2_048);
    // Backward of micro-batch 0.
    rank.claim(BUCKET_0, 15_104);
    rank.backward(HEAD, MicroBatch(0), ACTIVATIONS_0, 64_256);
    rank.release(EMBED, 15_104);
    rank.reduce_scatter(BUCKET_0, Reduction(0), 15_104);
    rank.gather(BLOCKS_2, SLOT_0, 28_928);
    rank.fetch_shard(BLOCKS_0, SHARD_1, 16_384);
    rank.wait(NORM, 256);
    rank.claim(BUCKET_1, 131_072);
    rank.backward(NORM, MicroBatch(0), ACTIVATIONS_0, 49_408);
    rank.release(NORM, 256);
    rank.gather(BLOCKS_1, SLOT_1, 28_928);
    rank.fetch_shard(EMBED, SHARD_0, 8_192);
    rank.wait(BLOCKS_3, 28_928);
    rank.backward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.release(BLOCKS_3, 28_928);
    rank.gather(BLOCKS_0, SLOT_2, 28_928);
    rank.wait(BLOCKS_2, 28_928);
    rank.backward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.release(BLOCKS_2, 28_928);
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.wait(BLOCKS_1, 28_928);
    rank.backward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.release(BLOCKS_1, 28_928);
    rank.wait(BLOCKS_0, 28_928);
    rank.backward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.release(BLOCKS_0, 28_928);
    rank.wait(EMBED, 15_104);
    rank.backward(EMBED, MicroBatch(0), ACTIVATIONS_0, 15_104);
    rank.release(EMBED, 15_104);
    rank.reduce_scatter(BUCKET_1, Reduction(0), 131_072);
    rank.settle(BUCKET_0, Reduction(0), 7_552);
    rank.settle(BUCKET_1, Reduction(0), 65_536);
    rank.fold(HEAD, 7_552);
    // The update.
    rank.agree(64);
    rank.update_piece(EMBED, UnitPiece(0), WINDOW_0, 22_656);
    rank.store(EMBED, UnitPiece(0), WINDOW_0, 24_576);
    rank.fetch(BLOCKS_2, UnitPiece(0), WINDOW_0, 49_152);
    rank.update_piece(BLOCKS_0, UnitPiece(0), WINDOW_1, 43_392);
    rank.store(BLOCKS_0, UnitPiece(0), WINDOW_1, 49_152);
    rank.fetch(BLOCKS_3, UnitPiece(0), WINDOW_1, 49_152);
    rank.update_piece(BLOCKS_1, UnitPiece(0), WINDOW_2, 43_392);
    rank.store(BLOCKS_1, UnitPiece(0), WINDOW_2, 49_152);
    rank.fetch(NORM, UnitPiece(0), WINDOW_2, 12_288);
    rank.update_piece(BLOCKS_2, UnitPiece(0), WINDOW_0, 43_392);
    rank.store(BLOCKS_2, UnitPiece(0), WINDOW_0, 49_152);
    rank.update_piece(BLOCKS_3, UnitPiece(0), WINDOW_1, 43_392);
    rank.store(BLOCKS_3, UnitPiece(0), WINDOW_1, 49_152);
    rank.update_piece(NORM, UnitPiece(0), WINDOW_2, 384);
    rank.store(NORM, UnitPiece(0), WINDOW_2, 12_288);
}

/// A forward without a backward.
pub fn evaluation(rank: &mut impl StepOps) {
    // The update.
    rank.fetch_shard(EMBED, SHARD_0, 8_192);
    rank.fetch_shard(BLOCKS_0, SHARD_1, 16_384);
    // Forward of micro-batch 0.
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.fetch_shard(BLOCKS_1, SHARD_0, 16_384);
    rank.gather(BLOCKS_0, SLOT_1, 28_928);
    rank.fetch_shard(BLOCKS_2, SHARD_1, 16_384);
    rank.gather(BLOCKS_1, SLOT_2, 28_928);
    rank.fetch_shard(BLOCKS_3, SHARD_0, 16_384);
    rank.wait(EMBED, 15_104);
    rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 49_152);
    rank.release(EMBED, 15_104);
    rank.gather(BLOCKS_2, SLOT_0, 28_928);
    rank.fetch_shard(NORM, SHARD_1, 4_096);
    rank.wait(BLOCKS_0, 28_928);
    rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_0, 28_928);
    rank.gather(BLOCKS_3, SLOT_1, 28_928);
    rank.fetch_shard(EMBED, SHARD_0, 8_192);
    rank.wait(BLOCKS_1, 28_928);
    rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_1, 28_928);
    rank.gather(NORM, SLOT_2, 256);
    rank.wait(BLOCKS_2, 28_928);
    rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_2, 28_928);
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.wait(BLOCKS_3, 28_928);
    rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.release(BLOCKS_3, 28_928);
    rank.wait(NORM, 256);
    rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 53_248);
    rank.release(NORM, 256);
    rank.wait(EMBED, 15_104);
    rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 2_048);
    rank.release(EMBED, 15_104);
}
