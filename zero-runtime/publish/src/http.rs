//! HTTP: accepts connections and bounds them: how many there are, how long a request may take to arrive, how large it is, and how long
//! a connection may do nothing. Never knows what an answer says.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 128;
/// How long the head of a request may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long the body of a request may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may do nothing.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How often an answer that waits says so.
const STILL_WAITS: Duration = Duration::from_secs(1);
/// Bytes and headers of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// When something last happened on a connection.
pub type Activity = Rc<Cell<Instant>>;

/// What answers requests.
pub trait Answers: 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error = io::Error> + 'static;

    /// The answer to a request. A connection on which nothing is active for long ends.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        activity: Activity,
    ) -> impl Future<Output = Response<Self::Body>>;
}

/// Accepts connections for ever.
pub async fn accept<A: Answers>(listener: TcpListener, answers: Rc<A>) {
    let all = Rc::new(OpenConnections::default());
    loop {
        // Without a descriptor left for it, a connection cannot be accepted until another one closes.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (own, all, answers) = (all.open(), Rc::clone(&all), Rc::clone(&answers));
        tokio::task::spawn_local(async move {
            serve(stream, answers, &own).await;
            all.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, &own));
        });
    }
}

/// The connections of a server.
#[derive(Default)]
struct OpenConnections(RefCell<Vec<Rc<OpenConnection>>>);

/// A connection.
struct OpenConnection {
    activity: Activity,
    /// Told that another one needs its place.
    ends: Notify,
}

impl OpenConnections {
    /// Adds a connection. If there are too many, the one ends on which nothing has happened for longest: otherwise, those that never
    /// ask for anything would keep readers and ranks out.
    fn open(&self) -> Rc<OpenConnection> {
        let mut all = self.0.borrow_mut();
        if all.len() >= CONNECTIONS_MAX
            && let Some(idle) = (0..all.len()).min_by_key(|&at| all[at].activity.get())
        {
            all.swap_remove(idle).ends.notify_one();
        }
        let own = Rc::new(OpenConnection { activity: Rc::new(Cell::new(Instant::now())), ends: Notify::new() });
        all.push(Rc::clone(&own));
        own
    }
}

async fn serve<A: Answers>(stream: TcpStream, answers: Rc<A>, own: &OpenConnection) {
    // Otherwise a small answer may wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let activity = Rc::clone(&own.activity);
    let answering = Rc::clone(&activity);
    let service = service_fn(move |request| {
        let (answers, activity) = (Rc::clone(&answers), Rc::clone(&answering));
        async move {
            activity.set(Instant::now());
            let answer = answers.answer(request, Rc::clone(&activity)).await;
            activity.set(Instant::now());
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let idle = async {
        while activity.get().elapsed() < IDLE_MAX {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    // Whatever ends a connection, its reader sees it; there is nobody else to tell.
    tokio::select! {
        _ = connection => {}
        () = idle => {}
        () = own.ends.notified() => {}
    }
}

/// Waits for something, and says meanwhile that the connection is in use.
pub async fn wait<T>(activity: &Activity, awaited: impl Future<Output = T>) -> T {
    let waits = async {
        loop {
            activity.set(Instant::now());
            tokio::time::sleep(STILL_WAITS).await;
        }
    };
    tokio::select! {
        found = awaited => found,
        () = waits => unreachable!("it waits for ever"),
    }
}

/// A status, and a sentence that says why a request is refused.
pub type Refused = (StatusCode, Cow<'static, str>);

/// Checks that a request says what hashes to `expected`, if anything is: comparing hashes takes as long wherever they differ.
///
/// # Errors
/// 401.
pub fn require_token<B>(request: &Request<B>, expected: Option<blake3::Hash>) -> Result<(), Refused> {
    let Some(expected) = expected else { return Ok(()) };
    let given = request.headers().get(AUTHORIZATION).and_then(|given| given.as_bytes().strip_prefix(b"Bearer "));
    match given.is_some_and(|given| blake3::hash(given) == expected) {
        true => Ok(()),
        false => {
            Err((StatusCode::UNAUTHORIZED, "`Authorization: Bearer` with the token of this run is missing".into()))
        }
    }
}

/// The body of a request, of at most `bytes_max`.
///
/// # Errors
/// 400 or 408.
pub async fn collected(request: Request<Incoming>, bytes_max: usize) -> Result<Bytes, Refused> {
    let body = Limited::new(request.into_body(), bytes_max).collect();
    match tokio::time::timeout(BODY_WITHIN, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => {
            let why = format!("a body that ends early, or has more than {bytes_max} bytes");
            Err((StatusCode::BAD_REQUEST, why.into()))
        }
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "a body that does not arrive".into())),
    }
}

/// An answer with a body of a type that is named in its header.
pub fn with_type<B>(status: StatusCode, kind: &'static str, body: B) -> Response<B> {
    let reply = Response::builder().status(status).header(CONTENT_TYPE, kind);
    reply.body(body).expect("a status and a header")
}

/// A document as JSON.
pub fn json_bytes(document: &impl Serialize) -> Bytes {
    serde_json::to_vec(document).expect("a document that can be written").into()
}
