//! Train: one rank's run, from the initial parameters to the comparison with the plan. Never starts or ends a process.

use std::path::Path;
use std::process::ExitCode;
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::alike;
use super::arguments::{RunArguments, UNPROFILED_STEPS};
use super::budget::run_size;
use super::compare::compare;
use super::evaluate::{evaluate, held_out_loss};
use super::header::{DataArguments, RunHeader};
use super::offload::keep_states;
use super::output::{HeldOutLine, NewFile, Output, StepLine, say, say_table, tokens_per_s};
use super::publishing::Publishing;
use super::resume::{resume, take_folder};
use super::sample::SampledText;
use super::saving::Saving;
use super::sources::{epoch_steps, explained, require_unchanged};
use super::threads::{Threads, keep_to_own_core};
use super::weights::WeightFolders;
use crate::error::Error;
use crate::profile::{Machine, ProfileTables, RecordedRun, Trace, gather_clocks, gather_records};
use zero_core::device::Device;
use zero_core::model::Program;
use zero_core::transport::{ClockLook, Crossed, Transport};
use zero_engine::Engine;
use zero_files::data::{Draw, Sequences, Text};
use zero_files::resident;
use zero_plan::{Config, Moved};
use zero_ranks::launch::{self, EXIT_ASKED, EXIT_NOT_SAVED};
use zero_ranks::transport::Shared;

/// One rank of a run, on the transport that ranks of runs have.
pub type RankEngine<'p, D> = Engine<'p, D, Shared<'p, D>>;

/// The part of a run after training and before the comparison.
pub enum Finale<'a> {
    /// Nothing.
    None,
    /// A sample of what was learned.
    Sample(SampledText<'a>),
    /// The loss on all of a text.
    Evaluation(&'a Text),
}

impl Finale<'_> {
    /// Runs it. Every rank must call this, because it takes part in gathers; rank 0, which has an output, prints.
    fn run<D: Device>(&self, engine: &mut RankEngine<D>, output: Option<&mut Output>) -> Result<(), Error> {
        match self {
            Finale::None => Ok(()),
            Finale::Sample(sample) => sample.run(engine, output),
            Finale::Evaluation(text) => evaluate(engine, text, output),
        }
    }
}

/// The inputs of a run.
pub struct Job<'a, D: Device> {
    /// The program that is trained.
    pub program: &'static Program<D>,
    /// Arguments of every model.
    pub arguments: &'a RunArguments,
    /// Those of a model of text or of tokens.
    pub of_data: Option<DataArguments<'a>>,
    /// The data on which it trains.
    pub data: &'a dyn Sequences,
    /// A hash of that data; none for the program's own data, which has none.
    pub data_fingerprint: Option<u64>,
    /// The weights that it starts from and exports.
    pub weights: &'a WeightFolders,
    /// Bytes that a tokenizer takes in memory, unless the data counts them.
    pub tokenizer_bytes: usize,
    /// What comes after training.
    pub finale: Finale<'a>,
}

impl<D: Device> Job<'_, D> {
    /// Bytes that data, a tokenizer and published files hold in memory, on each rank.
    pub fn resident_bytes(&self) -> usize {
        self.data.resident_bytes() + self.tokenizer_bytes + self.weights.resident_bytes()
    }
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It came to its end.
    Done,
    /// It came to its end, or was asked to end, but its last checkpoint could not be written.
    NotSaved,
    /// It was asked to end, and its checkpoint was written.
    Asked,
}

impl Ending {
    /// The exit code of a process that ends so.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Ending::Done => 0,
            Ending::NotSaved => EXIT_NOT_SAVED,
            Ending::Asked => EXIT_ASKED,
        })
    }
}

/// Steps at the beginning that are slow, because they touch memory for the first time. Ranks wait longer for one
/// another in these steps.
const SLOW_STEPS: u64 = 2;
/// The factor by which they wait longer.
const SLOWER: u32 = 4;

/// Trains as one rank, on threads of its own.
///
/// # Errors
/// Any error that ends a run early.
pub fn train<D: Device>(transport: Shared<'static, D>, job: &Job<D>) -> Result<Ending, Error> {
    let arena = transport.arena();
    let (name, device) = (format!("rank {}", arena.rank()), arena.take_device());
    let threads = Threads::new(job.arguments.threads, arena.plan()).per_rank;
    if !D::QUEUES {
        keep_to_own_core(arena.plan(), arena.rank());
    }
    let work = |device| {
        let engine = Engine::with_device(job.program, transport, device);
        // The thread that writes a checkpoint ends within this scope.
        std::thread::scope(|scope| train_on(scope, engine, job))
    };
    device.on_threads(threads, &name, work)?
}

fn train_on<'scope, 'env, D: Device>(
    scope: &'scope Scope<'scope, 'env>,
    mut engine: RankEngine<'static, D>,
    job: &'env Job<'_, D>,
) -> Result<Ending, Error> {
    let arguments = job.arguments;
    // Other ranks may wait for rank 0 while that waits for a version, and for its readers.
    let of_readers =
        if engine.plan().config.publishes() { 2 * arguments.publishing.publish_timeout } else { Duration::ZERO };
    let timeout = arguments.checkpoints.timeout + of_readers;
    engine.set_timeout(timeout * SLOWER);
    let is_first = engine.arena().rank() == 0;
    if arguments.checkpoints.checkpoint.is_some() {
        launch::end_on_request(arguments.checkpoints.grace)?;
    }
    // This comes before anything else is made, because it may refuse the run.
    let store = if is_first { take_folder(job)? } else { None };
    let goes_on = arguments.checkpoints.resume.is_some() || launch::is_restart();
    let is_seen = super::processes(job.program.plan) == 1 || launch::has_own_launcher();
    let output = || Output::new(arguments.steps, arguments.metrics.as_deref(), goes_on, is_seen);
    let mut output = is_first.then(output).transpose()?;
    if let Some(profile) = arguments.profile.as_deref().filter(|_| is_first && launch::is_restart()) {
        // Removes the file that the ranks before the restart have begun. If that fails, creating the profile reports
        // it.
        let _ = std::fs::remove_file(profile);
    }
    let mut profiler = arguments.profile.as_deref().map(|path| Profiler::new(&mut engine, path)).transpose()?;
    engine.decay_embeddings(!arguments.no_decay_embeddings);
    engine.run_eagerly(arguments.eager);
    let threads = Threads::new(arguments.threads, engine.plan()).per_rank;
    keep_states(&mut engine, arguments.offload.as_deref(), threads)?;
    alike::ready(&mut engine)?;
    let (done, publication) = resume(&mut engine, job)?;
    let mut saving = Saving::new(scope, job, &mut engine, store, &publication);
    if let (Some(saving), true) = (&saving, done < arguments.steps) {
        saving.require_room(job.weights)?;
    }
    let mut publishing = Publishing::new(scope, job, &mut engine, &publication)?;
    if let Some(output) = &mut output {
        output.begin(&RunHeader::new(job, done))?;
    }
    if let Some(publishing) = &mut publishing {
        publishing.after_step(&mut engine, done, true, output.as_mut())?;
    }

    let epoch = epoch_steps(job);
    let (mut moved, mut crossed) = (Moved::default(), Crossed::default());
    for number in done + 1..=arguments.steps {
        if number == done + SLOW_STEPS + 1 {
            engine.set_timeout(timeout);
        }
        if profiler.is_some() && number == done + UNPROFILED_STEPS + 1 {
            engine.record(arguments.profiled_steps());
        }
        // Bytes that evaluations and checkpoints move do not belong to a step.
        let (moved_before, crossed_before) = (engine.moved(), engine.crossed());
        let stepped = step(&mut engine, job, number);
        let mut line = explained(stepped, &mut engine, job, saving.as_mut(), output.as_mut())?;
        let (moved_now, crossed_now) = (engine.moved() - moved_before, engine.crossed() - crossed_before);
        moved += moved_now;
        crossed = crossed + crossed_now;
        line.within_host_bytes = within_host_bytes(&engine.plan().config, &moved_now, crossed_now);
        line.between_hosts_bytes = engine.plan().config.spans_hosts().then_some(crossed_now.sent_bytes);
        if let Some(output) = &mut output {
            output.step(&line, arguments.tells_of(number) || number == done + 1);
        }
        let is_last = number == arguments.steps;
        if let Some(publishing) = &mut publishing {
            publishing.after_step(&mut engine, number, is_last, output.as_mut())?;
        }
        if let Some(profiler) = &mut profiler
            && number == done + UNPROFILED_STEPS + arguments.profiled_steps() as u64
        {
            profiler.measure(&mut engine)?;
        }
        if let Some(saving) = &mut saving
            && saving.after_step(&mut engine, &line, is_last, output.as_mut())?
            && !is_last
        {
            return asked(saving, number, output);
        }
        let begins_epoch = !is_last && epoch.is_some_and(|steps| number.is_multiple_of(steps));
        if begins_epoch || saving.as_ref().is_some_and(|saving| saving.has_begun(number)) {
            require_unchanged(&mut engine, job, saving.as_mut(), output.as_mut())?;
        }
        if arguments.evaluates_after(number) {
            let evaluated = held_out(&mut engine, job, number, output.as_mut());
            explained(evaluated, &mut engine, job, saving.as_mut(), output.as_mut())?;
        }
    }
    if let Some(output) = &mut output {
        output.finish();
    }
    let evaluated = held_out(&mut engine, job, arguments.steps, output.as_mut());
    explained(evaluated, &mut engine, job, saving.as_mut(), output.as_mut())?;
    let saved = saving.as_ref().filter(|saving| done < arguments.steps && !saving.has_failed());
    job.weights.export(
        &mut engine,
        &publication,
        saved.map(|saving| saving.checkpoint_of(arguments.steps)).as_deref(),
    )?;
    let shown = job.finale.run(&mut engine, output.as_mut());
    explained(shown, &mut engine, job, saving.as_mut(), output.as_mut())?;
    if let Some(publishing) = publishing {
        publishing.finish(&mut engine)?;
    }
    let size = run_size(engine.plan(), arguments, job.resident_bytes());
    compare(&mut engine, &moved, crossed, arguments.steps - done, &size)?;
    profiler.map_or(Ok(()), |profiler| profiler.finish(&mut engine))?;
    Ok(if saving.is_some_and(|saving| saving.has_failed()) { Ending::NotSaved } else { Ending::Done })
}

/// Ends a run that was asked to end after step `number`.
fn asked(saving: &Saving, number: u64, output: Option<Output>) -> Result<Ending, Error> {
    let has_failed = saving.has_failed();
    if let Some(mut output) = output {
        output.finish();
        let saved = if has_failed { "without a checkpoint" } else { "and saved: --resume goes on" };
        say(&format!("asked to end: stopped after step {number}, {saved}\n"));
    }
    Ok(if has_failed { Ending::NotSaved } else { Ending::Asked })
}

/// Does step `number`, counted from 1, and returns its line.
fn step<D: Device>(engine: &mut RankEngine<D>, job: &Job<D>, number: u64) -> Result<StepLine, Error> {
    let config = &engine.plan().config;
    let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
    let (step, seed) = (number - 1, job.arguments.seed);
    let hyper = job.arguments.hyper(step);
    let start = Instant::now();
    let program = job.program;
    let report = engine.step(&hyper, |micro_batch, inputs, targets| {
        let first = ((micro_batch * config.mesh.data_ranks() + data_rank) * config.sequences) as u64;
        let draw = |sequence: usize| Draw { seed, step, index: first + sequence as u64 };
        for_each_sequence(program, config.length, (inputs, targets), |sequence, input, targets| {
            job.data.training_words(draw(sequence), input, targets);
        });
    })?;
    let took = start.elapsed();
    Ok(StepLine {
        step: number,
        loss: report.loss,
        gradient_norm: report.gradient_norm,
        lr: hyper.lr,
        step_s: took.as_secs_f64(),
        tokens_per_s: tokens_per_s(config.tokens_per_step(), took),
        peak_resident_bytes: resident::peak_bytes(),
        within_host_bytes: 0,
        between_hosts_bytes: None,
    })
}

/// The bytes that a rank has received from others of its host: all that it received, less those from other hosts. They
/// include the numbers of the ranks of its host, which all ranks exchange.
fn within_host_bytes(config: &Config, moved: &Moved, crossed: Crossed) -> usize {
    let (all, (first, end)) = (moved.all(), config.sharing(0));
    let of_each = all.agree_bytes / (config.mesh.ranks() - 1).max(1);
    all.total_bytes() - all.agree_bytes - crossed.taken_bytes + (end - first - 1) * of_each
}

/// Computes the loss on held-out data after `step` steps. Rank 0 prints it.
fn held_out<D: Device>(
    engine: &mut RankEngine<D>,
    job: &Job<D>,
    step: u64,
    output: Option<&mut Output>,
) -> Result<(), Error> {
    let loss = held_out_loss(engine, job.arguments.held_out, job.data)?;
    if let (Some(held_out_loss), Some(output)) = (loss, output) {
        output.held_out(&HeldOutLine { step, held_out_loss, unit: job.program.head.unit });
    }
    Ok(())
}

/// The work for a profile beside the steps that it records.
struct Profiler {
    /// What each rank reached at best, so far.
    machines: Vec<Machine>,
    /// How far the clock of this host was from that of rank 0's host, if this rank is the first of its host.
    clock: Option<ClockLook>,
    /// The file of rank 0, which writes for all.
    file: Option<NewFile>,
}

impl Profiler {
    /// Measures the machine, after rank 0 has made the file at `path`.
    fn new<D: Device>(engine: &mut RankEngine<D>, path: &Path) -> Result<Self, Error> {
        let writes = engine.arena().rank() == 0;
        let file = writes.then(|| NewFile::create("a profile", path)).transpose()?;
        let machines = Machine::measure(engine)?;
        let clock = engine.compare_clocks()?;
        Ok(Self { machines, clock, file })
    }

    /// Measures the machine again.
    fn measure<D: Device>(&mut self, engine: &mut RankEngine<D>) -> Result<(), Error> {
        let again = Machine::measure(engine)?;
        self.machines.iter_mut().zip(again).for_each(|(best, again)| *best = best.best(again));
        Ok(())
    }

    /// Gathers what all ranks have recorded. Rank 0 prints it and writes the trace.
    fn finish<D: Device>(mut self, engine: &mut RankEngine<D>) -> Result<(), Error> {
        self.measure(engine)?;
        let Some(record) = engine.take_record() else { return Ok(()) };
        let clocks = gather_clocks(engine, self.clock)?;
        let ranks = gather_records(engine, &record, &clocks)?;
        let Some(mut file) = self.file else { return Ok(()) };
        let recorded = RecordedRun { plan: engine.plan(), ranks: &ranks, machines: &self.machines, clocks: &clocks };
        file.write(|file| Trace(recorded).write(file))?;
        say_table(&format!("\n{}", ProfileTables(recorded)));
        Ok(())
    }
}

/// Calls `each` with every sequence of a micro-batch: its number, its input and its targets.
pub fn for_each_sequence<D>(
    program: &Program<D>,
    length: usize,
    (inputs, targets): (&mut [u32], &mut [u32]),
    mut each: impl FnMut(usize, &mut [u32], &mut [u32]),
) {
    let inputs = inputs.chunks_exact_mut(length * program.inputs.words.count);
    let targets = targets.chunks_exact_mut(length * program.head.targets.count);
    for (sequence, (input, targets)) in inputs.zip(targets).enumerate() {
        each(sequence, input, targets);
    }
}
