//! A model whose next token depends on every token before it and on the version of the weights that each was computed with; and a client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use zero_core::random::{mix, uniform};
use zero_core::sampling::{Sampler, Sampling};

use crate::{Decoder, Mailbox, OnUpdate, Row, Served, Server, Words, Worker};

pub const CLASSES: usize = 128;
pub const SLOTS: usize = 3;
pub const LENGTH: usize = 64;
pub const QUEUE: usize = 4;
/// A token after which logits are not finite.
pub const POISON: u32 = 0;

/// The logits after tokens, each with the version that its cache was computed with.
pub fn logits(tokens: &[(u32, usize)], logits: &mut [f32]) {
    let hash = tokens.iter().fold(7, |hash, &(id, version)| mix(hash, u64::from(id) << 8 | version as u64));
    // The poison is never drawn.
    logits.iter_mut().enumerate().for_each(|(id, logit)| *logit = 6.0 * uniform(hash, id as u64) as f32);
    logits[POISON as usize] = if tokens.iter().any(|&(id, _)| id == POISON) { f32::NAN } else { -1e30 };
}

/// What is drawn after a prompt if `version_of` says which version the step of each token has, and whether caches are computed anew.
pub fn expected(prompt: &str, seed: u64, sampling: Sampling, versions: &[usize], anew: bool) -> String {
    let mut tokens: Vec<(u32, usize)> = prompt.bytes().map(|id| (u32::from(id), versions[0])).collect();
    let (mut sampler, mut row, mut text) = (Sampler::new(sampling, CLASSES), vec![0.0; CLASSES], String::new());
    for (at, &version) in versions.iter().enumerate() {
        if let (true, Some(last)) = (at > 0, tokens.last_mut()) {
            last.1 = version;
        }
        if anew && at > 0 && versions[at - 1] != version {
            tokens.iter_mut().for_each(|token| token.1 = version);
        }
        logits(&tokens, &mut row);
        let id = sampler.choose(&row, uniform(seed, at as u64)).expect("finite logits");
        text.push(id as u8 as char);
        tokens.push((id, version));
    }
    text
}

/// Lets steps pass one by one.
#[derive(Default)]
pub struct Gate {
    open: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Gate {
    /// Closes it, but for so many steps.
    pub fn allow(&self, steps: usize) {
        *self.open.lock().unwrap() = Some(steps);
        self.changed.notify_all();
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = None;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let waits = |open: &mut Option<usize>| *open == Some(0);
        let (mut open, _) =
            self.changed.wait_timeout_while(self.open.lock().unwrap(), Duration::from_secs(20), waits).unwrap();
        *open = open.map(|steps| steps.saturating_sub(1));
    }
}

pub struct Toy {
    caches: Vec<Vec<(u32, usize)>>,
    version: usize,
    name: String,
    newest: Arc<AtomicUsize>,
    gate: Arc<Gate>,
}

impl Decoder for Toy {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn length(&self) -> usize {
        LENGTH
    }

    fn classes(&self) -> usize {
        CLASSES
    }

    fn version(&self) -> &str {
        &self.name
    }

    fn prefill(&mut self, slot: usize, ids: &[u32], row: &mut [f32]) -> Result<(), String> {
        self.caches[slot] = ids.iter().map(|&id| (id, self.version)).collect();
        logits(&self.caches[slot], row);
        Ok(())
    }

    fn step(&mut self, rows: &[Row], all: &mut [f32]) -> Result<(), String> {
        self.gate.pass();
        assert!(!rows.is_empty() && all.len() == rows.len() * CLASSES);
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other.slot != row.slot), "two rows in slot {}", row.slot);
            assert_eq!(self.caches[row.slot].len(), row.cached, "slot {}", row.slot);
            self.caches[row.slot].push((row.id, self.version));
            logits(&self.caches[row.slot], &mut all[at * CLASSES..][..CLASSES]);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<bool, String> {
        Ok(self.newest.load(Ordering::Relaxed) > self.version)
    }

    fn refresh(&mut self) -> Result<(), String> {
        self.version = self.newest.load(Ordering::Relaxed);
        self.name = format!("v{}", self.version);
        Ok(())
    }
}

/// A worker of the toy, with its server.
pub struct Running {
    pub at: SocketAddr,
    pub mailbox: Mailbox,
    pub gate: Arc<Gate>,
    newest: Arc<AtomicUsize>,
    worker: Option<JoinHandle<()>>,
}

/// How a worker is started.
#[derive(Default)]
pub struct Start {
    pub on_update: OnUpdate,
    pub token: Option<&'static str>,
    pub template: Option<&'static str>,
    pub drain: Duration,
}

impl Running {
    pub fn new(start: Start) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let worker = Worker::new(start.on_update, start.drain);
        let (mailbox, newest, gate) = (worker.mailbox(), Arc::<AtomicUsize>::default(), Arc::<Gate>::default());
        let words = Words::new(None, CLASSES, None, start.template.map(str::to_owned)).expect("a template");
        let served = Served {
            model: "toy".to_owned(),
            source: "a test".to_owned(),
            token: start.token.map(str::to_owned),
            words,
            slots: SLOTS,
            queue: QUEUE,
            length: LENGTH,
        };
        let (server, serving) = Server::new(listener, served, mailbox.clone());
        let (caches, name) = (vec![Vec::new(); SLOTS], "v0".to_owned());
        let mut toy = Toy { caches, version: 0, name, newest: Arc::clone(&newest), gate: Arc::clone(&gate) };
        let worker = std::thread::spawn(move || {
            let answers = std::thread::spawn(|| server.run());
            worker.run(&mut toy).expect("a worker");
            drop(serving);
            answers.join().expect("a thread").expect("a server");
        });
        Self { at, mailbox, gate, newest, worker: Some(worker) }
    }

    /// Has newer weights arrive.
    pub fn update(&self) {
        self.newest.fetch_add(1, Ordering::Relaxed);
        self.mailbox.wake();
    }

    /// The answer to a request: its status and its body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with(method, path, body, "")
    }

    pub fn ask_with(&self, method: &str, path: &str, body: &str, header: &str) -> (u16, String) {
        let mut stream = self.begin(method, path, body, header);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (status, if is_chunked { unchunked(body) } else { body.to_owned() })
    }

    /// Sends a request.
    pub fn begin(&self, method: &str, path: &str, body: &str, header: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let len = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: toy\r\nConnection: close\r\n{header}Content-Length: {len}\r\n\r\n{body}"
        )
        .expect("a request");
        stream
    }

    /// A completion that succeeds.
    pub fn complete(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", "/v1/completions", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.ask("GET", "/metrics", "");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < until, "not within 20 s: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn until_running(&self, sequences: f64) {
        self.until("sequences run", |it| it.metric("zero_sequences_running") == sequences);
    }

    /// Ends it, and waits for that.
    pub fn end(mut self) {
        self.mailbox.end();
        self.worker.take().expect("a worker").join().expect("an end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.gate.open();
        self.mailbox.end();
    }
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(&after[..size]);
        rest = &after[size + 2..];
        if size == 0 {
            break;
        }
    }
    whole
}

/// The documents of server-sent events, after which the stream says that it is done.
pub fn events(body: &str) -> Vec<Value> {
    let mut events: Vec<&str> =
        body.split("\n\n").filter(|it| !it.is_empty()).map(|it| it.strip_prefix("data: ").expect("data")).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
}
