//! Failures on ranks that are threads: one rank reports what failed and in which op, the others report its end, and all resources
//! of the driver are released. Each failure has its own process, because failures are set for a process.

use zero_core::device::Device;
use zero_core::model::Program;
use zero_cuda::Cuda;
use zero_engine::{Engine, RunError};
use zero_plan::PlanBuf;
use zero_ranks::launch::LaunchError;
use zero_ranks::transport::{Broken, Lost, Shared, local};
use zero_tests::layout::{CUDA, changed};
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, Start, noise, train_engine};

/// Runs a test of this file again, in another process that calls `inside`.
fn apart(test: &str, inside: impl FnOnce()) {
    if pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        assert!(pretend::is_cuda());
        return inside();
    }
    let output = pretend::again(&format!("failures::{test}"), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Two ranks that train while something fails.
struct Two<'a>(&'a str);

impl Two<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Result<Vec<Result<(), RunError>>, LaunchError> {
        let config = changed(program.plan.config, &[CUDA, "mesh=1x1x2", "stage=3", "prefetch=1"]);
        PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
            pretend::fail(self.0);
            local::run(plan, Result::is_err, |transport: Shared<D>| {
                let engine = Engine::new(program, transport);
                train_engine(engine, HYPER, 3, Start::Seed(7), &noise(config)).map(drop)
            })
        })
    }
}

fn train(failures: &str) -> Result<Vec<Result<(), RunError>>, LaunchError> {
    Two(failures).on(cuda_program("zero3"))
}

#[test]
fn nothing_is_held_after_a_run() {
    apart("nothing_is_held_after_a_run", || {
        assert_eq!(train("").expect("a start"), [Ok(()), Ok(())]);
        assert_eq!(pretend::held(), 0);
    });
}

#[test]
fn a_failure_at_the_start_is_told_and_all_is_given_back() {
    apart("a_failure_at_the_start_is_told_and_all_is_given_back", || {
        let cases = [
            ("memory:1", "Z0435"),
            ("memory:4", "Z0435"),
            ("host_memory:2", "Z0442"),
            ("cuEventCreate:90", "Z0440"),
            ("cuMemMap:3", "Z0440"),
            ("cuMemAddressReserve:2", "Z0440"),
            ("cuStreamCreateWithPriority:7", "Z0440"),
            ("cuMemHostRegister_v2:1", "Z0440"),
        ];
        for (failures, code) in cases {
            let error = train(failures).expect_err(failures);
            assert_eq!(error.code(), code, "{failures}: {error}");
            assert_eq!(pretend::held(), 0, "{failures}");
        }
    });
}

/// Long after the start, in an op of a step: one rank reports what failed and where, the other reports its end.
#[test]
fn a_kernel_that_does_not_start_in_a_step_is_told_once() {
    apart("a_kernel_that_does_not_start_in_a_step_is_told_once", || {
        let ranks = train("launch:300").expect("a start");
        assert_eq!(pretend::held(), 0);
        let errors: Vec<_> = ranks.into_iter().map(|rank| rank.expect_err("no rank goes on alone")).collect();
        let broken = errors.iter().filter_map(|error| match error {
            RunError::Lost(Lost::Device(broken)) => Some(broken),
            _ => None,
        });
        let broken: Vec<_> = broken.collect();
        assert_eq!(broken.len(), 1, "{errors:?}");
        let Broken { failure, rank, doing } = &**broken[0];
        assert_eq!(failure.code, "Z0438", "{failure}");
        assert!(doing.contains(" of the step, `"), "{doing}");
        assert!(errors.contains(&RunError::Lost(Lost::Ended { rank: *rank })), "{errors:?}");
    });
}

/// Everything that the first step needs is prepared before it: the step loads nothing, and selects no algorithm for a product.
#[test]
fn nothing_is_compiled_after_the_start() {
    apart("nothing_is_compiled_after_the_start", || {
        for name in ["zero3", "bf16"] {
            Rehearsed.on(cuda_program(name));
        }
    });
}

struct Rehearsed;

impl Rehearsed {
    fn on<D: Device>(self, program: &'static Program<D>) {
        for words in [["mesh=1x1x2", "stage=3"], ["mesh=1x2x2", "stage=2"], ["mesh=2x1x1", "stage=0"]] {
            let config = changed(changed(program.plan.config, &[CUDA, "micro_batches=2"]), &words);
            let work = |transport: Shared<D>| {
                let mut engine = Engine::new(program, transport);
                engine.rehearse()?;
                engine.initialize(7);
                // All ranks reach this point before one of them may fail. A captured step allocates events and host memory, so
                // these calls do not fail; its graph takes device memory, but not by an allocation.
                engine.gather_numbers(&[0.0])?;
                pretend::fail("module:1,memory:1");
                let products = ways(&engine);
                for step in 0..2 {
                    engine
                        .step(&HYPER, |micro_batch, ids, targets| noise(config)(step, 0, micro_batch, ids, targets))?;
                }
                engine.evaluate(|micro_batch, ids, targets| noise(config)(0, 0, micro_batch, ids, targets))?;
                assert_eq!(ways(&engine), products, "{words:?}: a product that was not rehearsed");
                engine.gather_numbers(&[0.0])?;
                Ok::<_, RunError>(())
            };
            let ranks = PlanBuf::new(program.plan.model, config, program.plan.units)
                .with(|plan| local::run(plan, Result::is_err, work))
                .expect("memory");
            assert!(ranks.iter().all(Result::is_ok), "{words:?}: {ranks:?}");
            pretend::fail("");
        }
    }
}

/// A hash of the algorithms of products.
fn ways<'p, D: Device>(engine: &Engine<'p, D, Shared<'p, D>>) -> u64 {
    let device: &dyn std::any::Any = engine.device();
    device.downcast_ref::<Cuda>().expect("a CUDA device").products()
}
