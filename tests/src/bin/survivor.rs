//! A model of text that is small enough to be killed and restarted many times. `KIND` chooses its ranks: threads that save in
//! separate threads (`threads`), the same without a copy (`waiting`), those with optimizer states on disk (`offloaded`), or processes.
//!
//! Processes signal themselves: with `STRIKE`, a moment and a signal such as `forward 9`, rank 1 gets that signal once, in its step
//! [`STEP`]. The file `STRUCK` records that this has happened.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use zero_runtime::author::{Backward, Context, Forward, Init, Shape, Tensors};
use zero_runtime::prelude::*;

/// Counted from 1, and from the start of the process. There are checkpoints before it.
const STEP: u64 = 8;
const WIDTH: usize = 4;

#[zero(sequences = 1, length = 4, stage = 1, ranks = 2, snapshot = true, transport = Local)]
struct Threads {
    embed: Embedding<256, 4, WIDTH>,
    norm: LayerNorm<WIDTH>,
    head: LmHead<WIDTH, 256>,
}

#[zero(sequences = 1, length = 4, stage = 1, ranks = 2, transport = Local)]
struct Waiting {
    embed: Embedding<256, 4, WIDTH>,
    norm: LayerNorm<WIDTH>,
    head: LmHead<WIDTH, 256>,
}

#[zero(spec = "specs/survivor.ron")]
struct Offloaded {
    embed: Embedding<256, 4, WIDTH>,
    norm: LayerNorm<WIDTH>,
    head: LmHead<WIDTH, 256>,
}

#[zero(sequences = 1, length = 4, stage = 3, ranks = 3, snapshot = true)]
struct Processes {
    embed: Embedding<256, 4, WIDTH>,
    struck: Struck,
    head: LmHead<WIDTH, 256>,
}

/// Multiplies each feature by a gain, and signals its rank in the middle of a step.
struct Struck;

impl<S: Shape<Device = Cpu, Compute = f32>> Layer<S, Features<WIDTH>> for Struck {
    type Output = Features<WIDTH>;
    const PARAMS: usize = WIDTH;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        out.add("gain", &[WIDTH], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, Features<WIDTH>>) {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        if STEPS.fetch_add(1, Ordering::Relaxed) + 1 == STEP {
            strike_at("forward");
        }
        let gains = pass.params.as_slice().iter().cycle();
        let y = pass.y.into_slice().iter_mut().zip(pass.x.as_slice());
        y.zip(gains).for_each(|((y, x), gain)| *y = gain * x);
    }

    fn backward(_: &Context<Cpu>, pass: Backward<S, Features<WIDTH>>) {
        static STEPS: AtomicU64 = AtomicU64::new(0);
        if STEPS.fetch_add(1, Ordering::Relaxed) + 1 == STEP {
            strike_at("backward");
            strike_later();
        }
        let (gains, mut grads) = (pass.params.as_slice(), [0.0; WIDTH]);
        let dx = pass.dx.expect("it is not the first").into_slice();
        for (i, (x, dy)) in pass.x.as_slice().iter().zip(pass.dy.as_slice()).enumerate() {
            dx[i] = gains[i % WIDTH] * dy;
            grads[i % WIDTH] += x * dy;
        }
        pass.grads.into_parts().0.into_slice().copy_from_slice(&grads);
    }
}

/// The moment and the signal, on the rank that gets the signal.
fn told() -> Option<(String, Signal)> {
    let told = std::env::var("STRIKE").ok().filter(|_| std::env::var("RANK").is_ok_and(|rank| rank == "1"))?;
    let (moment, signal) = told.rsplit_once(' ').expect("a moment and a signal");
    let signals = [Signal::KILL, Signal::SEGV, Signal::STOP];
    let signal = signals.into_iter().find(|known| known.as_raw().to_string() == signal);
    Some((moment.to_owned(), signal.expect("a signal that is known")))
}

fn strike_at(moment: &str) {
    if let Some((_, signal)) = told().filter(|(told, _)| told == moment) {
        strike(signal);
    }
}

/// Sends the signal this many microseconds from now: in backward of the first unit, in collectives of gradients, or in the update.
fn strike_later() {
    let Some((moment, signal)) = told() else { return };
    let Some(delay) = moment.strip_prefix("after ").map(|micros| micros.parse().expect("microseconds")) else { return };
    let end = Instant::now() + Duration::from_micros(delay);
    thread::spawn(move || {
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        strike(signal);
    });
}

/// Sends the signal while this rank writes its file of any checkpoint but the first.
fn strike_in_save() {
    let Some((_, signal)) = told().filter(|(moment, _)| moment == "save") else { return };
    let folder = PathBuf::from(std::env::var_os("CHECKPOINTS").expect("a folder of checkpoints"));
    let is_whole = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("step-"));
    thread::spawn(move || {
        loop {
            let paths = || std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
            let is_begun = |path: PathBuf| !is_whole(&path) && path.join("rank-00001.safetensors").exists();
            if paths().any(|path| is_whole(&path)) && paths().any(is_begun) {
                return strike(signal);
            }
        }
    });
}

/// Sends the signal once in a run, however often the run restarts.
fn strike(signal: Signal) {
    if File::create_new(std::env::var_os("STRUCK").expect("a file for the note")).is_err() {
        return;
    }
    // The first SIGSEGV only removes Rust's own handler, and several pending ones count as one.
    let times = if signal == Signal::SEGV { 1000 } else { 1 };
    for _ in 0..times {
        kill_process(getpid(), signal).expect("a process can strike itself");
        thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> ExitCode {
    match std::env::var("KIND").as_deref() {
        Ok("threads") => zero_runtime::main::<Threads>(),
        Ok("waiting") => zero_runtime::main::<Waiting>(),
        Ok("offloaded") => zero_runtime::main::<Offloaded>(),
        _ => {
            strike_in_save();
            zero_runtime::main::<Processes>()
        }
    }
}
