//! NCCL in place of devices that reach one another's memory: the same bits, the planned bytes, and one error with a code if NCCL is
//! missing, too old or fails.

use zero_core::device::Device;
use zero_core::model::Program;
use zero_engine::RunError;
use zero_plan::{Config, DeviceKind, Offload, PlanBuf, TierKind, TransportKind};
use zero_ranks::launch::LaunchError;
use zero_ranks::transport::{Lost, local};
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, Outcome, STEPS, Start, assert_as_planned, mesh, noise, train_rank};

use super::engine::over;

/// Trains over NCCL, compares each rank with its plan, and returns the outcome of each.
struct Attempt<F>(F);

type Attempted = Result<Vec<Result<Outcome, RunError>>, LaunchError>;

impl<F: Fn(Config) -> Config> Attempt<F> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Attempted {
        let gpus = Config {
            device: DeviceKind::Cuda,
            transport: TransportKind::Nccl,
            memory_bytes: None,
            ..program.plan.config
        };
        let config = (self.0)(gpus);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            let ranks = local::run(plan, Result::is_err, |transport| {
                train_rank(program, transport, HYPER, STEPS, Start::Seed(7), &noise(config))
            })?;
            for (rank, outcome) in ranks.iter().enumerate() {
                if let Ok(Outcome { moved, mapped_bytes, .. }) = outcome {
                    assert_as_planned(plan, rank, STEPS, moved[0], mapped_bytes[0]);
                }
            }
            Ok(ranks)
        })
    }
}

fn attempt(name: &str, change: impl Fn(Config) -> Config) -> Attempted {
    Attempt(change).on(cuda_program(name))
}

/// Specs with each kind of axis and of parcel: buckets over replicas, tied units, interleaved chunks.
#[test]
fn specs_train_to_the_bits_of_ranks_that_reach_one_another() {
    if pretend::is_done_apart() || pretend::is_hardware() || !pretend::is_cuda() {
        return;
    }
    for (seed, name) in (0..).zip(["zero1", "gpipe", "interleaved", "hybrid", "muon"]) {
        let expected = over(TransportKind::Peer, name, |config| config).bits();
        pretend::seed(seed);
        let found = over(TransportKind::Nccl, name, |config| config).bits();
        assert!(found == expected, "{name}, seed {seed}: other bits");
        eprintln!("{name}: equal");
    }
}

/// In f32, in bf16, and with conversion of gathered parameters.
#[test]
fn stages_and_meshes_move_what_the_plan_says_and_give_the_same_bits() {
    if pretend::is_done_apart() || pretend::is_hardware() || !pretend::is_cuda() {
        return;
    }
    for name in ["zero3", "bf16", "mixed", "muon"] {
        for (mesh, layouts) in [(mesh(1, 1, 4), [(0, 0), (1, 0)]), (mesh(1, 2, 2), [(2, 0), (3, 1)])] {
            // All stages have the same result.
            let expected = over(TransportKind::Peer, name, |config| Config { mesh, ..config.at_stage(0) }).bits();
            for (stage, prefetch) in layouts {
                pretend::seed(u64::from(stage));
                let of = |config: Config| Config { mesh, prefetch, bucket_bytes: 1, ..config.at_stage(stage) };
                let ranks = attempt(name, of).unwrap();
                let losses: Vec<u64> = ranks[0].as_ref().unwrap().losses.iter().map(|loss| loss.to_bits()).collect();
                assert!(losses == expected.0, "{name}: stage {stage} on {mesh:?} has other losses");
            }
        }
    }
}

/// Shards that each rank fetches from its host, for NCCL to gather.
#[test]
fn parameters_in_host_memory_are_gathered_from_where_they_were_fetched_to() {
    if pretend::is_done_apart() || pretend::is_hardware() || !pretend::is_cuda() {
        return;
    }
    for (seed, name) in (0..).zip(["zero3", "bf16"]) {
        let here = |config: Config| Config { mesh: mesh(1, 2, 2), prefetch: 1, ..config.at_stage(3) };
        let expected = over(TransportKind::Peer, name, here).bits();
        pretend::seed(seed);
        let (optimizer, parameters) = (TierKind::Host, TierKind::Host);
        let offload = Offload { optimizer, parameters, prefetch: 1, piece_bytes: 8192, ..Offload::NONE };
        let ranks = attempt(name, |config| Config { offload, ..here(config) }).unwrap();
        let losses: Vec<u64> = ranks[0].as_ref().unwrap().losses.iter().map(|loss| loss.to_bits()).collect();
        assert!(losses == expected.0, "{name}: other losses");
    }
}

/// Runs this test of this file again, in a process for each of these failures, which calls `inside` once.
fn apart(test: &str, failures: &[(&str, &str)], inside: impl FnOnce()) {
    if pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        return inside();
    }
    for (failure, expected) in failures {
        let variables = [("PRETEND_FAIL", *failure), ("EXPECTED", *expected)];
        let output = pretend::again(&format!("nccl::{test}"), &variables);
        assert!(output.status.success(), "{failure}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_missing_or_too_old_is_one_coded_error() {
    let inside = || {
        assert!(pretend::is_cuda());
        let error = attempt("zero3", |config| config).unwrap_err();
        assert_eq!(error.code(), std::env::var("EXPECTED").unwrap(), "{}", error.report());
    };
    let failures = [
        ("symbol:ncclSend", "Z0431"),
        ("nccl:22703", "Z0445"),
        ("ncclGetUniqueId:1", "Z0446"),
        ("ncclCommInitRankConfig:2", "Z0446"),
    ];
    apart("what_is_missing_or_too_old_is_one_coded_error", &failures, inside);
}

#[test]
fn z0430_without_the_library_nothing_carries_instead() {
    apart("z0430_without_the_library_nothing_carries_instead", &[("", "Z0430")], || {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"] {
            std::os::unix::fs::symlink(pretend::libraries().unwrap().join(name), folder.path().join(name)).unwrap();
        }
        zero_cuda::use_libraries(folder.path());
        let error = attempt("zero3", |config| config).unwrap_err();
        assert!(error.code() == "Z0430" && error.report().contains("libnccl.so.2"), "{}", error.report());
    });
}

/// One rank reports what failed and in which op; the others report its end. NCCL is called in the first two steps.
#[test]
fn z0446_what_fails_in_a_step_is_told_once() {
    let inside = || {
        assert!(pretend::is_cuda());
        let ranks = attempt("zero3", |config| config).unwrap();
        let lost: Vec<&Lost> = ranks
            .iter()
            .map(|rank| match rank {
                Err(RunError::Lost(lost)) => lost,
                other => panic!("{other:?}"),
            })
            .collect();
        let broken: Vec<_> = lost.iter().filter(|lost| matches!(lost, Lost::Device(_))).collect();
        assert!(broken.len() == 1 && broken[0].to_string().contains("error[Z0446]"), "{lost:?}");
        assert!(lost.iter().all(|lost| matches!(lost, Lost::Device(_) | Lost::Ended { .. })), "{lost:?}");
    };
    let failures = ["ncclSend:20", "ncclRecv:27", "ncclAllGather:30", "ncclCommGetAsyncError:60"]
        .map(|failure| (failure, "Z0446"));
    apart("z0446_what_fails_in_a_step_is_told_once", &failures, inside);
}
