//! Output: lines about some steps, on a terminal above a progress bar, and JSON lines about all of them in a file.
//! Never on any rank but rank 0.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::error::Error;
use zero_plan::Bytes;
use zero_ranks::launch;
use zero_ranks::terminal;
use zero_ranks::transport::cluster;

/// The figures of a step that are printed and recorded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepLine {
    /// Counted from 1.
    pub step: u64,
    /// Mean loss, in the unit of the model's head.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Duration.
    pub step_s: f64,
    /// Tokens of all ranks in a second.
    pub tokens_per_s: f64,
    /// The most memory that rank 0 has held so far.
    pub peak_resident_bytes: usize,
    /// Bytes that rank 0 has taken in the step from other ranks of its host: copied, or read in place.
    pub within_host_bytes: usize,
    /// Bytes that it has sent in the step to ranks of other hosts, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_hosts_bytes: Option<usize>,
}

/// A new file of this run. A file that is there already is never overwritten.
pub struct NewFile {
    what: &'static str,
    path: PathBuf,
    file: File,
    /// Bytes of what was written as a whole.
    bytes: u64,
    /// Whether this process has made it.
    is_new: bool,
}

impl NewFile {
    /// Makes a file that is to hold `what`.
    ///
    /// # Errors
    /// Z0351 if it exists or cannot be made.
    pub fn create(what: &'static str, path: &Path) -> Result<Self, Error> {
        let help = "name a new file in a directory that exists and can be written";
        let error = |source| Error::Results { what, path: path.to_owned(), source, help };
        let file = File::options().append(true).create_new(true).open(path).map_err(error)?;
        Ok(Self { what, path: path.to_owned(), file, bytes: 0, is_new: true })
    }

    /// Adds to a file that holds `what` already, or makes it.
    ///
    /// # Errors
    /// Z0351 if it cannot be opened or made.
    pub fn extend(what: &'static str, path: &Path) -> Result<Self, Error> {
        let help = "name a file that can be written";
        let error = |source| Error::Results { what, path: path.to_owned(), source, help };
        let file = File::options().read(true).append(true).create(true).open(path).map_err(error)?;
        let bytes = end_last_line(&file).map_err(error)?;
        Ok(Self { what, path: path.to_owned(), file, bytes, is_new: false })
    }

    /// Adds what `write` writes.
    ///
    /// # Errors
    /// Z0351 if the file cannot be written.
    pub fn write(&mut self, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> Result<(), Error> {
        let mut file = BufWriter::new(&self.file);
        let written = write(&mut file).and_then(|()| file.flush());
        written.map_err(|source| self.error(source))
    }

    /// Adds a line of JSON, or nothing: if a part of it was written, that is removed.
    ///
    /// # Errors
    /// Z0351 if the file cannot be written.
    fn add(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(line).map(|text| [&text[..], b"\n"].concat()).map_err(io::Error::from);
        let added = text.and_then(|text| self.file.write_all(&text).map(|()| text.len() as u64));
        self.bytes += added.map_err(|source| {
            // If this fails too, the next line of a run that goes on begins after the part.
            let _ = self.file.set_len(self.bytes);
            self.error(source)
        })?;
        Ok(())
    }

    fn error(&self, source: io::Error) -> Error {
        let help = "free space on its disk, or name another file";
        Error::Results { what: self.what, path: self.path.clone(), source, help }
    }
}

/// Removes a last line that a killed run left unfinished. Returns the length of what stays. Reads no more of the file than that line, and
/// nothing of a pipe or a device, which may never end.
fn end_last_line(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(0);
    }
    let (mut block, mut end) = ([0; 4096], metadata.len());
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let read = &mut block[..(end - start) as usize];
        file.read_exact_at(read, start)?;
        if let Some(at) = read.iter().rposition(|&byte| byte == b'\n') {
            end = start + at as u64 + 1;
            break;
        }
        end = start;
    }
    if end < metadata.len() {
        file.set_len(end)?;
    }
    Ok(end)
}

/// Shows and records progress.
pub struct Output {
    bar: Option<ProgressBar>,
    metrics: Option<NewFile>,
    /// Whether lines of metrics are missing, which was reported.
    is_lossy: bool,
    /// Whether there is a header in it.
    has_begun: bool,
    steps: u64,
    start: Instant,
}

/// A line of metrics after the first.
#[derive(Serialize)]
struct MetricsLine<'a, T> {
    kind: &'static str,
    /// Seconds since [`Output::begin`].
    time_s: f64,
    #[serde(flatten)]
    told: &'a T,
}

/// A loss on held-out data.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HeldOutLine {
    /// Steps done.
    pub step: u64,
    /// Mean loss.
    pub held_out_loss: f64,
    /// The unit of the loss.
    pub unit: &'static str,
}

/// A checkpoint that was written.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SaveLine {
    /// Steps done.
    pub step: u64,
    /// Bytes of all states.
    pub bytes: u64,
    /// Seconds from its beginning to its end.
    pub took_s: f64,
    /// Seconds that training has waited for it.
    pub waited_s: f64,
}

/// The loss on all of a text.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EvaluationLine {
    /// Tokens that were predicted: all but the first.
    pub tokens: usize,
    /// Mean loss over them.
    pub loss: f64,
    /// Its exponential.
    pub perplexity: f64,
    /// The unit of the loss.
    pub unit: &'static str,
}

impl Output {
    /// Output of a run of `steps` steps. The file `metrics` must not exist yet, unless the run continues another one: then
    /// lines are added to it.
    ///
    /// A progress bar is drawn if the output is a terminal and `is_seen` says that a person looks at it. Nobody sees
    /// the terminal that mpirun gives a rank: mpirun passes on whole lines, and a bar never ends its line.
    ///
    /// # Errors
    /// Z0351 if the metrics file exists or cannot be made.
    pub fn new(steps: u64, metrics: Option<&Path>, goes_on: bool, is_seen: bool) -> Result<Self, Error> {
        let open =
            |path: &Path| if goes_on { NewFile::extend("metrics", path) } else { NewFile::create("metrics", path) };
        let metrics = metrics.map(open);
        let bar = (is_seen && std::io::stdout().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg} {eta}").expect("a valid template");
            ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stdout()).with_style(style)
        });
        let (is_lossy, has_begun) = (false, false);
        Ok(Self { bar, metrics: metrics.transpose()?, is_lossy, has_begun, steps, start: Instant::now() })
    }

    /// Begins to count time, and writes the header to the metrics file.
    ///
    /// # Errors
    /// Z0351 if the metrics file cannot be written.
    pub fn begin(&mut self, header: &impl Serialize) -> Result<(), Error> {
        self.start = Instant::now();
        self.write(header)?;
        self.has_begun = true;
        Ok(())
    }

    /// Records a step, and prints it if `told`.
    pub fn step(&mut self, line: &StepLine, told: bool) {
        let text = format!(
            "loss {:.4}  norm {:.3}  lr {:.2e}  {:.0} tokens/s  {}",
            line.loss,
            line.gradient_norm,
            line.lr,
            line.tokens_per_s,
            Bytes(line.peak_resident_bytes)
        );
        if told {
            self.tell(&format!("step {:>4}/{}  {text}", line.step, self.steps));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(line.step);
            bar.set_message(text);
        }
        self.record("step", line);
    }

    /// Records and prints a loss on held-out data.
    pub fn held_out(&mut self, line: &HeldOutLine) {
        let after = if line.step < self.steps { format!(" after step {}", line.step) } else { String::new() };
        self.tell(&format!("held-out loss {:.4} {}{after}", line.held_out_loss, line.unit));
        self.record("held_out", line);
    }

    /// Records and prints that a checkpoint was written.
    pub fn saved(&mut self, line: &SaveLine) {
        let SaveLine { step, bytes, took_s, waited_s } = line;
        let bytes = Bytes(*bytes as usize);
        self.tell(&format!(
            "checkpoint of step {step}: {bytes} in {took_s:.3} s, for which training waited {waited_s:.3} s"
        ));
        self.record("checkpoint", line);
    }

    /// Records and prints the loss on all of a text.
    ///
    /// # Errors
    /// Z0351 if the metrics file cannot be written.
    pub fn evaluation(&mut self, line: &EvaluationLine) -> Result<(), Error> {
        let EvaluationLine { tokens, loss, perplexity, unit } = line;
        self.tell(&format!("loss {loss:.4} {unit}, perplexity {perplexity:.4}, over {tokens} tokens"));
        self.write(&self.timed("evaluation", line))
    }

    /// Prints a line, above the bar if there is one.
    fn tell(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(&format!("{line}\n")),
        }
    }

    /// Adds a line about training to the metrics file. A line that cannot be written is dropped, because what is trained is worth
    /// more; the first is reported.
    pub fn record(&mut self, kind: &'static str, told: &impl Serialize) {
        if let Err(error) = self.write(&self.timed(kind, told))
            && !std::mem::replace(&mut self.is_lossy, true)
        {
            launch::print(&format!("{error}\n  = note: the run goes on, without the lines that cannot be written"));
        }
    }

    fn timed<'a, T>(&self, kind: &'static str, told: &'a T) -> MetricsLine<'a, T> {
        MetricsLine { kind, time_s: self.start.elapsed().as_secs_f64(), told }
    }

    /// Adds a line of JSON to the metrics file.
    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.add(line))
    }

    /// Ends the progress bar.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
            say("\n");
        }
    }
}

/// Ends the bar, so that an error that ends a run early is printed below it. If the run has not even begun, its metrics file would be
/// in the way of the next attempt.
impl Drop for Output {
    fn drop(&mut self) {
        self.finish();
        if let Some(metrics) = self.metrics.as_ref().filter(|metrics| metrics.is_new && !self.has_begun) {
            // If it cannot be removed, the error is still that which ends the run.
            let _ = std::fs::remove_file(&metrics.path);
        }
    }
}

/// Writes a table, or several, to standard output, as [`say`] does.
pub fn say_table(text: &str) {
    say(&terminal::table(text));
}

/// What a run is worth if its output cannot be written.
struct Worth {
    /// Whether it has files to write, for which it goes on even if nobody will read its output any more.
    leaves_files: bool,
    /// Whether it was reported that output is missing, or another process of the run does that.
    is_told: AtomicBool,
}

/// None for a run that does not train, whose output is its only result.
static WORTH: OnceLock<Worth> = OnceLock::new();

/// Has this process go on without its output. The output of a run that trains is only its log, which may fit on its disk again
/// later; and if nobody reads it any more, there may be files to write. Reports missing output if this process `reports`.
pub fn outlive_output(leaves_files: bool, reports: bool) {
    let _ = WORTH.set(Worth { leaves_files, is_told: AtomicBool::new(!reports) });
}

/// Writes to standard output. If that cannot be done, a run that trains reports it once and goes on without this text, unless
/// nobody reads its output any more, as after `| head`, and it leaves no files: then it ends without a message. Any other run ends,
/// too, with an error if its output could be read.
pub fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) else { return };
    let is_read = error.kind() != ErrorKind::BrokenPipe;
    let worth = WORTH.get().filter(|worth| is_read || worth.leaves_files);
    let told = match is_read {
        true => format!("error[Z0352]: cannot write to standard output: {error}\n  = help: free space where it goes"),
        false => "note: nobody reads standard output any more".to_owned(),
    };
    match worth {
        Some(worth) if worth.is_told.swap(true, Ordering::Relaxed) => {}
        Some(_) => {
            launch::print(&format!("{told}\n  = note: the run goes on, without the output that cannot be written"))
        }
        None => {
            if is_read {
                terminal::tell(&told);
            }
            launch::leave(cluster::abort);
        }
    }
}

/// Tokens in a second.
pub fn tokens_per_s(tokens: usize, took: Duration) -> f64 {
    tokens as f64 / took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_an_unfinished_last_line_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics");
        let long = "x".repeat(10_000);
        for (before, after) in [
            (String::new(), String::new()),
            ("a\n".to_owned(), "a\n".to_owned()),
            ("unfinished".to_owned(), String::new()),
            (format!("a\n{long}"), "a\n".to_owned()),
            (format!("{long}\n{long}\n{long}"), format!("{long}\n{long}\n")),
        ] {
            fs::write(&path, &before).expect("a file");
            let file = NewFile::extend("metrics", &path).expect("a file that can be written");
            assert_eq!((file.bytes, fs::read_to_string(&path).expect("a file")), (after.len() as u64, after));
        }
    }

    #[test]
    fn a_pipe_and_a_device_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for path in [&*pipe, Path::new("/dev/full")] {
            assert_eq!(NewFile::extend("metrics", path).expect("a file that can be written").bytes, 0);
        }
    }
}
