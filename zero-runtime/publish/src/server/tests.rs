//! Requests of all kinds to servers of two ranks whose copies are made up. Every wait ends, and what is wrong is told by name.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::client::{Connection, Reader, block_on};
use crate::http::CONNECTIONS_MAX;
use crate::wire::{FileEntry, HASH_BYTES, PIECE_BYTES, PublishedTensor, RankAddress, Version};

const RUN: &str = "0123456789abcdef";
const RANK_BYTES: usize = 2 * PIECE_BYTES + 100;

/// Copies of made-up numbers: byte `i` of a step.
#[derive(Clone)]
struct Made {
    rank: usize,
    /// The step in the copy; 0 if there is none.
    step: Arc<AtomicU64>,
    /// The byte that is wrong once hashes are made; none if it is beyond the copy.
    flipped: Arc<AtomicUsize>,
    /// The byte from which on a newer version has taken its place.
    gone_at: Arc<AtomicUsize>,
    /// How often the copy is asked for before it is there.
    comes_in: Arc<AtomicUsize>,
}

fn byte(rank: usize, step: u64, at: usize) -> u8 {
    (at as u64 * 31 + step * 7 + rank as u64 * 3) as u8
}

impl PublishedCopies for Made {
    fn bytes(&self) -> usize {
        RANK_BYTES
    }

    fn is_coming(&self, step: u64) -> bool {
        let of_step = self.step.load(Ordering::Relaxed) == step;
        let one_less = |left: usize| left.checked_sub(1);
        of_step && self.comes_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    fn read(&self, step: u64, start: usize, to: &mut [u8]) -> bool {
        let has_come = self.comes_in.load(Ordering::Relaxed) == 0;
        let is_there =
            has_come && self.step.load(Ordering::Relaxed) == step && start < self.gone_at.load(Ordering::Relaxed);
        for (at, to) in (start..).zip(to.iter_mut()) {
            *to = byte(self.rank, step, at) ^ u8::from(at == self.flipped.load(Ordering::Relaxed));
        }
        is_there
    }
}

/// Two ranks that serve.
struct Ranks {
    made: Vec<Made>,
    steps: Vec<Steps>,
    readers: Arc<Readers>,
    url: String,
    notes: Arc<Mutex<Vec<String>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Ranks {
    fn start(token: Option<&str>) -> Self {
        Self::that_tell(token, None)
    }

    /// The same, which tell their hashes to `first` in place of rank 0.
    fn that_tell(token: Option<&str>, first: Option<&str>) -> Self {
        let listeners = [0, 1].map(|rank| bind("127.0.0.1:0", rank).expect("a port"));
        let ports = listeners.each_ref().map(|listener| listener.local_addr().expect("an address").port());
        let ranks = ports.map(|port| RankAddress { url: None, port, bytes: RANK_BYTES });
        let part =
            |rank: usize| crate::wire::Part { rank, offset: 0, start: rank * RANK_BYTES / 2, len: RANK_BYTES / 2 };
        let tensor = PublishedTensor {
            name: "w".to_owned(),
            shape: vec![RANK_BYTES],
            transposed: false,
            parts: vec![part(0), part(1)],
        };
        let layout = Layout {
            model: "Made".to_owned(),
            dtype: "bf16".to_owned(),
            ranks: ranks.into(),
            tensors: vec![tensor],
            files: Vec::new(),
        };
        let url = format!("http://127.0.0.1:{}", ports[0]);
        let readers = Arc::new(Readers::default());
        let (mut all, mut steps, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        let notes: Arc<Mutex<Vec<String>>> = Arc::default();
        for (rank, listener) in listeners.into_iter().enumerate() {
            let (step, beyond) = (Arc::default(), || Arc::new(AtomicUsize::new(usize::MAX)));
            let made =
                Made { rank, step, flipped: beyond(), gone_at: beyond(), comes_in: Arc::new(AtomicUsize::new(3)) };
            let served = Served {
                rank,
                run: RUN.to_owned(),
                secret: [7; 32],
                token: token.map(str::to_owned),
                layout: layout.clone(),
                files: vec![BesideFile::new("config.json", b"{}".to_vec())],
                first: first.unwrap_or(&url).to_owned(),
            };
            let (server, offered) = Server::new(listener, served, Arc::clone(&readers));
            let (copies, notes) = (made.clone(), Arc::clone(&notes));
            threads.push(std::thread::spawn(move || {
                let note = move |note: &str| notes.lock().expect("notes").push(note.to_owned());
                server.run(copies, note).expect("a server");
            }));
            all.push(made);
            steps.push(offered);
        }
        Self { made: all, steps, readers, url, notes, threads }
    }

    /// Offers a version on both ranks, and waits until it is whole.
    fn offer(&self, step: u64) -> Version {
        self.made.iter().for_each(|made| made.step.store(step, Ordering::Relaxed));
        self.steps.iter().for_each(|steps| steps.offer(step));
        assert!(self.readers.wait_until_shown(step, Duration::from_secs(60)));
        Version::of(step, RUN)
    }

    fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").expect("http").parse().expect("an address")
    }

    /// What the server answers to bytes, until it closes or has nothing more to say.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a time");
        // It may close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends the servers, which do so although connections are open.
    fn end(self) -> Vec<String> {
        drop(self.steps);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a server that ends"));
        self.notes.lock().expect("notes").clone()
    }
}

/// All bytes of a version, rank by rank.
fn fetched(ranks: &Ranks, version: &Version, token: Option<&str>) -> Result<Vec<Vec<u8>>, PublishError> {
    let reader = Reader::new(&ranks.url, token, "test");
    block_on(async {
        let fetching = reader.fetch(version).await?;
        assert_eq!(reader.file(version, &FileEntry::of("config.json", b"{}")).await?, b"{}".as_slice());
        let mut all = Vec::new();
        for mut rank in fetching.ranks {
            let mut bytes = Vec::new();
            while let Some(piece) = rank.next().await? {
                bytes.extend(piece);
            }
            all.push(bytes);
        }
        Ok(all)
    })
    .expect("a runtime")
}

impl FileEntry {
    fn of(name: &str, content: &[u8]) -> Self {
        Self { name: name.to_owned(), bytes: content.len(), blake3: crate::wire::hex_hash(content) }
    }
}

#[test]
fn a_version_is_whole_on_all_ranks_or_not_there() {
    let ranks = Ranks::start(None);
    let get =
        |path: &str| ranks.answer(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
    assert!(get("/v1/manifest").starts_with("HTTP/1.1 404"), "nothing is there yet");
    // One rank alone makes no version.
    ranks.made.iter().for_each(|made| made.step.store(3, Ordering::Relaxed));
    ranks.steps[1].offer(3);
    assert!(!ranks.readers.wait_until_shown(3, Duration::from_millis(300)));
    assert!(get(&format!("/v1/versions/3-{RUN}/manifest")).starts_with("HTTP/1.1 404"));
    let version = ranks.offer(3);
    for (rank, bytes) in fetched(&ranks, &version, None).expect("a version").iter().enumerate() {
        assert!(bytes.len() == RANK_BYTES && bytes.iter().enumerate().all(|(at, &it)| it == byte(rank, 3, at)));
    }
    // The next one takes its place.
    let next = ranks.offer(4);
    assert!(
        matches!(fetched(&ranks, &version, None), Err(PublishError::GivenUp { version }) if version == "3-0123456789abcdef")
    );
    assert!(fetched(&ranks, &next, None).is_ok());
    assert!(get("/v1/versions/4-fedcba9876543210/bytes").starts_with("HTTP/1.1 404"), "a version of another run");
    assert_eq!(ranks.end(), [""; 0]);
}

#[test]
fn a_rank_tells_its_hash_until_it_is_heard() {
    let first = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ranks = Ranks::that_tell(None, Some(&format!("http://{}", first.local_addr().expect("an address"))));
    ranks.made[1].step.store(7, Ordering::Relaxed);
    ranks.steps[1].offer(7);
    // Whoever is in the way has the connection closed.
    first.set_nonblocking(true).expect("a socket");
    let accepted = || {
        let again = |_| first.accept().inspect_err(|_| std::thread::sleep(Duration::from_millis(5))).ok();
        (0..2000).find_map(again).expect("a connection within 10 s").0
    };
    (0..3).for_each(|_| drop(accepted()));
    let mut stream = accepted();
    stream.set_nonblocking(false).expect("a socket");
    let mut head = [0; 18];
    stream.read_exact(&mut head).expect("a request");
    assert_eq!(&head, b"POST /v1/ranks/1/7");
    drop(stream);
    ranks.end();
}

#[test]
fn a_bit_that_flips_is_named() {
    let ranks = Ranks::start(None);
    let version = ranks.offer(1);
    ranks.made[1].flipped.store(PIECE_BYTES + 5, Ordering::Relaxed);
    let error = fetched(&ranks, &version, None).map(drop).expect_err("a flipped bit").to_string();
    assert!(error.starts_with(&format!("piece 1 of rank 1 of version 1-{RUN} is corrupt: expected ")), "{error}");
    ranks.end();
}

#[test]
fn a_version_that_is_given_up_while_it_is_read_ends_early() {
    let ranks = Ranks::start(None);
    let version = ranks.offer(1);
    ranks.made[1].gone_at.store(PIECE_BYTES + 5, Ordering::Relaxed);
    assert!(matches!(fetched(&ranks, &version, None), Err(PublishError::GivenUp { .. })));
    ranks.end();
}

#[test]
fn readers_join_wait_acknowledge_and_leave() {
    let ranks = Ranks::start(None);
    let mut reader = Reader::new(&ranks.url, None, "eval");
    let first = ranks.offer(1);
    block_on(async {
        assert_eq!(reader.wait(None, 10).await.expect("a version"), Some(first.clone()));
        assert_eq!(reader.wait(Some(&first), 0).await.expect("no other"), None);
        reader.join().await.expect("room");
        assert_eq!(ranks.readers.wait_for_all(1, Duration::ZERO), ["eval"]);
        reader.acknowledge(&first, None).await.expect("known");
        assert_eq!(ranks.readers.wait_for_all(1, Duration::ZERO), [""; 0]);
        // A refusal is told to a person, and settles the version too.
        reader.acknowledge(&first, Some("too\nnew".to_owned())).await.expect("known");
        // A version of an earlier run is neither an error nor waited for.
        assert!(reader.wait(Some(&Version("9-other".to_owned())), 10).await.expect("a version").is_some());
        reader.leave().await;
    })
    .expect("a runtime");
    assert_eq!(ranks.readers.wait_for_all(2, Duration::ZERO), [""; 0]);
    // One that waits has the next version as soon as it is whole.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(reader.wait(Some(&first), 60)).expect("a runtime").expect("a version"));
        std::thread::sleep(Duration::from_millis(50));
        let second = ranks.offer(2);
        assert_eq!(waiting.join().expect("an answer"), Some(second));
    });
    assert_eq!(ranks.end(), [format!("note: reader `eval` refused version 1-{RUN}: toonew\n")]);
}

#[test]
fn without_the_token_nothing_is_told() {
    let ranks = Ranks::start(Some("sesame"));
    let version = ranks.offer(1);
    for token in [None, Some("sesam"), Some("Sesame"), Some("")] {
        let error = fetched(&ranks, &version, token).map(drop).expect_err("no token");
        assert!(matches!(error, PublishError::Refused { status: 401, .. }), "{error}");
    }
    assert!(fetched(&ranks, &version, Some("sesame")).is_ok());
    // Nor may a reader speak for a rank, whatever readers know.
    let body = "0".repeat(2 * HASH_BYTES);
    for token in ["sesame", "07070707"] {
        let request = format!(
            "POST /v1/ranks/1/9 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 64\r\nConnection: close\r\n\r\n{body}"
        );
        assert!(ranks.answer(request.as_bytes()).starts_with("HTTP/1.1 401"));
    }
    ranks.end();
}

#[test]
fn requests_that_are_malformed_huge_or_slow_get_an_answer_or_a_close() {
    let ranks = Ranks::start(None);
    ranks.offer(1);
    let post = |path: &str, body: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let get =
        |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    let bytes = format!("/v1/versions/1-{RUN}/bytes");
    for (request, status) in [
        (get("/", ""), "404"),
        (get("/v1/wait?seconds=-1", ""), "400"),
        (get("/v1/versions//bytes", ""), "404"),
        (get("/v1/versions/99999999999999999999-0123456789abcdef/bytes", ""), "404"),
        (get("/v1/files/..%2f..%2fetc%2fpasswd", ""), "404"),
        (get("/v1/files/../../etc/passwd", ""), "404"),
        (get(&bytes, "Range: bytes=9-5\r\n"), "416"),
        (get(&bytes, "Range: bytes=0-9\r\n"), "206"),
        (post("/v1/subscribers", "{"), "400"),
        (post("/v1/subscribers", "[1, 2]"), "400"),
        (post("/v1/subscribers", &"x".repeat(1 << 20)), "400"),
        (post("/v1/subscribers/none/ack", r#"{"version": "1-a", "error": null}"#), "404"),
        (post("/v1/subscribers", &format!("{{\"name\": \"{}\"}}", "n".repeat(3000))), "201"),
        ("DELETE /v1/subscribers/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "404"),
        ("BREW /v1/manifest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "404"),
        (get("/v1/manifest", &format!("X: {}\r\n", "y".repeat(64 << 10))), "431"),
        (get("/v1/manifest", &"A: b\r\n".repeat(200)), "431"),
        ("\0\x01\x02\x03\r\n\r\n".to_owned(), "400"),
        ("GET /v1/manifest HTTP/9.9\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = ranks.answer(request.as_bytes());
        let head = &request[..request.len().min(60)];
        // hyper closes without an answer where the head is no HTTP at all.
        let is_closed = answer.is_empty() && !request.contains("Host");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) || is_closed, "{head:?}: {answer:.200}");
    }
    // A head that does not end, and a body that does not arrive.
    std::thread::scope(|scope| {
        let unfinished = ["GET /v1/mani", "POST /v1/subscribers HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"];
        for answer in unfinished.map(|request| scope.spawn(|| ranks.answer(request.as_bytes()))) {
            let answer = answer.join().expect("an end");
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
        }
    });
    ranks.end();
}

#[test]
fn many_connections_take_no_more_than_there_is_room_for() {
    let ranks = Ranks::start(None);
    ranks.offer(1);
    let open: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(ranks.address()).expect("a connection")).collect();
    // A reader is served meanwhile, in the place of one that has done nothing for longest.
    assert!(block_on(Reader::new(&ranks.url, None, "x").wait(None, 1)).expect("a runtime").is_ok());
    let closed = open.iter().map(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
        // Nothing comes on one that is open.
        let found = (&mut &*stream).read(&mut [0]);
        !found.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    });
    let is_closed: Vec<bool> = closed.collect();
    assert_eq!(is_closed.iter().filter(|it| **it).count(), 201 - CONNECTIONS_MAX);
    assert!(is_closed.is_sorted_by(|before, after| before >= after), "the first are the oldest");
    drop(open);
    let asked = || {
        block_on(async {
            Connection::open(&ranks.url, None).await?.request("GET", "/v1/manifest", Default::default()).await
        })
        .expect("a runtime")
    };
    assert!((0..100).any(|_| asked().is_ok() || {
        std::thread::sleep(Duration::from_millis(20));
        false
    }));
    ranks.end();
}

#[test]
fn servers_end_while_readers_wait() {
    let ranks = Ranks::start(None);
    let url = ranks.url.clone();
    let waiting = std::thread::spawn(move || block_on(Reader::new(&url, None, "x").wait(None, 60)).expect("a runtime"));
    std::thread::sleep(Duration::from_millis(100));
    ranks.end();
    assert!(waiting.join().expect("an end").is_err());
}

#[test]
fn one_address_is_for_one_run() {
    let first = bind("127.0.0.1:0", 0).expect("a port");
    let port = first.local_addr().expect("an address").port();
    let error = bind(&format!("127.0.0.1:{port}"), 0).expect_err("taken").to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    assert!(bind("127.0.0.1:65535", 1).is_err() && bind("no port", 0).is_err());
}
