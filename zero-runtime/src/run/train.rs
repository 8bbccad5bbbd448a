//! Train: one rank's run from first parameters to the comparison of plan and measurement.

use std::path::Path;
use std::time::Instant;

use super::arguments::{RunArguments, UNPROFILED_STEPS};
use super::output::{NewFile, Output, StepLine, peak_resident_bytes, reset_peak_resident, say, tokens_per_s};
use super::threads::Threads;
use crate::data::{Dataset, Draw};
use crate::device::Cpu;
use crate::engine::Engine;
use crate::error::Error;
use crate::launch::LaunchError;
use crate::layer::Activation;
use crate::model::Model;
use crate::plan::{Bytes, Traffic};
use crate::profile::{Machine, Recorded, Tables, Trace, gather_records};
use crate::transport::{Shared, Transport};

/// What comes after training, before the comparison: a sample of what was learned, for example. Every rank does it, since
/// it takes part in gathers; rank 0 prints.
pub type Finale<'a, M> = &'a (dyn for<'p> Fn(&mut Engine<'p, M, Shared<'p>>) -> Result<(), Error> + Sync);

/// Trains as one rank, on threads of its own.
///
/// # Errors
/// Whatever ends a run early.
pub fn train<M: Model>(
    transport: Shared,
    arguments: &RunArguments,
    data: &dyn Dataset<Input = M::Input>,
    finale: Finale<M>,
) -> Result<(), Error> {
    let arena = transport.arena();
    let (name, ranks) = (format!("rank {}", arena.rank()), arena.plan().config.mesh.ranks());
    let threads = Threads::new(arguments.threads, ranks).per_rank;
    let work = |device| train_on::<M>(Engine::with_device(transport, device), arguments, data, finale);
    Cpu::on_threads(threads, &name, work).map_err(LaunchError::system("start a thread"))?
}

fn train_on<'p, M: Model>(
    mut engine: Engine<'p, M, Shared<'p>>,
    arguments: &RunArguments,
    data: &dyn Dataset<Input = M::Input>,
    finale: Finale<M>,
) -> Result<(), Error> {
    let config = &engine.plan().config;
    let rank = engine.arena().rank();
    let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
    let mut output = match rank {
        0 => Some(Output::new(arguments.steps, arguments.metrics.as_deref())?),
        _ => None,
    };
    let profiler = arguments.profile.as_deref().map(|path| Profiler::new(&mut engine, path)).transpose();
    if let (Err(_), Some(_), Some(metrics)) = (&profiler, &output, &arguments.metrics) {
        // Empty as yet, it would be in the way of the next try. Whatever hinders its removal, the error is the profile's.
        let _ = std::fs::remove_file(metrics);
    }
    let profiler = profiler?;
    engine.initialize(arguments.seed);

    let sent_before = engine.transport().sent().total_bytes();
    for step in 0..arguments.steps {
        if profiler.is_some() && step == UNPROFILED_STEPS {
            engine.record(arguments.profiled_steps());
        }
        let hyper = arguments.hyper(step);
        let start = Instant::now();
        let report = engine.step(&hyper, |micro_batch, inputs, targets| {
            let first = ((micro_batch * config.mesh.data_ranks() + data_rank) * config.sequences) as u64;
            let draw = |sequence: usize| Draw { seed: arguments.seed, step, index: first + sequence as u64 };
            for_each_sequence::<M>(config.length, inputs, targets, |sequence, input, targets| {
                data.training(draw(sequence), input, targets);
            });
        });
        if report.is_err()
            && let Some(output) = &mut output
        {
            output.finish();
        }
        let report = report?;
        if let Some(output) = &mut output {
            let took = start.elapsed();
            output.step(&StepLine {
                step: step + 1,
                loss: report.loss,
                gradient_norm: report.gradient_norm,
                lr: hyper.lr,
                step_s: took.as_secs_f64(),
                tokens_per_s: tokens_per_s(config.tokens_per_step(), took),
                peak_resident_bytes: peak_resident_bytes(),
            })?;
        }
    }
    if let Some(output) = &mut output {
        output.finish();
    }

    let sent_bytes = engine.transport().sent().total_bytes() - sent_before;
    if let Some(loss) = held_out_loss(&mut engine, arguments.held_out, data)?
        && let Some(output) = &mut output
    {
        say(&format!("held-out loss {loss:.4} nats\n"));
        output.record(&serde_json::json!({ "held_out_loss": loss }))?;
    }
    finale(&mut engine)?;
    compare(&mut engine, sent_bytes, arguments.steps)?;
    profiler.map_or(Ok(()), |profiler| profiler.finish(&mut engine))
}

/// What a run does for its profile before the first step and after the last one.
struct Profiler {
    machines: Vec<Machine>,
    /// Rank 0 writes for all.
    file: Option<NewFile>,
}

impl Profiler {
    /// Measures the machine, once it is clear that there is a file at `path` to write to.
    fn new<'p, M: Model>(engine: &mut Engine<'p, M, Shared<'p>>, path: &Path) -> Result<Self, Error> {
        let writes = engine.arena().rank() == 0;
        let file = writes.then(|| NewFile::create("a profile", path)).transpose()?;
        let machines = Machine::measure(engine)?;
        // What it took to measure is no part of what training takes.
        reset_peak_resident();
        Ok(Self { machines, file })
    }

    /// Brings together what all ranks recorded; rank 0 shows it.
    fn finish<'p, M: Model>(self, engine: &mut Engine<'p, M, Shared<'p>>) -> Result<(), Error> {
        let Some(record) = engine.take_record() else { return Ok(()) };
        let ranks = gather_records(engine, &record)?;
        let Some(mut file) = self.file else { return Ok(()) };
        let recorded = Recorded { plan: engine.plan(), ranks: &ranks, machines: &self.machines };
        file.write(|file| Trace(recorded).write(file))?;
        say(&format!("\n{}", Tables(recorded)));
        Ok(())
    }
}

/// Hands out the sequences of a micro-batch one by one: number, input, targets.
fn for_each_sequence<M: Model>(
    length: usize,
    inputs: &mut [<M::Input as Activation>::Element],
    targets: &mut [u32],
    mut each: impl FnMut(usize, &mut [<M::Input as Activation>::Element], &mut [u32]),
) {
    let inputs = inputs.chunks_exact_mut(length * M::Input::WIDTH);
    for (sequence, (input, targets)) in inputs.zip(targets.chunks_exact_mut(length)).enumerate() {
        each(sequence, input, targets);
    }
}

/// Mean loss over held-out sequences: those of `micro_batches` micro-batches a rank, or as many as there are.
fn held_out_loss<'p, M: Model>(
    engine: &mut Engine<'p, M, Shared<'p>>,
    micro_batches: usize,
    data: &dyn Dataset<Input = M::Input>,
) -> Result<Option<f64>, Error> {
    let config = &engine.plan().config;
    let (data_ranks, data_rank) = (config.mesh.data_ranks(), engine.arena().coordinates().data_rank(&config.mesh));
    let count = data.held_out_count();
    let micro_batches = micro_batches.min(count.div_ceil(data_ranks * config.sequences));
    let mut sum = 0.0;
    for micro_batch in 0..micro_batches {
        let first = (micro_batch * data_ranks + data_rank) * config.sequences;
        sum += engine.evaluate(|_, inputs, targets| {
            for_each_sequence::<M>(config.length, inputs, targets, |sequence, input, targets| {
                // The last micro-batch is filled up from the start.
                data.held_out((first + sequence) % count, input, targets);
            });
        })?;
    }
    Ok((micro_batches > 0).then(|| sum / micro_batches as f64))
}

/// Prints planned against measured: the arena, what the processes held, what a step sent.
fn compare<'p, M: Model>(engine: &mut Engine<'p, M, Shared<'p>>, sent_bytes: usize, steps: u64) -> Result<(), Error> {
    let plan = engine.plan();
    let arena = engine.arena().bytes();
    let numbers = [arena, peak_resident_bytes(), sent_bytes].map(|bytes| bytes as f64);
    let ranks: Vec<_> = engine.gather_numbers(&numbers)?.to_vec();
    if engine.arena().rank() != 0 {
        return Ok(());
    }
    let largest = |which: usize| ranks.chunks_exact(3).map(|numbers| numbers[which] as usize).max().unwrap_or(0);
    let planned = plan.stages.iter().map(|stage| Traffic::of(plan, stage.step).total_bytes()).max().unwrap_or(0);
    let mut table = format!("\n{:<26} {:>14} {:>14}\n", "", "planned", "measured");
    let mut row = |name: &str, planned: String, measured: String| {
        table += &format!("{name:<26} {planned:>14} {measured:>14}\n");
    };
    row("arena per rank", Bytes(plan.bytes_per_rank_max()).to_string(), Bytes(largest(0)).to_string());
    row("peak resident per rank", String::new(), Bytes(largest(1)).to_string());
    if let Some(measured) = (largest(2) as u64).checked_div(steps) {
        row("bytes sent per step", planned.to_string(), measured.to_string());
    }
    say(&table);
    Ok(())
}
