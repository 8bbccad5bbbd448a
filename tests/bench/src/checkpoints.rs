//! Checkpoints: how long training waits for a save, and how fast states are written and read, beside `dd` and the peer.
//! Measures the benchmark's GPT, and one whose states are 1 GB. Never judges.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::Value;

use crate::Outcome;
use crate::figures::{Measured, Round, Spread, median, ours as our_name, peers};
use crate::models;
use crate::processes::{Peer, finished, number, objects, ours};

/// The name of this measurement.
pub const CHECKPOINT: &str = "checkpoint";

/// A model whose states are saved, and its two specs.
struct Size {
    name: &'static str,
    /// A spec with room for a copy, and one without.
    specs: [&'static str; 2],
    /// Options of the peer.
    peer: &'static [&'static str],
}

const SIZES: [Size; 2] = [
    Size { name: "default", specs: ["saved", "waited"], peer: &[] },
    Size {
        name: "1 GB",
        specs: ["large_saved", "large_waited"],
        peer: &["--dim", "768", "--heads", "12", "--layers", "12", "--seq", "64", "--batch", "1"],
    },
];

/// Trains, with the arguments of any generated binary.
type Train = fn(Vec<OsString>) -> ExitCode;

/// The specs, by name.
const SPECS: [(&str, Train); 6] = [
    ("saved", zero_runtime::main_from::<models::saved::Gpt>),
    ("waited", zero_runtime::main_from::<models::waited::Gpt>),
    ("large_saved", zero_runtime::main_from::<models::large_saved::Gpt>),
    ("large_waited", zero_runtime::main_from::<models::large_waited::Gpt>),
    ("large_3", zero_runtime::main_from::<models::large_3::Gpt>),
    ("large_4", zero_runtime::main_from::<models::large_4::Gpt>),
];

/// Steps of a run that saves, and steps between saves: three saves run during training, and one at the end. Only the second counts:
/// the first one touches memory and files for the first time, and the end may wait for the third.
const STEPS: u32 = 13;
const EVERY: u32 = 4;
/// The file that runs train on.
const TEXT: &str = "text";

/// Trains under the spec of that name.
pub fn spec(name: &str) -> Option<Train> {
    SPECS.iter().find(|spec| spec.0 == name).map(|spec| spec.1)
}

/// Measures all once.
///
/// # Errors
/// If something fails to run.
pub fn measure(peer: Option<&Peer>, round: &mut Round) -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("zero-bench-checkpoints-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    // Otherwise our runs train on the text of this workspace, which may change between a save and a load.
    std::fs::write(folder.join(TEXT), "Steps that end are steps that last.\n".repeat(10_000))?;
    // A virtual disk allocates a block at its first write, which is not part of a save. So this first writes as many bytes as the
    // disk will hold at the same time.
    let claimed = dd(&folder.join("dd"), 4e9).map(drop);
    let measured = claimed.and_then(|()| SIZES.iter().try_for_each(|size| measure_size(size, peer, &folder, round)));
    let measured = measured.and_then(|()| measure_reshard(&folder, round));
    std::fs::remove_dir_all(&folder)?;
    measured
}

fn measure_size(size: &Size, peer: Option<&Peer>, folder: &Path, round: &mut Round) -> Outcome<()> {
    let mut put = |what: String, value: f64| {
        eprintln!("{what}: {value:.4}");
        round.put(what, value);
    };
    let mut bytes = 0.0;
    for (spec, how) in size.specs.into_iter().zip(["copied", "waited"]) {
        let place = folder.join(spec);
        let saved = save(spec, &place)?;
        bytes = saved.bytes;
        let name = |what: &str| our_name(&format!("{what} of {}, {how}", size.name));
        put(name("bytes"), saved.bytes);
        put(name("step"), saved.step_s);
        put(name("stall"), saved.stall_s);
        put(name("save"), saved.save_s);
        put(name("load"), load(spec, &place)?);
        std::fs::remove_dir_all(&place)?;
    }
    for (what, seconds) in ["write", "read"].into_iter().zip(dd(&folder.join("dd"), bytes)?) {
        put(format!("dd, {what} of {}", size.name), seconds);
    }
    if let Some(peer) = peer {
        let line = read_peer(&peer.checkpoint(size.peer, folder)?)?;
        for key in ["checkpoint_bytes", "step_s", "save_s", "async_stall_s", "async_whole_s", "load_s"] {
            put(peers(&format!("{key} of {}", size.name)), number(&line, key)?);
        }
    }
    Ok(())
}

/// Loads a checkpoint of 4 ranks, and one of 3, on 3 ranks.
fn measure_reshard(folder: &Path, round: &mut Round) -> Outcome<()> {
    for (from, to) in [("large_4", "large_3"), ("large_3", "large_3")] {
        let place = folder.join("reshard");
        save(from, &place)?;
        let seconds = load(to, &place)?;
        eprintln!("load of {from} by {to}: {seconds:.4}");
        round.put(format!("load of {from} by {to}"), seconds);
        std::fs::remove_dir_all(&place)?;
    }
    Ok(())
}

struct Saved {
    bytes: f64,
    step_s: f64,
    stall_s: f64,
    save_s: f64,
}

fn command(spec: &str, place: &Path) -> Outcome<Command> {
    let mut command = ours(spec)?;
    command.args(["--sample", "0", "--held-out", "0", "--threads", "1", "--steps", &STEPS.to_string()]);
    command.arg("--data").arg(place.with_file_name(TEXT));
    command.args(["--keep", "1", "--every", &EVERY.to_string(), "--checkpoint"]).arg(place);
    Ok(command)
}

/// Trains and saves. The save at the end does not count, because no training runs at the same time.
fn save(spec: &str, place: &Path) -> Outcome<Saved> {
    let metrics = PathBuf::from(format!("{}.jsonl", place.display()));
    let mut command = command(spec, place)?;
    finished(
        {
            command.arg("--metrics").arg(&metrics);
            command
        },
        spec,
    )?;
    let lines = objects(&std::fs::read_to_string(&metrics)?)?;
    std::fs::remove_file(&metrics)?;
    let of = |kind: &str, key: &str| -> Outcome<Vec<f64>> {
        lines.iter().filter(|line| line["kind"] == kind).map(|line| number(line, key)).collect()
    };
    let second =
        |key: &str| Ok::<_, Box<dyn std::error::Error>>(*of("checkpoint", key)?.get(1).ok_or("too few checkpoints")?);
    let steps = of("step", "step_s")?;
    Ok(Saved {
        bytes: second("bytes")?,
        step_s: median(steps[2..].to_vec()),
        stall_s: second("waited_s")?,
        save_s: second("took_s")?,
    })
}

/// Seconds that a run takes to verify and read its states.
fn load(spec: &str, place: &Path) -> Outcome<f64> {
    let mut command = command(spec, place)?;
    command.arg("--resume");
    let said = finished(command, spec)?;
    let line = said.lines().find_map(|line| line.trim().strip_prefix("verified and read in ")?.strip_suffix(" s"));
    Ok(line.ok_or("our run does not say how long it read")?.parse()?)
}

/// Seconds to write `bytes` bytes and flush them, and to read them again.
fn dd(file: &Path, bytes: f64) -> Outcome<[f64; 2]> {
    let count = format!("count={}", (bytes / f64::from(1 << 20)).ceil());
    let path = file.display();
    let mut seconds = [0.0; 2];
    let copies = [
        ["if=/dev/zero".to_owned(), format!("of={path}"), "conv=fsync".to_owned()],
        [format!("if={path}"), "of=/dev/null".to_owned(), "iflag=fullblock".to_owned()],
    ];
    for (copy, seconds) in copies.iter().zip(&mut seconds) {
        let mut command = Command::new("dd");
        command.args(copy).args(["bs=1M", &count]);
        let start = Instant::now();
        finished(command, "dd")?;
        *seconds = start.elapsed().as_secs_f64();
    }
    std::fs::remove_file(file)?;
    Ok(seconds)
}

/// The peer's last line.
pub fn read_peer(output: &str) -> Outcome<Value> {
    Ok(objects(output)?.pop().ok_or("the peer printed no result")?)
}

/// Lines of a table: a description, and its figures; none where nothing was measured.
pub fn table(measured: &Measured) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for size in &SIZES {
        let mut line = |what: &str, digits: usize, figure: &dyn Fn(&Round) -> Option<f64>| {
            if let Some(Spread { median, least, most }) = Spread::over(&measured.rounds, figure) {
                let range = format!("{least:.digits$} to {most:.digits$}");
                lines.push(vec![format!("{}: {what}", size.name), format!("{median:.digits$}"), range]);
            }
        };
        let copied = |what: &str| our_name(&format!("{what} of {}, copied", size.name));
        let waited = |what: &str| our_name(&format!("{what} of {}, waited", size.name));
        let peer = |what: &str| peers(&format!("{what} of {}", size.name));
        let gb = |round: &Round, bytes: &str, seconds: &str| Some(round.get(bytes)? / 1e9 / round.get(seconds)?);
        line("stall of a save that is copied, ms", 2, &|r| Some(1e3 * r.get(&copied("stall"))?));
        line("the same a GB, in steps", 3, &|r| {
            Some(r.ratio(&copied("stall"), &copied("step"))? / (r.get(&copied("bytes"))? / 1e9))
        });
        line("stall of a save that is waited for, ms", 2, &|r| Some(1e3 * r.get(&waited("stall"))?));
        line("the same a GB, in steps", 3, &|r| {
            Some(r.ratio(&waited("stall"), &waited("step"))? / (r.get(&waited("bytes"))? / 1e9))
        });
        line("written, waited for, GB/s", 2, &|r| gb(r, &waited("bytes"), &waited("save")));
        line("written by dd, flushed, GB/s", 2, &|r| gb(r, &waited("bytes"), &format!("dd, write of {}", size.name)));
        line("verified and read, GB/s", 2, &|r| gb(r, &waited("bytes"), &waited("load")));
        line("read by dd, GB/s", 2, &|r| gb(r, &waited("bytes"), &format!("dd, read of {}", size.name)));
        line("stall of async_save / ours", 2, &|r| r.ratio(&peer("async_stall_s"), &copied("stall")));
        line("dcp.save / ours, waited for", 2, &|r| r.ratio(&peer("save_s"), &waited("save")));
        line("dcp.async_save to its end / ours", 2, &|r| r.ratio(&peer("async_whole_s"), &copied("save")));
        line("dcp.load / ours", 2, &|r| r.ratio(&peer("load_s"), &waited("load")));
    }
    let reshard = |round: &Round| round.ratio("load of large_4 by large_3", "load of large_3 by large_3");
    if let Some(Spread { median, least, most }) = Spread::over(&measured.rounds, reshard) {
        let what = "1 GB of 4 ranks read by 3 / of 3 ranks".to_owned();
        lines.push(vec![what, format!("{median:.2}"), format!("{least:.2} to {most:.2}")]);
    }
    lines
}
