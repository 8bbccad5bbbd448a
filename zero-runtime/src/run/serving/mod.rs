//! Serving: the program of a worker: weights of a folder or of a run, an engine that decodes, and a server that answers. Never trains.

mod arguments;
mod decoder;
mod source;

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use arguments::{ServeArguments, ServeCommand};
use decoder::EngineDecoder;
use source::{Source, Weights};

use super::arguments::RunArguments;
use super::budget::{require_budget, run_size};
use super::output::say;
use super::threads::{Threads, keep_to_own_core};
use super::train::RankEngine;
use super::{parse, start, text};
use crate::error::Error;
use zero_core::device::Device;
use zero_core::model::Program;
use zero_core::transport::Transport;
use zero_engine::Engine;
use zero_plan::counted;
use zero_publish::bind;
use zero_ranks::launch;
use zero_ranks::transport::{Shared, local};
use zero_serve::{Decoder, Mailbox, Served, Server, Words, Worker};

/// Sequences that may wait, for each slot, unless an argument says otherwise.
const QUEUED_PER_SLOT: usize = 4;
/// How much longer than its answers may go on the process may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often a worker without weights looks whether it is to end.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Runs the program of a worker.
pub fn serve<D: Device + 'static>(program: &'static Program<D>, arguments: Vec<OsString>) -> ExitCode {
    let ServeCommand { serve } = parse(program.plan, arguments);
    let run = serve.run();
    start(program, &run, false, |_, _| {
        text::require_tokens(program)?;
        let job = Job::new(program, &serve, &run)?;
        local::run(program.plan, Result::is_err, |transport| job.run(transport))?.remove(0)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// What a worker is started with.
struct Job<'a, D: Device> {
    program: &'static Program<D>,
    serve: &'a ServeArguments,
    run: &'a RunArguments,
    /// The one rank takes it.
    given: Mutex<Option<Given>>,
}

/// What the rank takes.
struct Given {
    source: Source,
    served: Served,
    listener: TcpListener,
    worker: Worker,
}

impl<'a, D: Device + 'static> Job<'a, D> {
    fn new(program: &'static Program<D>, serve: &'a ServeArguments, run: &'a RunArguments) -> Result<Self, Error> {
        let ServeArguments { host, port, token, name, queue, .. } = serve;
        let listener = bind(&format!("{host}:{port}"), 0).map_err(|error| refused(&error))?;
        let worker = Worker::new(serve.on_update.on_update(), serve.drain);
        let mailbox = worker.mailbox();
        launch::end_on_request_by(serve.drain.saturating_add(END_WITHIN), move || mailbox.end())?;
        let token = token.as_deref().map(first_line).transpose()?;
        let (config, classes) = (&program.plan.config, program.head.classes);
        let source = Source::open(program, serve, run)?;
        let tokenizer = source.tokenizer(serve.tokenizer.as_deref(), classes)?;
        let tokenizer_bytes = tokenizer.as_ref().map_or(0, zero_files::data::Tokenizer::resident_bytes);
        require_budget(program.plan, &run_size(program.plan, run, tokenizer_bytes + source.resident_bytes()))?;
        let (config_json, template) = source.of_chats();
        let words = Words::new(tokenizer, classes, config_json.as_ref(), template).map_err(|why| refused(&why))?;
        let (slots, length) = (config.slots(), config.length);
        let queue = queue.map_or(QUEUED_PER_SLOT * slots, |queue| queue.get() as usize);
        let model = name.clone().unwrap_or_else(|| program.plan.model.to_owned());
        let served = Served { model, source: source.to_string(), token, words, slots, queue, length };
        let given = Mutex::new(Some(Given { source, served, listener, worker }));
        Ok(Self { program, serve, run, given })
    }

    /// Serves as the one rank, until it is asked to end.
    fn run(&self, transport: Shared<'static, D>) -> Result<(), Error> {
        let arena = transport.arena();
        let (plan, device) = (arena.plan(), arena.take_device());
        let threads = Threads::new(self.run.threads, plan).per_rank;
        if !D::QUEUES {
            keep_to_own_core(plan, arena.rank());
        }
        let given = self.given.lock().ok().and_then(|mut given| given.take()).expect("one rank takes it");
        device.on_threads(threads, "worker", |device| {
            let mut engine = Engine::with_device(self.program, transport, device);
            engine.rehearse()?;
            self.serve(&mut engine, given)
        })?
    }

    fn serve(&self, engine: &mut RankEngine<'static, D>, given: Given) -> Result<(), Error> {
        let Given { source, served, listener, worker } = given;
        let mailbox = worker.mailbox();
        let Weights { version, arrivals, places, following } = source.load(engine, self.run, &mailbox)?;
        let mut decoder = EngineDecoder::new(engine, version, arrivals, places);
        if following.is_some() && !first_version(&mut decoder, self.serve.patience)? {
            return Ok(());
        }
        let at = listener.local_addr().map_err(|error| refused(&error))?;
        let (slots, waiting) = (counted(served.slots, "slot", "slots"), served.queue);
        let (model, weights, version) = (&served.model, &served.source, decoder.version());
        say(&format!("serve: `{model}` at http://{at}, {slots}, {waiting} may wait, weights {version} of {weights}\n"));
        let (server, serving) = Server::new(listener, served, mailbox.clone());
        let answers = std::thread::Builder::new().name("zero-serve".to_owned()).spawn({
            let mailbox: Mailbox = mailbox.clone();
            move || {
                let ended = server.run();
                // Without a server nobody can ask.
                mailbox.end();
                ended
            }
        });
        let answers = answers.map_err(|error| refused(&error))?;
        let worked = worker.run(&mut decoder);
        drop((serving, following));
        let answered = answers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.map_err(|error| refused(&error))?;
        answered.map_err(|error| refused(&error))?;
        say("serve: ended as it was asked to\n");
        Ok(())
    }
}

/// Waits for the first version of a run. Returns false if the worker is asked to end before.
fn first_version(decoder: &mut impl Decoder, patience: Duration) -> Result<bool, Error> {
    let until = Instant::now().checked_add(patience);
    while !decoder.receive().map_err(|error| refused(&error))? {
        if launch::asked_to_end().is_some() {
            return Ok(false);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let within = patience.as_secs();
            return Err(refused(&format!("no version of the run could be used within {within} s")));
        }
        std::thread::sleep(LOOKS_EVERY);
    }
    decoder.refresh().map_err(|error| refused(&error))?;
    Ok(true)
}

/// The first line of a file, without blanks around it.
fn first_line(path: &Path) -> Result<String, Error> {
    let text =
        fs::read_to_string(path).map_err(|error| refused(&format!("the token in {}: {error}", path.display())))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// That the worker cannot serve.
fn refused(what: &impl ToString) -> Error {
    Error::Serve { what: what.to_string() }
}
