//! Attention by cuDNN: close to zero's own kernels, with the same bits each time, under every stage, and in steps that
//! are graphs. Attention that cuDNN cannot do is refused before the first step, and nothing else takes its place.

use std::process::Command;

use zero_plan::{AttentionKind, Config, Kind, Plan, PlanBuf};
use zero_runtime::device::cuda::FOLDERS_VARIABLE;
use zero_runtime::device::{AttentionShape, Buffer, Cpu, Cuda, Device, bf16};
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::buffers::{noise as numbers_of, numbers, stored};
use zero_tests::fused::{Fused, Own};
use zero_tests::layout::{CUDA, changed};
use zero_tests::pretend;
use zero_tests::training::{HYPER, Outcome, STEPS, Start, mesh, noise, train};

use super::graphs::{assert_same_of, on};
use super::processes::on_cuda;
use crate::run::{End, Run, TEXT};

/// Far more than roundings to bf16 add up to in a few layers, and far less than the error of a wrong mask or scale.
const NEAR: f64 = 0.02;

fn trained<M: Model<Input = Tokens, Target = Tokens>>(words: &[&str]) -> Outcome {
    let config = changed(M::PLAN.config, &[&[CUDA], words].concat());
    train::<M>(config, HYPER, STEPS, Start::Seed(7), &noise(config))
}

/// The distance of two tensors, relative to the first.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let size: f64 = a.iter().map(|&a| square(f64::from(a))).sum();
    (difference / size.max(1e-30)).sqrt()
}

const SHAPE: AttentionShape =
    AttentionShape { sequences: 2, length: 33, before: 0, heads: 4, key_heads: 4, head_dim: 16, window: None };

/// The output of attention, then its gradients: by cuDNN if there is room for it, otherwise by zero's own kernels.
fn results<D: Device>(device: &D, shape: AttentionShape, room: Option<&mut Buffer<D, u8>>) -> [Vec<f32>; 2] {
    let len = shape.tokens() * shape.out_width();
    let qkv = stored::<D, bf16>(device, &numbers_of(shape.tokens() * shape.qkv_width(), 1));
    let dout = stored::<D, bf16>(device, &numbers_of(len, 2));
    let filled = |len| stored::<D, bf16>(device, &vec![f32::NAN; len]);
    let (mut out, mut dqkv) = (filled(len), filled(shape.tokens() * shape.qkv_width()));
    let mut lse = stored::<D, f32>(device, &vec![f32::NAN; shape.tokens() * shape.heads]);
    let [q, k, v] = shape.parts(qkv.view());
    match room {
        None => {
            device.attention(shape, q, k, v, out.view_mut(), lse.view_mut());
            device.attention_backward(shape, q, k, v, out.view(), lse.view(), dout.view(), dqkv.view_mut());
        }
        Some(room) => {
            device.fused_attention(shape, q, k, v, out.view_mut(), lse.view_mut(), room.view_mut());
            let (dout, to, room) = (dout.view(), dqkv.view_mut(), room.view_mut());
            device.fused_attention_backward(shape, q, k, v, out.view(), lse.view(), dout, to, room);
        }
    }
    [numbers(device, &out), numbers(device, &dqkv)]
}

fn fused_results(cuda: &Cuda, shape: AttentionShape, room_bytes: usize) -> [Vec<f32>; 2] {
    let mut room = Buffer::filled(cuda, room_bytes, 0u8).expect("memory for a small room");
    results(cuda, shape, Some(&mut room))
}

/// Whether cuDNN does attention here. If that of a GPU is missing, too old or not able to, this prints so, and nothing
/// is tested.
fn does_attention() -> bool {
    if !pretend::is_hardware() {
        return pretend::is_cuda();
    }
    let cuda = Cuda::open(0).expect("a GPU");
    fused_results(&cuda, SHAPE, SHAPE.fused_bytes());
    let Some(failure) = cuda.failure() else { return true };
    assert!(["Z0430", "Z0442", "Z0443"].contains(&failure.code), "{failure:?}");
    eprintln!("NOT TESTED: attention by cuDNN: {}", failure.what);
    false
}

#[test]
fn it_is_near_to_attention_of_the_processor_and_the_same_each_time() {
    if !does_attention() {
        return;
    }
    let cuda = Cuda::open(0).expect("a pretend device");
    for (key_heads, head_dim, length, window) in
        [(4, 16, 33, None), (2, 8, 33, Some(7)), (1, 64, 20, Some(1)), (4, 128, 1, None), (2, 24, 17, Some(400))]
    {
        let shape = AttentionShape { key_heads, head_dim, length, window, ..SHAPE };
        let [expected, found] =
            [results(&Cpu::default(), shape, None), fused_results(&cuda, shape, shape.fused_bytes())];
        for (what, (expected, found)) in ["out", "dqkv"].into_iter().zip(expected.iter().zip(&found)) {
            let apart = apart(expected, found);
            assert!(apart < NEAR / 2.0, "{what} of {shape:?} is {apart} apart");
        }
        assert!((0..3).all(|_| fused_results(&cuda, shape, shape.fused_bytes()) == found), "{shape:?} has other bits");
    }
    assert_eq!(cuda.failure(), None);
}

#[test]
fn z0444_a_room_that_is_too_short_is_refused() {
    if !does_attention() {
        return;
    }
    let cuda = Cuda::open(0).expect("a pretend device");
    fused_results(&cuda, SHAPE, SHAPE.fused_bytes() / 2);
    let failure = cuda.failure().expect("a refusal");
    assert_eq!(failure.code, "Z0444", "{failure:?}");
    assert!(failure.what.contains("gradients of attention of 2 sequences of 33 tokens"), "{}", failure.what);
}

#[test]
fn what_it_trains_is_near_to_what_own_kernels_do() {
    if !does_attention() {
        return;
    }
    for words in [["mesh=1x1x1", "stage=0"], ["mesh=1x1x2", "stage=3"]] {
        let (own, fused) = (trained::<Own>(&words), trained::<Fused>(&words));
        assert!(own.losses != fused.losses, "{words:?}: the kernels are the same");
        for (own, fused) in own.losses.iter().zip(&fused.losses) {
            assert!((own - fused).abs() < NEAR * own, "{words:?}: a loss of {own} and of {fused}");
        }
        assert_eq!(own.gradients.len(), fused.gradients.len());
        for (unit, (own, fused)) in own.gradients.iter().zip(&fused.gradients).enumerate() {
            let apart = apart(own, fused);
            assert!(apart < NEAR, "{words:?}: gradients of unit {unit} are {apart} apart");
        }
    }
}

#[test]
fn stages_and_orders_give_the_same_bits() {
    if !does_attention() {
        return;
    }
    let expected = trained::<Fused>(&["mesh=1x1x2", "stage=0"]).bits();
    for (seed, stage) in ["stage=0", "stage=1", "stage=2", "stage=3"].into_iter().enumerate() {
        pretend::seed(seed as u64 + 1);
        assert!(trained::<Fused>(&["mesh=1x1x2", stage]).bits() == expected, "{stage} has other bits");
    }
}

#[test]
fn graphs_give_the_bits_of_eager_steps() {
    if pretend::is_done_apart() || !does_attention() {
        return;
    }
    assert_same_of::<Fused>(&[1, 2], |config| on(mesh(1, 1, 2), 3, config));
}

/// A graph repeats what it has captured, so attention over other tensors is a different pass.
#[test]
fn z0449_a_pass_attends_to_something_else() {
    if !does_attention() {
        return;
    }
    let cuda = Cuda::open(0).expect("a pretend device");
    let [first, other] = [1, 2].map(|seed| stored(&cuda, &numbers_of(SHAPE.tokens() * SHAPE.qkv_width(), seed)));
    let mut out: Buffer<_, bf16> = stored(&cuda, &vec![0.0; SHAPE.tokens() * SHAPE.out_width()]);
    let mut lse: Buffer<_, f32> = stored(&cuda, &vec![0.0; SHAPE.tokens() * SHAPE.heads]);
    let mut room = Buffer::filled(&cuda, SHAPE.fused_bytes(), 0u8).expect("memory for a small room");
    let mut pass = |qkv: &Buffer<Cuda, bf16>| {
        let [q, k, v] = SHAPE.parts(qkv.view());
        cuda.begin_repeated(0);
        cuda.fused_attention(SHAPE, q, k, v, out.view_mut(), lse.view_mut(), room.view_mut());
        cuda.end_repeated();
        cuda.failure().map(|failure| failure.code)
    };
    assert_eq!([(); 3].map(|()| pass(&first)), [None; 3]);
    assert_eq!(pass(&other), Some("Z0449"));
}

/// The plans of both models, which differ only in the room.
#[test]
fn a_plan_has_the_room_that_the_largest_call_needs() {
    let (own, fused) = (Own::PLAN, Fused::PLAN);
    assert_eq!((own.config.attention, fused.config.attention), (AttentionKind::Own, AttentionKind::Cudnn));
    let shape =
        AttentionShape { sequences: 2, length: 11, before: 0, heads: 4, key_heads: 2, head_dim: 8, window: Some(5) };
    let far = AttentionShape { heads: 2, key_heads: 2, head_dim: 16, window: None, ..shape };
    let room = shape.fused_bytes().max(far.fused_bytes()).next_multiple_of(64);
    let workspace = |plan: &Plan| plan.units.iter().map(|unit| unit.workspace_bytes).max().expect("units");
    let more = workspace(fused) - workspace(own);
    assert!(room / 2 < more && more <= room, "{more} bytes for {room}");
    let region = |plan: &Plan| plan.pipeline_stages[0].memory.region(Kind::Workspace).bytes;
    assert!(region(fused) >= region(own) + more / 256 * 256);
    assert_ne!(own.fingerprint(), fused.fingerprint());
    let as_own = Config { attention: AttentionKind::Own, ..fused.config };
    PlanBuf::new(own.model, as_own, own.units).with(|plan| assert_eq!(plan.fingerprint(), own.fingerprint()));
}

/// A model of text for this many steps, with attention by cuDNN or, with the word `own`, by zero's own kernels.
fn text(word: Option<&str>, steps: u64, variables: &[(&str, &str)]) -> Command {
    let mut command = on_cuda(env!("CARGO_BIN_EXE_fused")).expect("libraries");
    command.args(word).arg("--data").arg(pretend::carried(TEXT));
    command.args(["--sample", "8", "--log-every", "1", "--steps", &steps.to_string()]);
    command.envs(variables.iter().copied());
    command
}

/// The end of a run with more variables. Its kernels are compiled before: a rank that is ended while it compiles leaves
/// the compiler behind. The other model has the same kernels, and never asks for cuDNN.
fn refused(places: &[(&str, &str)], failure: &str) -> End {
    Run::start(&mut text(Some("own"), 1, places)).end().assert_success(1);
    let mut command = text(None, u64::MAX, places);
    Run::start(command.env("PRETEND_FAIL", failure).env("PRETEND_RANK", "1")).end_at_once()
}

/// After training, text is sampled token by token, with attention by zero's own kernels.
#[test]
fn processes_train_and_sample() {
    if pretend::libraries().is_some() {
        Run::start(&mut text(None, 4, &[])).end().assert_success(4);
    }
}

#[test]
fn what_cudnn_cannot_do_is_refused_before_the_first_step() {
    if pretend::libraries().is_none() {
        return;
    }
    let ampere = [("PRETEND_CAPABILITY", "80")];
    for (places, failure, error, told) in [
        (&[][..], "dnn_version:92701", "Z0442", "is cuDNN 9.27.1, expected at least 9.28.0"),
        (&[], "symbol:cudnnBackendExecute", "Z0431", "has no function `cudnnBackendExecute`"),
        (&[], "dnn_create:1", "Z0436", "`cudnnCreate` failed on CUDA device"),
        (&[], "dnn_heuristic:1", "Z0443", "it has no way"),
        (&ampere, "", "Z0443", "on compute capability 8.0 cuDNN has no gradients that are the same each time"),
        (&[], "dnn_room:8192", "Z0444", "expected at most the "),
    ] {
        let end = refused(places, failure);
        let first = format!("error[{error}]: ");
        assert!(end.errors.starts_with(&first) && end.errors.contains(told), "{failure}: {}", end.errors);
        assert!(end.code == Some(2) && end.steps().is_empty(), "{failure}: {:?}: {}", end.code, end.errors);
    }
}

#[test]
fn z0430_without_cudnn_own_kernels_train_and_nothing_else_starts() {
    let Some(libraries) = pretend::libraries() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(libraries).unwrap() {
        let (file, name) = file.map(|file| (file.path(), file.file_name())).unwrap();
        if name != "libcudnn.so.9" {
            std::os::unix::fs::symlink(file, folder.path().join(name)).unwrap();
        }
    }
    let end = refused(&[(FOLDERS_VARIABLE, folder.path().to_str().unwrap())], "");
    assert!(end.errors.contains("error[Z0430]: cannot load `libcudnn.so.9`"), "{}", end.errors);
    assert!(end.errors.contains("`attention: Own`") && end.steps().is_empty(), "{}", end.errors);
}

#[test]
fn z0447_a_rank_whose_cudnn_chooses_otherwise_is_named() {
    if pretend::libraries().is_none() {
        return;
    }
    for (failure, what) in [
        ("dnn_version:92900", "another library cuDNN: expected 92801, on 1 of 2 ranks, found 92900"),
        ("dnn_way:1", "another choice of fused attention, with the hash: expected "),
    ] {
        let end = refused(&[], failure);
        end.assert_error(2, &format!("error[Z0447]: rank 1 has {what}"));
        assert_eq!(end.steps().len(), 0);
    }
}

#[test]
fn what_fails_in_a_step_is_told_with_its_op() {
    if pretend::libraries().is_none() {
        return;
    }
    let end = refused(&[], "dnn_execute:5");
    end.assert_error(2, "error[Z0443]: cuDNN cannot do ");
    assert!(end.errors.contains("  --> rank 1, in op "), "{}", end.errors);
}
