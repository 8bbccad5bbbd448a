//! A worker of the model that `published` trains, with three slots, and room for newer parameters unless `STAGED` is `no`.

use std::process::ExitCode;

use zero_core::model::{Model, Program};
use zero_plan::{Config, PlanBuf, Serve};
use zero_runtime::Runs;
use zero_runtime::device::Cpu;
use zero_tests::tiny::Published;

fn main() -> ExitCode {
    let program: &Program<Cpu> = Published::PROGRAM;
    let staged = std::env::var("STAGED").as_deref() != Ok("no");
    let Config { sequences, .. } = program.plan.config;
    // The sizes of its units are those of micro-batches of the spec.
    let config = Config { sequences, ..program.plan.config.serving(Serve { slots: 3, staged }) };
    let made = Box::leak(Box::new(PlanBuf::new(program.plan.model, config, program.plan.units)));
    let plan = Box::leak(Box::new(made.as_plan(made.pipeline_stages().leak())));
    let worker = Box::leak(Box::new(Program { plan, ..*program }));
    Runs::run(worker, std::env::args_os().collect(), None)
}
