// `Hybrid` under specs/hybrid.ron, as `cargo zero expand` writes it.
// ZeRO stage 3, prefetch 2. Mesh: zero 4, replica 1, pipeline 2.
// Offsets and lengths are in bytes: those of buffers within their regions.

pub mod pipeline_stage_0 {
    #[allow(unused_imports)]
    use zero_plan::{Axis, Home, Kind, Parcel};
    use zero_study::expand::step::*;

    pub const PRIVATE_BYTES: usize = 985_728;
    pub const SHARED_BYTES: usize = 115_776;
    pub const COMMON_BYTES: usize = 72_960;
    pub const PARAMETERS: ArenaRegion = ArenaRegion::new(Kind::Parameters, Home::Common, 0, 72_960);
    pub const GRADIENTS: ArenaRegion = ArenaRegion::new(Kind::Gradients, Home::Shared, 0, 72_960);
    pub const REDUCED: ArenaRegion = ArenaRegion::new(Kind::Reduced, Home::Shared, 72_960, 18_240);
    pub const OPTIMIZER: ArenaRegion = ArenaRegion::new(Kind::Optimizer, Home::Private, 0, 36_480);
    pub const ACTIVATIONS: ArenaRegion =
        ArenaRegion::new(Kind::Activations, Home::Private, 36_480, 801_792);
    pub const ACTIVATION_GRADIENTS: ArenaRegion =
        ArenaRegion::new(Kind::ActivationGradients, Home::Private, 838_272, 24_576);
    pub const OUTGOING: ArenaRegion =
        ArenaRegion::new(Kind::Outgoing, Home::Shared, 91_200, 24_576);
    pub const WORKSPACE: ArenaRegion =
        ArenaRegion::new(Kind::Workspace, Home::Private, 862_848, 122_880);

    /// `embed`: 3_768 parameters.
    pub const EMBED: UnitBuffers = UnitBuffers {
        number: 0,
        parameters: PARAMETERS.at(0, 15_104),
        gradients: GRADIENTS.at(0, 15_104),
        reduced: REDUCED.at(0, 3_776),
        first_moment: OPTIMIZER.at(0, 3_776),
        second_moment: OPTIMIZER.at(18_240, 3_776),
        output: ACTIVATIONS.at(512, 12_288),
        ..UnitBuffers::NONE
    };

    /// `blocks[0]`: 7_224 parameters.
    pub const BLOCKS_0: UnitBuffers = UnitBuffers {
        number: 1,
        parameters: PARAMETERS.at(15_104, 28_928),
        gradients: GRADIENTS.at(15_104, 28_928),
        reduced: REDUCED.at(3_776, 7_232),
        first_moment: OPTIMIZER.at(3_776, 7_232),
        second_moment: OPTIMIZER.at(22_016, 7_232),
        saved: ACTIVATIONS.at(12_800, 187_904),
        output: ACTIVATIONS.at(200_704, 12_288),
        ..UnitBuffers::NONE
    };

    /// `blocks[1]`: 7_224 parameters.
    pub const BLOCKS_1: UnitBuffers = UnitBuffers {
        number: 2,
        parameters: PARAMETERS.at(44_032, 28_928),
        gradients: GRADIENTS.at(44_032, 28_928),
        reduced: REDUCED.at(11_008, 7_232),
        first_moment: OPTIMIZER.at(11_008, 7_232),
        second_moment: OPTIMIZER.at(29_248, 7_232),
        saved: ACTIVATIONS.at(212_992, 187_904),
        ..UnitBuffers::NONE
    };

    /// EMBED to BLOCKS_1.
    pub const BUCKET_2: BucketBuffer = BucketBuffer::new(2, GRADIENTS.at(0, 72_960));
    pub const SLOT_0: SlotBuffer = SlotBuffer::in_place(0);
    pub const SLOT_1: SlotBuffer = SlotBuffer::in_place(1);
    pub const SLOT_2: SlotBuffer = SlotBuffer::in_place(2);
    pub const ACTIVATIONS_0: SlotBuffer = SlotBuffer::new(0, ACTIVATIONS.at(0, 400_896));
    pub const ACTIVATIONS_1: SlotBuffer = SlotBuffer::new(1, ACTIVATIONS.at(400_896, 400_896));

    /// A training step.
    pub fn step(rank: &mut impl StepOps) {
        // Forward of micro-batch 0.
        rank.gather(EMBED, SLOT_0, 15_104);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(EMBED, 15_104);
        rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 12_288);
        rank.release(EMBED, 15_104);
        rank.gather(EMBED, SLOT_0, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_1, 28_928);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(0), 12_288);
        // Forward of micro-batch 1.
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(EMBED, 15_104);
        rank.forward(EMBED, MicroBatch(1), ACTIVATIONS_1, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(1), ACTIVATIONS_1, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.gather(EMBED, SLOT_1, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(1), ACTIVATIONS_1, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(1), 12_288);
        // Backward of micro-batch 0.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(0),
            ACTIVATIONS_0,
            12_288,
        );
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_2, 28_928);
        rank.gather(BLOCKS_1, SLOT_0, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(0), ACTIVATIONS_0, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(0), 72_960);
        // Forward of micro-batch 2.
        rank.forward(EMBED, MicroBatch(2), ACTIVATIONS_0, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(2), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(EMBED, SLOT_2, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(2), ACTIVATIONS_0, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(2), 12_288);
        // Backward of micro-batch 1.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(1),
            ACTIVATIONS_1,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(0), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(1), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(1), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.gather(BLOCKS_1, SLOT_1, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(1), ACTIVATIONS_1, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(1), 72_960);
        // Forward of micro-batch 3.
        rank.forward(EMBED, MicroBatch(3), ACTIVATIONS_1, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(3), ACTIVATIONS_1, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_2, 28_928);
        rank.gather(EMBED, SLOT_0, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(3), ACTIVATIONS_1, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(3), 12_288);
        // Backward of micro-batch 2.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(2),
            ACTIVATIONS_0,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(1), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(2), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(2), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(2), ACTIVATIONS_0, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(2), 72_960);
        // Forward of micro-batch 4.
        rank.forward(EMBED, MicroBatch(4), ACTIVATIONS_0, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(4), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.gather(EMBED, SLOT_1, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(4), ACTIVATIONS_0, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(4), 12_288);
        // Backward of micro-batch 3.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(3),
            ACTIVATIONS_1,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(2), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(3), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(3), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_2, 28_928);
        rank.gather(BLOCKS_1, SLOT_0, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(3), ACTIVATIONS_1, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(3), 72_960);
        // Forward of micro-batch 5.
        rank.forward(EMBED, MicroBatch(5), ACTIVATIONS_1, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(5), ACTIVATIONS_1, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(EMBED, SLOT_2, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(5), ACTIVATIONS_1, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(5), 12_288);
        // Backward of micro-batch 4.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(4),
            ACTIVATIONS_0,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(3), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(4), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(4), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.gather(BLOCKS_1, SLOT_1, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(4), ACTIVATIONS_0, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(4), 72_960);
        // Forward of micro-batch 6.
        rank.forward(EMBED, MicroBatch(6), ACTIVATIONS_0, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(6), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_2, 28_928);
        rank.gather(EMBED, SLOT_0, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(6), ACTIVATIONS_0, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(6), 12_288);
        // Backward of micro-batch 5.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(5),
            ACTIVATIONS_1,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(4), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(5), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(5), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(5), ACTIVATIONS_1, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(5), 72_960);
        // Forward of micro-batch 7.
        rank.forward(EMBED, MicroBatch(7), ACTIVATIONS_1, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(7), ACTIVATIONS_1, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.gather(EMBED, SLOT_1, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(7), ACTIVATIONS_1, 200_192);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(7), 12_288);
        // Backward of micro-batch 6.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(6),
            ACTIVATIONS_0,
            12_288,
        );
        rank.settle(BUCKET_2, Reduction(5), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(6), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(6), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.gather(BLOCKS_0, SLOT_0, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(6), ACTIVATIONS_0, 15_104);
        rank.release(EMBED, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(6), 72_960);
        // Backward of micro-batch 7.
        rank.receive(
            Parcel::Gradients,
            BLOCKS_1,
            MicroBatch(7),
            ACTIVATIONS_1,
            12_288,
        );
        rank.gather(EMBED, SLOT_1, 15_104);
        rank.wait(BLOCKS_1, 28_928);
        rank.settle(BUCKET_2, Reduction(6), 18_240);
        rank.claim(BUCKET_2, 72_960);
        rank.backward(BLOCKS_1, MicroBatch(7), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_1, 28_928);
        rank.wait(BLOCKS_0, 28_928);
        rank.backward(BLOCKS_0, MicroBatch(7), ACTIVATIONS_1, 41_216);
        rank.release(BLOCKS_0, 28_928);
        rank.wait(EMBED, 15_104);
        rank.backward(EMBED, MicroBatch(7), ACTIVATIONS_1, 15_104);
        rank.release(EMBED, 15_104);
        rank.reduce_scatter(BUCKET_2, Reduction(7), 72_960);
        rank.settle(BUCKET_2, Reduction(7), 18_240);
        rank.receive(
            Parcel::TiedGradients,
            EMBED,
            MicroBatch(0),
            ACTIVATIONS_0,
            3_776,
        );
        // The update.
        rank.agree(64);
        rank.update(EMBED, 11_328);
        rank.send(Parcel::TiedParameters, EMBED, MicroBatch(0), 3_776);
        rank.update(BLOCKS_0, 21_696);
        rank.update(BLOCKS_1, 21_696);
    }

    /// A forward without a backward.
    pub fn evaluation(rank: &mut impl StepOps) {
        // Forward of micro-batch 0.
        rank.gather(EMBED, SLOT_0, 15_104);
        rank.gather(BLOCKS_0, SLOT_1, 28_928);
        rank.gather(BLOCKS_1, SLOT_2, 28_928);
        rank.wait(EMBED, 15_104);
        rank.forward(EMBED, MicroBatch(0), ACTIVATIONS_0, 12_288);
        rank.release(EMBED, 15_104);
        rank.wait(BLOCKS_0, 28_928);
        rank.forward(BLOCKS_0, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_0, 28_928);
        rank.wait(BLOCKS_1, 28_928);
        rank.clear(Parcel::Activations, 12_288);
        rank.forward(BLOCKS_1, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_1, 28_928);
        rank.send(Parcel::Activations, BLOCKS_1, MicroBatch(0), 12_288);
    }
}

pub mod pipeline_stage_1 {
    #[allow(unused_imports)]
    use zero_plan::{Axis, Home, Kind, Parcel};
    use zero_study::expand::step::*;

    pub const PRIVATE_BYTES: usize = 603_520;
    pub const SHARED_BYTES: usize = 159_104;
    pub const COMMON_BYTES: usize = 73_216;
    pub const PARAMETERS: ArenaRegion = ArenaRegion::new(Kind::Parameters, Home::Common, 0, 73_216);
    pub const GRADIENTS: ArenaRegion = ArenaRegion::new(Kind::Gradients, Home::Shared, 0, 116_224);
    pub const REDUCED: ArenaRegion = ArenaRegion::new(Kind::Reduced, Home::Shared, 116_224, 18_304);
    pub const OPTIMIZER: ArenaRegion = ArenaRegion::new(Kind::Optimizer, Home::Private, 0, 29_056);
    pub const ACTIVATIONS: ArenaRegion =
        ArenaRegion::new(Kind::Activations, Home::Private, 29_056, 427_008);
    pub const ACTIVATION_GRADIENTS: ArenaRegion =
        ArenaRegion::new(Kind::ActivationGradients, Home::Private, 456_064, 24_576);
    pub const OUTGOING: ArenaRegion =
        ArenaRegion::new(Kind::Outgoing, Home::Shared, 134_528, 24_576);
    pub const WORKSPACE: ArenaRegion =
        ArenaRegion::new(Kind::Workspace, Home::Private, 480_640, 122_880);

    /// `blocks[2]`: 7_224 parameters.
    pub const BLOCKS_2: UnitBuffers = UnitBuffers {
        number: 3,
        parameters: PARAMETERS.at(0, 28_928),
        gradients: GRADIENTS.at(58_112, 28_928),
        reduced: REDUCED.at(0, 7_232),
        first_moment: OPTIMIZER.at(0, 7_232),
        second_moment: OPTIMIZER.at(14_528, 7_232),
        saved: ACTIVATIONS.at(12_800, 187_904),
        output: ACTIVATIONS.at(200_704, 12_288),
        ..UnitBuffers::NONE
    };

    /// `blocks[3]`: 7_224 parameters.
    pub const BLOCKS_3: UnitBuffers = UnitBuffers {
        number: 4,
        parameters: PARAMETERS.at(28_928, 28_928),
        gradients: GRADIENTS.at(87_040, 28_928),
        reduced: REDUCED.at(7_232, 7_232),
        first_moment: OPTIMIZER.at(7_232, 7_232),
        second_moment: OPTIMIZER.at(21_760, 7_232),
        saved: ACTIVATIONS.at(212_992, 187_904),
        output: ACTIVATIONS.at(400_896, 12_288),
        ..UnitBuffers::NONE
    };

    /// `norm`: 48 parameters.
    pub const NORM: UnitBuffers = UnitBuffers {
        number: 5,
        parameters: PARAMETERS.at(57_856, 256),
        gradients: GRADIENTS.at(115_968, 256),
        reduced: REDUCED.at(14_464, 64),
        first_moment: OPTIMIZER.at(14_464, 64),
        second_moment: OPTIMIZER.at(28_992, 64),
        saved: ACTIVATIONS.at(413_184, 1_024),
        output: ACTIVATIONS.at(414_208, 12_288),
        ..UnitBuffers::NONE
    };

    /// `head`, which computes on the parameters of `embed`.
    pub const HEAD: UnitBuffers = UnitBuffers {
        number: 6,
        parameters: PARAMETERS.at(58_112, 15_104),
        gradients: GRADIENTS.at(0, 15_104),
        reduced: REDUCED.at(14_528, 3_776),
        output: ACTIVATIONS.at(426_496, 512),
        ..UnitBuffers::NONE
    };

    /// HEAD to HEAD.
    pub const BUCKET_0: BucketBuffer = BucketBuffer::new(0, GRADIENTS.at(0, 15_104));
    /// BLOCKS_2 to NORM.
    pub const BUCKET_1: BucketBuffer = BucketBuffer::new(1, GRADIENTS.at(58_112, 58_112));
    pub const SLOT_0: SlotBuffer = SlotBuffer::in_place(0);
    pub const SLOT_1: SlotBuffer = SlotBuffer::in_place(1);
    pub const SLOT_2: SlotBuffer = SlotBuffer::in_place(2);
    pub const ACTIVATIONS_0: SlotBuffer = SlotBuffer::new(0, ACTIVATIONS.at(0, 427_008));

    /// A training step.
    pub fn step(rank: &mut impl StepOps) {
        // Forward of micro-batch 0.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(0),
            ACTIVATIONS_0,
            12_288,
        );
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 512);
        // Backward of micro-batch 0.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(0), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(0), 15_104);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(0), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(0), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(0), 58_112);
        rank.settle(BUCKET_0, Reduction(0), 3_776);
        // Forward of micro-batch 1.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(1),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(1), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(1), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(1), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(1), ACTIVATIONS_0, 512);
        // Backward of micro-batch 1.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(1), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(1), 15_104);
        rank.settle(BUCKET_1, Reduction(0), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(1), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(1), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(1), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(1), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(1), 58_112);
        rank.settle(BUCKET_0, Reduction(1), 3_776);
        // Forward of micro-batch 2.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(2),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(2), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(2), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(2), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(2), ACTIVATIONS_0, 512);
        // Backward of micro-batch 2.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(2), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(2), 15_104);
        rank.settle(BUCKET_1, Reduction(1), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(2), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(2), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(2), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(2), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(2), 58_112);
        rank.settle(BUCKET_0, Reduction(2), 3_776);
        // Forward of micro-batch 3.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(3),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(3), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(3), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(3), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(3), ACTIVATIONS_0, 512);
        // Backward of micro-batch 3.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(3), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(3), 15_104);
        rank.settle(BUCKET_1, Reduction(2), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(3), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(3), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(3), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(3), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(3), 58_112);
        rank.settle(BUCKET_0, Reduction(3), 3_776);
        // Forward of micro-batch 4.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(4),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(4), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(4), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(4), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(4), ACTIVATIONS_0, 512);
        // Backward of micro-batch 4.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(4), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(4), 15_104);
        rank.settle(BUCKET_1, Reduction(3), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(4), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(4), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(4), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(4), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(4), 58_112);
        rank.settle(BUCKET_0, Reduction(4), 3_776);
        // Forward of micro-batch 5.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(5),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(5), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(5), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(5), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(5), ACTIVATIONS_0, 512);
        // Backward of micro-batch 5.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(5), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(5), 15_104);
        rank.settle(BUCKET_1, Reduction(4), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(5), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(5), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(5), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(5), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(5), 58_112);
        rank.settle(BUCKET_0, Reduction(5), 3_776);
        // Forward of micro-batch 6.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(6),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(6), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(6), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(6), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(6), ACTIVATIONS_0, 512);
        // Backward of micro-batch 6.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(6), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(6), 15_104);
        rank.settle(BUCKET_1, Reduction(5), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(6), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(6), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(6), ACTIVATIONS_0, 41_216);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(6), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(6), 58_112);
        rank.settle(BUCKET_0, Reduction(6), 3_776);
        // Forward of micro-batch 7.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(7),
            ACTIVATIONS_0,
            12_288,
        );
        rank.forward(BLOCKS_2, MicroBatch(7), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(7), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(7), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.gather(NORM, SLOT_1, 256);
        rank.gather(BLOCKS_3, SLOT_2, 28_928);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(7), ACTIVATIONS_0, 512);
        // Backward of micro-batch 7.
        rank.claim(BUCKET_0, 15_104);
        rank.backward(HEAD, MicroBatch(7), ACTIVATIONS_0, 27_392);
        rank.release(HEAD, 15_104);
        rank.reduce_scatter(BUCKET_0, Reduction(7), 15_104);
        rank.settle(BUCKET_1, Reduction(6), 14_528);
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.wait(NORM, 256);
        rank.claim(BUCKET_1, 58_112);
        rank.backward(NORM, MicroBatch(7), ACTIVATIONS_0, 12_544);
        rank.release(NORM, 256);
        rank.wait(BLOCKS_3, 28_928);
        rank.backward(BLOCKS_3, MicroBatch(7), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(BLOCKS_2, 28_928);
        rank.clear(Parcel::Gradients, 12_288);
        rank.backward(BLOCKS_2, MicroBatch(7), ACTIVATIONS_0, 41_216);
        rank.release(BLOCKS_2, 28_928);
        rank.send(Parcel::Gradients, BLOCKS_2, MicroBatch(7), 12_288);
        rank.reduce_scatter(BUCKET_1, Reduction(7), 58_112);
        rank.settle(BUCKET_0, Reduction(7), 3_776);
        rank.send(Parcel::TiedGradients, HEAD, MicroBatch(0), 3_776);
        rank.settle(BUCKET_1, Reduction(7), 14_528);
        // The update.
        rank.agree(64);
        rank.update(BLOCKS_2, 21_696);
        rank.update(BLOCKS_3, 21_696);
        rank.update(NORM, 192);
        rank.receive(
            Parcel::TiedParameters,
            HEAD,
            MicroBatch(0),
            ACTIVATIONS_0,
            3_776,
        );
    }

    /// A forward without a backward.
    pub fn evaluation(rank: &mut impl StepOps) {
        // Forward of micro-batch 0.
        rank.receive(
            Parcel::Activations,
            BLOCKS_2,
            MicroBatch(0),
            ACTIVATIONS_0,
            12_288,
        );
        rank.gather(BLOCKS_2, SLOT_0, 28_928);
        rank.gather(BLOCKS_3, SLOT_1, 28_928);
        rank.gather(NORM, SLOT_2, 256);
        rank.wait(BLOCKS_2, 28_928);
        rank.forward(BLOCKS_2, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_2, 28_928);
        rank.gather(HEAD, SLOT_0, 15_104);
        rank.wait(BLOCKS_3, 28_928);
        rank.forward(BLOCKS_3, MicroBatch(0), ACTIVATIONS_0, 200_192);
        rank.release(BLOCKS_3, 28_928);
        rank.wait(NORM, 256);
        rank.forward(NORM, MicroBatch(0), ACTIVATIONS_0, 13_312);
        rank.release(NORM, 256);
        rank.wait(HEAD, 15_104);
        rank.forward(HEAD, MicroBatch(0), ACTIVATIONS_0, 512);
        rank.release(HEAD, 15_104);
    }
}
