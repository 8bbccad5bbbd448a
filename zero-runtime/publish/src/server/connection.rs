//! Connection: accepts connections and bounds them: how many there are, how long a request may take to arrive, and how long a
//! connection may do nothing.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use zero_core::published::PublishedCopies;

use super::body::Activity;
use super::routes::{WAIT_MAX, route};
use super::versions::Versions;

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 128;
/// How long the head of a request may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may do nothing. A reader that waits for a version does nothing for less.
const IDLE_MAX: Duration = Duration::from_secs(WAIT_MAX.as_secs() + 30);
/// Bytes and headers of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// Accepts connections for ever.
pub async fn accept<C: PublishedCopies + 'static>(listener: TcpListener, versions: Rc<Versions<C>>) {
    let all = Rc::new(OpenConnections::default());
    loop {
        // Without a descriptor left for it, a connection cannot be accepted until another one closes.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (own, all, versions) = (all.open(), Rc::clone(&all), Rc::clone(&versions));
        tokio::task::spawn_local(async move {
            serve(stream, versions, &own).await;
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

async fn serve<C: PublishedCopies + 'static>(stream: TcpStream, versions: Rc<Versions<C>>, own: &OpenConnection) {
    // Otherwise a small answer may wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let activity = Rc::clone(&own.activity);
    let answering = Rc::clone(&activity);
    let service = service_fn(move |request| {
        let (versions, activity) = (Rc::clone(&versions), Rc::clone(&answering));
        async move {
            activity.set(Instant::now());
            let answer = route(&versions, request, &activity).await;
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
