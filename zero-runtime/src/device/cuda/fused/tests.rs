//! Tests of descriptions with cuDNN itself, for devices that are not there: their properties are given as text, and the
//! driver is one that accepts everything. `tests/cudnn/check.sh` gets the library; without it, only its recorded
//! figures are tested.

use super::choice::EngineChoice;
use super::descriptor::Knob;
use super::*;

/// `CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`
const DEVICE_TEXT: c_int = 2702;

const SHAPE: AttentionShape =
    AttentionShape { sequences: 2, length: 64, before: 0, heads: 4, key_heads: 4, head_dim: 64, window: None };

fn shape([sequences, length, heads, key_heads, head_dim]: [usize; 5]) -> AttentionShape {
    AttentionShape { sequences, length, heads, key_heads, head_dim, ..SHAPE }
}

/// The workspace bytes of cuDNN 9.28.1, on compute capability 9.0 and 10.0.
const ASKED: [([usize; 5], [usize; 2]); 9] = [
    ([64, 1024, 12, 12, 64], [204_570_880, 6_291_584]),
    ([4, 2048, 32, 8, 128], [269_517_056, 270_532_736]),
    ([1, 8192, 8, 1, 128], [67_379_456, 67_633_280]),
    ([1, 4097, 2, 1, 128], [8_424_960, 8_456_576]),
    ([2, 300, 6, 2, 80], [2_319_232, 2_333_056]),
    ([2, 777, 4, 4, 40], [1_020_672, 50_048]),
    ([1, 17, 4, 2, 8], [5_248, 5_504]),
    ([7, 1, 3, 1, 128], [22_144, 21_888]),
    ([1, 1, 1, 1, 8], [640, 384]),
];

#[test]
fn a_plan_has_as_much_room_as_was_asked_for_and_little_more() {
    for (sizes, asked) in ASKED {
        let (room, most) = (shape(sizes).fused_bytes(), asked[0].max(asked[1]));
        assert!(most + WORKSPACE_ALIGNMENT <= room && room <= most + most / 16 + 4096, "{sizes:?}: {room} for {most}");
    }
}

#[test]
fn room_grows_with_the_tokens_and_not_with_their_square() {
    let room = |length| shape([1, length, 2, 2, 64]).fused_bytes() - shape([1, 0, 2, 2, 64]).fused_bytes();
    assert_eq!(room(8192), 64 * room(128));
}

#[test]
fn a_shape_is_told_in_words() {
    let of = |shape, is_backward| FusedShape { shape, strides: [768; 3], is_backward }.to_string();
    assert_eq!(of(SHAPE, false), "attention of 2 sequences of 64 tokens, 4 heads of 64");
    let shared = AttentionShape { key_heads: 2, window: Some(16), ..SHAPE };
    let expected =
        "gradients of attention of 2 sequences of 64 tokens, 4 heads of 64 that share 2 of keys, within 16 tokens";
    assert_eq!(of(shared, true), expected);
}

/// A data-centre device of this capability.
fn described(library: &'static Dnn, [major, minor]: [i32; 2]) -> Rc<Descriptor> {
    let text = format!(
        r#"{{"deviceVer": {}, "driverVer": 13000, "cudaDeviceId": 0, "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132, "smCountOrigin": 0,
        "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
        "oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
        "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
        "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120,
        "l2CacheSize": 52428800, "totalGlobalMem": 85520809984, "deviceName": "described"}}"#,
        100 * major + 10 * minor
    );
    let device = Descriptor::new(library, DEVICE).unwrap().with(DEVICE_TEXT, text.as_bytes()).unwrap();
    device.finalized().unwrap()
}

/// Plans of both passes of a shape.
fn plans(chooser: &Chooser, shape: AttentionShape) -> [FusedPlan; 2] {
    [false, true].map(|is_backward| {
        let of = FusedShape { shape, strides: [shape.qkv_width(); 3], is_backward };
        chooser.plan(&of).unwrap_or_else(|reason| panic!("{of} on {:?}: {reason}", chooser.capability))
    })
}

#[test]
#[ignore = "needs cuDNN, which tests/cudnn/check.sh gets"]
fn cudnn_plans_attention_in_the_room_that_a_plan_has() {
    let library = dnn().unwrap();
    // SAFETY: asks nothing.
    let version = unsafe { (library.cudnnGetVersion)() };
    assert!(version >= VERSION_MIN, "{version}");
    for (at, capability) in [[9, 0], [10, 0], [10, 3]].into_iter().enumerate() {
        let device = described(library, capability);
        let chooser = Chooser { library, device: &device, capability };
        let check = |shape: AttentionShape| {
            let [forward, backward] = plans(&chooser, shape);
            for plan in [&forward, &backward] {
                let (bytes, room) = (plan.workspace_bytes, shape.fused_bytes() - WORKSPACE_ALIGNMENT);
                assert!(bytes <= room, "{shape:?} on {capability:?}: {bytes} of {room} for {:?}", plan.choice);
            }
            backward
        };
        for (sizes, asked) in ASKED {
            let FusedPlan { choice: EngineChoice { engine, knobs }, workspace_bytes, .. } = check(shape(sizes));
            assert!(knobs.contains(&(Knob(14), if capability[0] == 9 { 4 } else { 2 })), "{engine}: {knobs:?}");
            if version == 92_801 && at < 2 {
                assert_eq!(workspace_bytes, asked[at], "{sizes:?} on {capability:?}");
            }
        }
        for head_dim in [8, 24, 96, HEAD_DIM_MAX] {
            check(AttentionShape { head_dim, ..SHAPE });
            check(AttentionShape { head_dim, length: 129, key_heads: 1, window: Some(32), ..SHAPE });
        }
    }
    // On other devices, the way that gives the same bits each time keeps scores of all pairs of tokens.
    let device = described(library, [8, 0]);
    let chooser = Chooser { library, device: &device, capability: [8, 0] };
    let of = FusedShape { shape: SHAPE, strides: [SHAPE.qkv_width(); 3], is_backward: true };
    let reason = chooser.plan(&of).err().expect("refused");
    assert!(reason.starts_with("on compute capability 8.0 cuDNN has no gradients"), "{reason}");
}
