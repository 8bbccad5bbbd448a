//! Publish: readers of a run have what it exports, whenever they come and go; a reader that stands still, a rank that is killed, another
//! run at the same address and a run that is resumed harm nobody.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use zero_publish::PublishError;
use zero_publish::client::{Reader, block_on};
use zero_publish::wire::Version;
use zero_tests::readers::{Tensors, exported, fetched};

use crate::run::{End, Run, program};

const PUBLISHED: &str = env!("CARGO_BIN_EXE_published");
/// Any port of this host.
const ANYWHERE: &str = "127.0.0.1:0";
/// Ranks of the model.
const RANKS: usize = 2;

/// A run of `steps` steps that publishes after each one, with metrics in a folder.
pub fn publishing(at: &str, steps: u64, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program(PUBLISHED);
    let text = folder.join("text");
    std::fs::write(&text, [1, 2, 3, 5, 8].repeat(2_000)).unwrap();
    command.args(["--held-out", "0", "--sample", "0", "--log-every", "1", "--steps", &steps.to_string()]);
    command.arg("--data").arg(text).args(["--publish", at]).args(arguments);
    command
}

/// Where a run that has started publishes.
pub fn url(run: &mut Run) -> String {
    let line = run.line("publish: ");
    let url =
        line.split_whitespace().find_map(|word| word.strip_suffix(',').filter(|word| word.starts_with("http://")));
    url.unwrap_or_else(|| panic!("no URL: {line}")).to_owned()
}

/// What a reader has seen: the steps of its versions, and the last of them.
struct Seen {
    steps: Vec<u64>,
    last: Tensors,
}

/// Reads every version until nobody answers any more, or `enough` says so.
fn read(url: &str, name: &str, enough: impl Fn(u64) -> bool) -> Seen {
    let mut reader = Reader::new(url, None, name);
    block_on(async {
        let (mut seen, mut after) = (Seen { steps: Vec::new(), last: Tensors::new() }, None);
        while reader.join().await.is_ok() {
            let Ok(Some(version)) = reader.wait(after.as_ref(), 20).await else { break };
            match fetched(&reader, &version).await {
                Ok(tensors) => {
                    let step = version.0.split_once('-').unwrap().0.parse().unwrap();
                    seen.steps.push(step);
                    seen.last = tensors;
                    if reader.acknowledge(&version, None).await.is_err() || enough(step) {
                        break;
                    }
                }
                Err(PublishError::GivenUp { .. }) => {}
                Err(PublishError::Unreachable { .. }) => break,
                Err(error) => panic!("{name}: {error}"),
            }
            after = Some(version);
        }
        reader.leave().await;
        seen
    })
    .unwrap()
}

/// The losses of a run, by its metrics.
fn losses(metrics: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(metrics).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == "step").map(|line| line["loss"].clone()).collect()
}

fn assert_well(end: &End) {
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
}

/// With one copy training waits for its readers, so none of them misses a version once it has joined.
#[test]
fn readers_that_come_and_go_have_what_is_exported() {
    const STEPS: u64 = 400;
    let root = tempfile::tempdir().unwrap();
    let [metrics, alone, folder] = ["metrics", "alone", "exported"].map(|name| root.path().join(name));
    let mut command = publishing(ANYWHERE, STEPS, root.path(), &["--export-dtype", "bf16"]);
    let mut run = Run::start(command.arg("--metrics").arg(&metrics).arg("--export").arg(&folder));
    let url = &url(&mut run);
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let staying = (0..5).map(|number| scope.spawn(move || read(url, &format!("stays {number}"), |_| false)));
        let staying: Vec<_> = staying.collect();
        // One that leaves again and again, and joins anew.
        let moving = scope.spawn(|| {
            let mut steps = Vec::new();
            loop {
                let Seen { steps: more, last } = read(url, "moves", |step| step % 7 == 0);
                if more.is_empty() {
                    break;
                }
                steps.extend(more);
                if steps.last() == Some(&STEPS) {
                    return Seen { steps, last };
                }
            }
            Seen { steps, last: Tensors::new() }
        });
        staying.into_iter().chain([moving]).map(|reader| reader.join().unwrap()).collect()
    });
    assert_well(&run.end());
    let expected = exported(&folder);
    for (number, Seen { steps, last }) in seen.iter().enumerate() {
        assert!(*last == expected, "reader {number} has other weights than those that were exported");
        assert_eq!(steps.last(), Some(&STEPS), "reader {number}");
        let is_next = |pair: &[u64]| pair[1] == pair[0] + 1;
        assert!(number == 5 || steps.windows(2).all(is_next), "reader {number} has missed a version: {steps:?}");
    }
    // Readers change no bit.
    let mut command = publishing(ANYWHERE, STEPS, root.path(), &[]);
    assert_well(&Run::start(command.arg("--metrics").arg(&alone)).end());
    let (with, without) = (losses(&metrics), losses(&alone));
    assert!(with.len() == STEPS as usize && with == without);
}

/// A reader that joins and then says nothing more delays a run once, by as long as it may, and is named once.
#[test]
fn a_reader_that_stands_still_is_given_up_once() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::start(&mut publishing(ANYWHERE, 300, root.path(), &["--publish-timeout", "1s"]));
    let url = url(&mut run);
    block_on(async { Reader::new(&url, None, "stands still").join().await }).unwrap().unwrap();
    let other = read(&url, "reads", |_| false);
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    let notes: Vec<_> =
        end.errors.lines().filter(|line| line.contains("is not read by stands still within 1 s")).collect();
    assert!(notes.len() == 1 && end.errors.lines().count() == 1, "{}", end.errors);
    assert_eq!(other.steps.last(), Some(&300));
}

#[test]
fn a_rank_that_is_killed_ends_the_run_and_its_readers() {
    let root = tempfile::tempdir().unwrap();
    let mut run = Run::start(&mut publishing(ANYWHERE, u64::MAX, root.path(), &[]));
    let url = &url(&mut run);
    let (seen, end) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(url, "reads", |_| false));
        run.wait_for_step(20);
        rustix::process::kill_process(run.ranks(RANKS)[1], rustix::process::Signal::KILL).unwrap();
        let end = run.end();
        (reader.join().unwrap(), end)
    });
    assert_ne!(end.code, Some(0));
    assert!(end.errors.contains("rank 1"), "{}", end.errors);
    // What it has is a whole version, because every piece was verified.
    assert!(!seen.last.is_empty() && seen.steps.windows(2).all(|pair| pair[0] < pair[1]));
}

/// An address whose port is free, and the next one, too, for the other rank. It is none of those that the system hands out, so that no
/// other test gets it meanwhile; `from` tells the tests of a process apart.
pub fn free_address(from: u16) -> String {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let first = from + (std::process::id() % 10_000) as u16;
    let port = (first..).step_by(2).find(|port| is_free(port) && is_free(&(port + 1)));
    format!("127.0.0.1:{}", port.expect("two free ports"))
}

/// A run that is resumed has other versions, and readers that are still there go on with them.
#[test]
fn readers_go_on_with_a_run_that_is_resumed() {
    let root = tempfile::tempdir().unwrap();
    let checkpoints = root.path().join("checkpoints");
    let address = free_address(10_000);
    let url = &format!("http://{address}");
    let command = |steps: u64, more: &[&str]| {
        let mut command = publishing(&address, steps, root.path(), more);
        command.arg("--checkpoint").arg(&checkpoints);
        command
    };
    let versions = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut versions, mut reader) = (Vec::new(), Reader::new(url, None, "stays"));
            block_on(async {
                let mut after: Option<Version> = None;
                let began = Instant::now();
                while versions.last().is_none_or(|last: &Version| !last.0.starts_with("400-")) {
                    assert!(began.elapsed() < Duration::from_secs(60), "{versions:?}");
                    let next = match reader.join().await {
                        Ok(()) => reader.wait(after.as_ref(), 20).await,
                        Err(error) => Err(error),
                    };
                    let Ok(Some(version)) = next else {
                        reader.forget();
                        zero_publish::client::sleep(Duration::from_millis(20)).await;
                        continue;
                    };
                    if fetched(&reader, &version).await.is_ok() && reader.acknowledge(&version, None).await.is_ok() {
                        versions.push(version.clone());
                    }
                    after = Some(version);
                }
                reader.leave().await;
            })
            .unwrap();
            versions
        });
        let first = Run::start(&mut command(200, &[])).end();
        assert_eq!(first.code, Some(0), "{}", first.errors);
        let second = Run::start(&mut command(400, &["--resume"])).end();
        assert_eq!(second.code, Some(0), "{}", second.errors);
        reader.join().unwrap()
    });
    let runs: std::collections::BTreeSet<&str> = versions.iter().map(|it| it.0.split_once('-').unwrap().1).collect();
    assert!((1..=2).contains(&runs.len()), "{versions:?}");
}

#[test]
fn arguments_and_spec_say_the_same_about_publishing() {
    let root = tempfile::tempdir().unwrap();
    let end = |command: &mut Command| {
        let end = Run::start(command).end();
        assert_ne!(end.code, Some(0), "{}", end.errors);
        end.errors
    };
    let mut without = program(PUBLISHED);
    let error = end(without.args(["--steps", "1"]));
    assert!(
        error.starts_with("error[Z0350]: this program publishes its parameters, but there is no --publish"),
        "{error}"
    );
    let mut other = program(env!("CARGO_BIN_EXE_tiny"));
    let error = end(other.args(["--steps", "1", "--publish", "127.0.0.1:0"]));
    assert!(error.starts_with("error[Z0350]: --publish 127.0.0.1:0 is for a program that publishes"), "{error}");
    // Two runs at one address.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let error = end(&mut publishing(&at, 1, root.path(), &[]));
    assert!(error.starts_with("error[Z0338]: cannot serve published parameters at"), "{error}");
    assert_eq!(error.matches("error[").count(), 1, "{error}");
}
