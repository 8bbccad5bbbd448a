// `Zero1` under specs/zero1.ron with states on disk, as `cargo zero expand` writes it.
// ZeRO stage 1. Mesh: zero 2, replica 1, pipeline 1.
// Offsets and lengths are in bytes: those of buffers within their regions.

#[allow(unused_imports)]
use zero_plan::{Axis, Home, Kind, Parcel};
use zero_study::expand::step::*;

pub const PRIVATE_BYTES: usize = 4_001_792;
pub const SHARED_BYTES: usize = 277_248;
pub const DISK_BYTES: usize = 262_144;
pub const PARAMETERS: ArenaRegion = ArenaRegion::new(Kind::Parameters, Home::Shared, 0, 131_072);
pub const GRADIENTS: ArenaRegion =
    ArenaRegion::new(Kind::Gradients, Home::Shared, 131_072, 146_176);
pub const OPTIMIZER: ArenaRegion = ArenaRegion::new(Kind::Optimizer, Home::Disk, 0, 262_144);
pub const ACTIVATIONS: ArenaRegion =
    ArenaRegion::new(Kind::Activations, Home::Private, 0, 3_311_616);
pub const ACTIVATION_GRADIENTS: ArenaRegion =
    ArenaRegion::new(Kind::ActivationGradients, Home::Private, 3_311_616, 98_304);
pub const WORKSPACE: ArenaRegion =
    ArenaRegion::new(Kind::Workspace, Home::Private, 3_409_920, 491_520);
pub const OPTIMIZER_WINDOW: ArenaRegion =
    ArenaRegion::new(Kind::OptimizerWindow, Home::Private, 3_903_488, 98_304);

/// `embed`: 3_768 parameters.
pub const EMBED: UnitBuffers = UnitBuffers {
    number: 0,
    parameters: PARAMETERS.at(0, 15_104),
    gradients: GRADIENTS.at(0, 15_104),
    first_moment: OPTIMIZER.at(0, 7_552),
    second_moment: OPTIMIZER.at(131_072, 7_552),
    output: ACTIVATIONS.at(4_096, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[0]`: 7_224 parameters.
pub const BLOCKS_0: UnitBuffers = UnitBuffers {
    number: 1,
    parameters: PARAMETERS.at(15_104, 28_928),
    gradients: GRADIENTS.at(15_104, 28_928),
    first_moment: OPTIMIZER.at(16_384, 14_464),
    second_moment: OPTIMIZER.at(147_456, 14_464),
    saved: ACTIVATIONS.at(53_248, 751_616),
    output: ACTIVATIONS.at(804_864, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[1]`: 7_224 parameters.
pub const BLOCKS_1: UnitBuffers = UnitBuffers {
    number: 2,
    parameters: PARAMETERS.at(44_032, 28_928),
    gradients: GRADIENTS.at(44_032, 28_928),
    first_moment: OPTIMIZER.at(40_960, 14_464),
    second_moment: OPTIMIZER.at(172_032, 14_464),
    saved: ACTIVATIONS.at(854_016, 751_616),
    output: ACTIVATIONS.at(1_605_632, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[2]`: 7_224 parameters.
pub const BLOCKS_2: UnitBuffers = UnitBuffers {
    number: 3,
    parameters: PARAMETERS.at(72_960, 28_928),
    gradients: GRADIENTS.at(72_960, 28_928),
    first_moment: OPTIMIZER.at(65_536, 14_464),
    second_moment: OPTIMIZER.at(196_608, 14_464),
    saved: ACTIVATIONS.at(1_654_784, 751_616),
    output: ACTIVATIONS.at(2_406_400, 49_152),
    ..UnitBuffers::NONE
};

/// `blocks[3]`: 7_224 parameters.
pub const BLOCKS_3: UnitBuffers = UnitBuffers {
    number: 4,
    parameters: PARAMETERS.at(101_888, 28_928),
    gradients: GRADIENTS.at(101_888, 28_928),
    first_moment: OPTIMIZER.at(90_112, 14_464),
    second_moment: OPTIMIZER.at(221_184, 14_464),
    saved: ACTIVATIONS.at(2_455_552, 751_616),
    output: ACTIVATIONS.at(3_207_168, 49_152),
    ..UnitBuffers::NONE
};

/// `norm`: 48 parameters.
pub const NORM: UnitBuffers = UnitBuffers {
    number: 5,
    parameters: PARAMETERS.at(130_816, 256),
    gradients: GRADIENTS.at(130_816, 256),
    first_moment: OPTIMIZER.at(106_496, 128),
    second_moment: OPTIMIZER.at(237_568, 128),
    saved: ACTIVATIONS.at(3_256_320, 4_096),
    output: ACTIVATIONS.at(3_260_416, 49_152),
    ..UnitBuffers::NONE
};

/// `head`, which computes on the parameters of `embed`.
pub const HEAD: UnitBuffers = UnitBuffers {
    number: 6,
    gradients: GRADIENTS.at(131_072, 15_104),
    output: ACTIVATIONS.at(3_309_568, 2_048),
    ..UnitBuffers::NONE
};

/// HEAD to HEAD.
pub const BUCKET_0: BucketBuffer = BucketBuffer::new(0, GRADIENTS.at(131_072, 15_104));
/// EMBED to NORM.
pub const BUCKET_1: BucketBuffer = BucketBuffer::new(1, GRADIENTS.at(0, 131_072));
pub const SLOT_0: SlotBuffer = SlotBuffer::in_place(0);
pub const ACTIVATIONS_0: SlotBuffer = SlotBuffer::new(0, ACTIVATIONS.at(0, 3_311_616));
pub const WINDOW_0: WindowBuffer = WindowBuffer {
    number: 0,
    first_moment: OPTIMIZER_WINDOW.at(0, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(49_152, 16_384),
    ..WindowBuffer::NONE
};
pub const WINDOW_1: WindowBuffer = WindowBuffer {
    number: 1,
    first_moment: OPTIMIZER_WINDOW.at(16_384, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(65_536, 16_384),
    ..WindowBuffer::NONE
};
pub const WINDOW_2: WindowBuffer = WindowBuffer {
    number: 2,
    first_moment: OPTIMIZER_WINDOW.at(32_768, 16_384),
    second_moment: OPTIMIZER_WINDOW.at(81_920, 16_384),
    ..WindowBuffer::NONE
};

/// A training step.
pub fn step(rank: &mut impl StepOps) {
    // Forward of micro-batch 0.
    rank.fetch(EMBED, UnitPiece(0), WINDOW_0, 16_384);
    rank.fetch(BLOCKS_0, UnitPiece(0), WINDOW_1, 32_768);
    rank.fetch(BLOCKS_1, UnitPiece(0), WINDOW_2, 32_768);
    rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 49_152);
    rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 53_248);
    rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 2_048);
    // Backward of micro-batch 0.
    rank.claim(BUCKET_0, 15_104);
    rank.backward(HEAD, MicroBatch(0), ACTIVATIONS_0, 64_256);
    rank.reduce_scatter(BUCKET_0, Reduction(0), 15_104);
    rank.claim(BUCKET_1, 131_072);
    rank.backward(NORM, MicroBatch(0), ACTIVATIONS_0, 49_408);
    rank.backward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.backward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.backward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.backward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 78_080);
    rank.backward(EMBED, MicroBatch(0), ACTIVATIONS_0, 15_104);
    rank.reduce_scatter(BUCKET_1, Reduction(0), 131_072);
    rank.settle(BUCKET_0, Reduction(0), 7_552);
    rank.settle(BUCKET_1, Reduction(0), 65_536);
    rank.fold(HEAD, 7_552);
    // The update.
    rank.agree(64);
    rank.update_piece(EMBED, UnitPiece(0), WINDOW_0, 22_656);
    rank.store(EMBED, UnitPiece(0), WINDOW_0, 16_384);
    rank.fetch(BLOCKS_2, UnitPiece(0), WINDOW_0, 32_768);
    rank.gather(EMBED, SLOT_0, 15_104);
    rank.update_piece(BLOCKS_0, UnitPiece(0), WINDOW_1, 43_392);
    rank.store(BLOCKS_0, UnitPiece(0), WINDOW_1, 32_768);
    rank.fetch(BLOCKS_3, UnitPiece(0), WINDOW_1, 32_768);
    rank.gather(BLOCKS_0, SLOT_0, 28_928);
    rank.update_piece(BLOCKS_1, UnitPiece(0), WINDOW_2, 43_392);
    rank.store(BLOCKS_1, UnitPiece(0), WINDOW_2, 32_768);
    rank.fetch(NORM, UnitPiece(0), WINDOW_2, 8_192);
    rank.gather(BLOCKS_1, SLOT_0, 28_928);
    rank.update_piece(BLOCKS_2, UnitPiece(0), WINDOW_0, 43_392);
    rank.store(BLOCKS_2, UnitPiece(0), WINDOW_0, 32_768);
    rank.gather(BLOCKS_2, SLOT_0, 28_928);
    rank.update_piece(BLOCKS_3, UnitPiece(0), WINDOW_1, 43_392);
    rank.store(BLOCKS_3, UnitPiece(0), WINDOW_1, 32_768);
    rank.gather(BLOCKS_3, SLOT_0, 28_928);
    rank.update_piece(NORM, UnitPiece(0), WINDOW_2, 384);
    rank.store(NORM, UnitPiece(0), WINDOW_2, 8_192);
    rank.gather(NORM, SLOT_0, 256);
    rank.wait(EMBED, 15_104);
    rank.wait(BLOCKS_0, 28_928);
    rank.wait(BLOCKS_1, 28_928);
    rank.wait(BLOCKS_2, 28_928);
    rank.wait(BLOCKS_3, 28_928);
    rank.wait(NORM, 256);
}

/// A forward without a backward.
pub fn evaluation(rank: &mut impl StepOps) {
    // Forward of micro-batch 0.
    rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 49_152);
    rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 800_768);
    rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 53_248);
    rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 2_048);
}
