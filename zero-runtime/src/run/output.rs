//! Output: a progress bar on a terminal, a line a step elsewhere, JSON lines in a file. Only rank 0 has one.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::error::Error;
use crate::launch::EXIT_REPORTED;
use crate::plan::Bytes;

/// What is told about a step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepLine {
    /// Counted from 1.
    pub step: u64,
    /// Mean loss in nats.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Duration.
    pub step_s: f64,
    /// Tokens of all ranks in a second.
    pub tokens_per_s: f64,
    /// Most memory that rank 0 has held so far.
    pub peak_resident_bytes: usize,
}

/// Where progress goes.
pub struct Output {
    bar: Option<ProgressBar>,
    metrics: Option<(PathBuf, BufWriter<File>)>,
    steps: u64,
}

impl Output {
    /// Output of a run of `steps` steps; `metrics` must not exist yet.
    ///
    /// # Errors
    /// Z0351 if the metrics file exists or cannot be made.
    pub fn new(steps: u64, metrics: Option<&Path>) -> Result<Self, Error> {
        let metrics = metrics.map(|path| {
            let help = "name a new file in a directory that exists and can be written";
            let file = File::create_new(path);
            file.map(|file| (path.to_owned(), BufWriter::new(file))).map_err(|source| Error::Metrics {
                path: path.to_owned(),
                source,
                help,
            })
        });
        let bar = std::io::stdout().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg} {eta}").expect("a valid template");
            ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stdout()).with_style(style)
        });
        Ok(Self { bar, metrics: metrics.transpose()?, steps })
    }

    /// Tells of a step.
    ///
    /// # Errors
    /// Z0351 if the metrics file cannot take it.
    pub fn step(&mut self, line: &StepLine) -> Result<(), Error> {
        let text = format!(
            "loss {:.4}  norm {:.3}  lr {:.2e}  {:.0} tokens/s  {}",
            line.loss,
            line.gradient_norm,
            line.lr,
            line.tokens_per_s,
            Bytes(line.peak_resident_bytes)
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(line.step);
                bar.set_message(text);
            }
            None => say(&format!("step {:>4}/{}  {text}\n", line.step, self.steps)),
        }
        self.record(line)
    }

    /// Writes a line of JSON to the metrics file.
    ///
    /// # Errors
    /// Z0351 if the metrics file cannot take it.
    pub fn record(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let Some((path, file)) = &mut self.metrics else { return Ok(()) };
        let written = serde_json::to_writer(&mut *file, line).map_err(std::io::Error::from);
        written.and_then(|()| file.write_all(b"\n")).and_then(|()| file.flush()).map_err(|source| Error::Metrics {
            path: path.clone(),
            source,
            help: "free space on its disk, or name another file",
        })
    }

    /// Ends the progress bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
            say("\n");
        }
    }
}

/// Writes to standard output. Where nobody reads it any more, as behind `| head`, the run ends without a word; where it
/// cannot be written for another reason, with an error.
pub fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("error[Z0352]: cannot write to standard output: {error}\n  = help: free space where it goes");
        }
        std::process::exit(EXIT_REPORTED.into());
    }
}

/// Most memory that this process has held, as the kernel counts it: `VmHWM`, which includes shared pages it touched.
pub fn peak_resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Tokens in a second.
pub fn tokens_per_s(tokens: usize, took: Duration) -> f64 {
    tokens as f64 / took.as_secs_f64()
}
