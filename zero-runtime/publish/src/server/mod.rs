//! Server: serves the copies of one rank on one thread, and on rank 0 the manifests of versions. Never makes a copy, and never makes
//! the thread of the rank wait.

mod body;
mod routes;
mod versions;

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use zero_core::published::PublishedCopies;
use zero_files::weights::BesideFile;

use crate::error::PublishError;
use crate::http;
use crate::readers::Readers;
use crate::wire::Layout;
use versions::Versions;

/// What a rank serves beside its copies.
#[derive(Debug)]
pub struct Served {
    /// The rank.
    pub rank: usize,
    /// The run, which is part of the names of its versions.
    pub run: String,
    /// Known to the ranks of the run alone.
    pub secret: [u8; 32],
    /// What readers have to know, if not everyone may read.
    pub token: Option<String>,
    /// Where tensors lie.
    pub layout: Layout,
    /// The files beside them.
    pub files: Vec<BesideFile>,
    /// The URL of rank 0.
    pub first: String,
}

/// A server that is bound, but does not serve yet.
pub struct Server {
    listener: TcpListener,
    served: Served,
    readers: Arc<Readers>,
    offered: UnboundedReceiver<u64>,
    ended: oneshot::Receiver<()>,
}

/// By which the thread of a rank says which step's parameters are in its copies. The server ends at once when it is dropped.
#[derive(Debug)]
pub struct Steps {
    offers: UnboundedSender<u64>,
    _alive: oneshot::Sender<()>,
}

impl Steps {
    /// Says that the parameters after this step are in a copy.
    pub fn offer(&self, step: u64) {
        // A server that has ended has reported why.
        let _ = self.offers.send(step);
    }
}

impl Server {
    /// A server on a socket.
    pub fn new(listener: TcpListener, served: Served, readers: Arc<Readers>) -> (Self, Steps) {
        let ((offers, offered), (alive, ended)) = (unbounded_channel(), oneshot::channel());
        (Self { listener, served, readers, offered, ended }, Steps { offers, _alive: alive })
    }

    /// Serves until its [`Steps`] is dropped. `report` tells a person what goes wrong.
    ///
    /// # Errors
    /// Those of the system, before it serves.
    pub fn run(self, copies: impl PublishedCopies + 'static, report: impl Fn(&str) + 'static) -> io::Result<()> {
        let Self { listener, served, readers, mut offered, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        listener.set_nonblocking(true)?;
        let tasks = LocalSet::new();
        tasks.block_on(&runtime, async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let versions = Rc::new(Versions::new(copies, served, readers, Box::new(report)));
            let accepting = tokio::task::spawn_local(http::accept(listener, Rc::clone(&versions)));
            let noting = async {
                while let Some(step) = offered.recv().await {
                    versions.note(step).await;
                }
            };
            tokio::select! {
                () = noting => {}
                _ = ended => {}
            }
            accepting.abort();
            Ok(())
        })
    }
}

/// A socket at an address such as `127.0.0.1:7000`, for rank `rank` of its host: on the port after those of the ranks before it, or
/// on any if the port is 0.
///
/// # Errors
/// [`PublishError::Address`].
pub fn bind(address: &str, rank: usize) -> Result<TcpListener, PublishError> {
    let refused = |source| PublishError::Address { address: address.to_owned(), source };
    let first = address.to_socket_addrs().map_err(refused)?.next();
    let mut at: SocketAddr = first.ok_or_else(|| refused(io::Error::other("it has no address")))?;
    if at.port() != 0 {
        let port = usize::from(at.port()) + rank;
        at.set_port(u16::try_from(port).map_err(|_| refused(io::Error::other(format!("{port} is no port"))))?);
    }
    TcpListener::bind(at).map_err(|source| PublishError::Address { address: at.to_string(), source })
}

/// The name of the run that has this secret, which it does not tell.
pub fn run_name(secret: &[u8; 32]) -> String {
    blake3::hash(secret).to_hex()[..16].to_owned()
}

/// Random bytes, for what nobody may guess.
///
/// # Errors
/// If the system has none.
pub fn secret() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
