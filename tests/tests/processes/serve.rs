//! Serve: workers as their users start them: their answers are those of a sample, they follow a run by each of its versions, and what goes
//! wrong with a run, a version or a worker harms nobody else.

use std::net::TcpListener;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use zero_publish::client::{Connection, Reader, block_on};

use crate::publish::{free_address, publishing, url};
use crate::run::{Run, program};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const ANYWHERE: &str = "127.0.0.1:0";

/// A worker that answers.
struct Worker {
    run: Run,
    client: Client,
}

/// Who asks it.
struct Client {
    url: String,
}

impl Worker {
    fn start(arguments: &[&str]) -> Self {
        let mut run = Run::start(program(WORKER).args(["--port", "0", "--threads", "1"]).args(arguments));
        let url = served_at(&run.line("serve: "));
        Self { run, client: Client { url } }
    }

    /// Ends it as a scheduler does.
    fn end(self) {
        kill_process(self.run.launcher(), Signal::TERM).unwrap();
        let end = self.run.end();
        // A run that ends in the middle of a version is a note.
        assert!(end.code == Some(0) && end.errors.lines().all(|line| line.starts_with("note: ")), "{}", end.errors);
        assert!(end.lines.iter().any(|line| line == "serve: ended as it was asked to"), "{:?}", end.lines);
    }
}

impl Deref for Worker {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Client {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = block_on(async {
            Connection::open(&self.url, None).await?.request(method, path, body.into_bytes().into()).await
        });
        let answer = answer.unwrap().unwrap_or_else(|error| panic!("{error}"));
        serde_json::from_slice(&answer).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&answer).into_owned()))
    }

    /// The choice of a completion.
    fn complete(&self, body: &Value) -> Value {
        self.ask("POST", "/v1/completions", body)["choices"][0].clone()
    }

    fn version(&self) -> String {
        self.ask("GET", "/weight_info", &Value::Null)["weight_version"].as_str().unwrap().to_owned()
    }

    fn step(&self) -> u64 {
        self.version().split_once('-').unwrap().0.parse().unwrap()
    }

    fn metric(&self, name: &str) -> f64 {
        let text = self.ask("GET", "/metrics", &Value::Null);
        let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    }
}

fn served_at(line: &str) -> String {
    let url = line.split([' ', ',']).find(|word| word.starts_with("http://"));
    url.unwrap_or_else(|| panic!("no URL: {line}")).to_owned()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder of weights after some steps.
fn trained(root: &Path) -> String {
    let folder = root.join("trained");
    let mut run = publishing(ANYWHERE, 60, root, &["--export-dtype", "bf16", "--publish-every", "1000"]);
    let end = Run::start(run.arg("--export").arg(&folder)).end();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    folder.to_str().unwrap().to_owned()
}

/// A greedy completion.
fn greedy(prompt: &str) -> Value {
    json!({ "prompt": prompt, "temperature": 0, "max_tokens": 8 })
}

/// What a client asks for is what `--only sample` says with the same seed, however many ask at once.
#[test]
fn answers_are_those_of_a_sample() {
    let root = tempfile::tempdir().unwrap();
    let folder = &trained(root.path());
    let sample = |prompt: &str, seed: u64, temperature: &str, tokens: usize| {
        let mut command = program(env!("CARGO_BIN_EXE_published"));
        command.args(["--only", "sample", "--init", folder, "--prompt", prompt, "--temperature", temperature]);
        command.args(["--seed", &seed.to_string(), "--sample", &tokens.to_string(), "--threads", "1"]);
        let end = Run::start(&mut command).end();
        assert_eq!(end.code, Some(0), "{}", end.errors);
        let said = end.lines.join("\n");
        let (_, after) = said.split_once("sample:\n").unwrap();
        let (text, _) = after.rsplit_once("\nprompt: ").unwrap();
        text.strip_prefix(prompt).unwrap().to_owned()
    };
    let worker = Worker::start(&["--init", folder]);
    assert_eq!(worker.version(), "init");
    let client = &worker.client;
    std::thread::scope(|scope| {
        for seed in 0..5u64 {
            scope.spawn(move || {
                let (prompt, temperature) =
                    (&"\u{1}\u{2}\u{3}\u{5}"[..1 + seed as usize % 4], ["0.7", "0"][seed as usize % 2]);
                let number: f64 = temperature.parse().unwrap();
                for tokens in [7, 2 + seed as usize] {
                    let asked = json!({ "prompt": prompt, "seed": seed, "temperature": number, "max_tokens": tokens });
                    let said = client.complete(&asked)["text"].as_str().unwrap().to_owned();
                    assert_eq!(said, sample(prompt, seed, temperature, tokens), "{asked}");
                }
            });
        }
    });
    Worker::start(&["--init", folder, "--name", "mine"]).end();
}

/// Each of several workers takes every version of two learners, which wait for readers, and has in the end what is exported.
#[test]
fn workers_take_every_version_of_a_run() {
    const STEPS: u64 = 60;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("exported");
    let mut command = publishing(ANYWHERE, STEPS, root.path(), &["--export-dtype", "bf16"]);
    let mut run = Run::start(command.arg("--export").arg(&folder));
    let url = url(&mut run);
    // Training waits for a reader that does nothing until all workers are there.
    let mut holds = Reader::new(&url, None, "holds");
    block_on(holds.join()).unwrap().unwrap();
    let workers: Vec<Worker> = (0..6).map(|_| Worker::start(&["--from", &url])).collect();
    let first = workers[0].step();
    assert!(workers.iter().all(|worker| worker.step() == first));
    block_on(holds.leave()).unwrap();
    let asking = AtomicBool::new(true);
    std::thread::scope(|scope| {
        // Weights change while they answer.
        for client in workers[..2].iter().map(|worker| &worker.client) {
            let asking = &asking;
            scope.spawn(move || {
                while asking.load(Ordering::Relaxed) {
                    let choice = client.complete(&greedy("\u{1}\u{2}"));
                    let spans = choice["weight_versions"].as_array().unwrap();
                    let ends = spans.iter().map(|span| span["end"].as_u64().unwrap());
                    assert!(choice["finish_reason"] == "length" && ends.max() == Some(8), "{choice}");
                }
            });
        }
        let end = run.end();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        workers.iter().for_each(|worker| until("the last version", || worker.step() == STEPS));
        asking.store(false, Ordering::Relaxed);
    });
    let exported = Worker::start(&["--init", folder.to_str().unwrap()]);
    for prompt in ["\u{1}", "\u{3}\u{5}\u{8}"] {
        let expected = exported.complete(&greedy(prompt));
        for worker in &workers {
            let choice = worker.complete(&greedy(prompt));
            assert_eq!((&choice["text"], choice["weight_versions"].as_array().unwrap().len()), (&expected["text"], 1));
            let answer = |worker: &Worker| {
                worker.complete(&json!({ "prompt": prompt, "seed": 3, "max_tokens": 8, "logprobs": 1 }))
            };
            assert_eq!(answer(worker)["logprobs"], answer(&exported)["logprobs"]);
        }
    }
    // Training waits for readers before each version, so one that has joined misses none.
    for worker in workers {
        assert_eq!(worker.metric("zero_weight_updates_total") as u64, STEPS - first);
        let busy = ticks(&worker);
        std::thread::sleep(Duration::from_millis(300));
        assert!(ticks(&worker) - busy <= 3, "a worker without requests does not sleep");
        worker.end();
    }
}

/// Hundredths of a second that a worker has computed for.
fn ticks(worker: &Worker) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.run.launcher().as_raw_nonzero())).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// A run that trains until it is ended, and publishes after every step.
fn endless(root: &Path, at: &str) -> (Run, String) {
    let mut run = Run::start(&mut publishing(at, u64::MAX, root, &["--publish-timeout", "1s"]));
    let url = url(&mut run);
    (run, url)
}

/// The bytes that a process has in memory and shares with nobody.
fn private_bytes(worker: &Worker) -> usize {
    let rollup =
        std::fs::read_to_string(format!("/proc/{}/smaps_rollup", worker.run.launcher().as_raw_nonzero())).unwrap();
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<usize>().ok();
    1024 * rollup.lines().filter(|line| line.starts_with("Private_")).filter_map(kib).sum::<usize>()
}

#[test]
fn a_worker_that_is_killed_or_stands_still_harms_nobody() {
    let root = tempfile::tempdir().unwrap();
    let (run, url) = endless(root.path(), ANYWHERE);
    let [steady, killed, stopped] = [0, 1, 2].map(|_| Worker::start(&["--from", &url]));
    let from = steady.step();
    drop(killed);
    kill_process(stopped.run.launcher(), Signal::STOP).unwrap();
    until("newer versions", || steady.step() >= from + 5);
    kill_process(stopped.run.launcher(), Signal::CONT).unwrap();
    // It misses what came meanwhile, and goes on with the newest.
    let now = steady.step();
    until("it has the newest", || stopped.step() > now);
    let memory = program(WORKER).args(["--plan"]).output().unwrap();
    let plan = String::from_utf8(memory.stdout).unwrap();
    let total = plan.lines().find_map(|line| line.trim().strip_prefix("total ")).unwrap().trim().to_owned();
    let mib: f64 = total.strip_suffix(" MiB").unwrap().parse().unwrap();
    assert!(
        private_bytes(&steady) as f64 <= mib * f64::from(1 << 20),
        "{} bytes, planned {total}",
        private_bytes(&steady)
    );
    stopped.end();
    drop(run);
    // Without a run, a worker answers on with what it has.
    until("answers have what it has", || {
        steady.complete(&greedy("\u{1}"))["weight_versions"][0]["version"] == steady.version()
    });
    steady.end();
}

/// A run that begins anew at the same address has other weights after fewer steps, and its workers take them.
#[test]
fn a_worker_takes_the_versions_of_a_run_that_begins_anew() {
    let root = tempfile::tempdir().unwrap();
    let at = free_address(20_000);
    let (first, url) = endless(root.path(), &at);
    let worker = Worker::start(&["--from", &url, "--on-update", "recompute"]);
    until("some versions", || worker.step() >= 10);
    let of_first = worker.version();
    drop(first);
    let (second, _) = endless(root.path(), &at);
    let run_of = |version: &str| version.split_once('-').unwrap().1.to_owned();
    until("a version of the second run", || run_of(&worker.version()) != run_of(&of_first));
    worker.end();
    drop(second);
}

/// What a worker cannot do is said once, by its code.
#[test]
fn z0339_a_worker_that_cannot_serve() {
    let root = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind(ANYWHERE).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let nobody = format!("http://127.0.0.1:{port}");
    let folder = &trained(root.path());
    for (arguments, code, words) in [
        (&["--init", folder, "--port", &port][..], "Z0339", "cannot be bound"),
        (&["--init", folder, "--port", "0", "--token", "/nowhere"], "Z0339", "the token in /nowhere"),
        (
            &["--from", "http://127.0.0.1:1", "--port", "0", "--patience", "1s"],
            "Z0339",
            "no answer from http://127.0.0.1:1",
        ),
        (&["--from", "nowhere", "--port", "0", "--patience", "1s"], "Z0339", "expected http://HOST:PORT"),
        (&["--init", "/nowhere", "--port", "0"], "Z0360", "/nowhere"),
        (&[], "Z0354", "--from <URL>"),
        (&["--init", folder, "--from", &nobody], "Z0354", "cannot be used with"),
    ] {
        let end = Run::start(program(WORKER).args(arguments)).end();
        assert!(end.code.is_some_and(|code| code != 0), "{arguments:?}");
        let errors = end.errors.matches("error[").count();
        assert!(errors == 1 && end.errors.contains(&format!("error[{code}]")), "{arguments:?}: {}", end.errors);
        assert!(end.errors.contains(words), "{arguments:?}: {}", end.errors);
    }
}
