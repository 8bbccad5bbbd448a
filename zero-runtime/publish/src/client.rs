//! Client: a reader of published parameters, and the connection by which ranks tell rank 0 of their hashes.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::error::PublishError;
use crate::wire::{
    Acknowledged, FileEntry, HASH_BYTES, Joined, Joining, Layout, Manifest, Newest, PIECE_BYTES, Refusal, Version,
    hex_hash,
};

/// The largest document that a reader accepts, in bytes.
const DOCUMENT_MAX: usize = 256 << 20;
/// How long a server may be silent before its reader gives up.
pub const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A connection to a server. It makes one request after another.
pub struct Connection {
    url: String,
    authority: String,
    token: Option<String>,
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The host and the port of a URL such as `http://127.0.0.1:7000`.
fn authority(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    (!authority.is_empty() && !authority.contains('/')).then_some(authority)
}

impl Connection {
    /// Connects to the server at a URL.
    ///
    /// # Errors
    /// [`PublishError::Unreachable`].
    pub async fn open(url: &str, token: Option<&str>) -> Result<Self, PublishError> {
        let unreachable = |what: String| PublishError::Unreachable { url: url.to_owned(), what };
        let host = authority(url).ok_or_else(|| unreachable("expected http://HOST:PORT".to_owned()))?;
        let connecting = tokio::time::timeout(SILENCE_MAX, TcpStream::connect(host));
        let connected = connecting.await.map_err(|_| unreachable("it does not answer".to_owned()))?;
        let stream = connected.map_err(|error| unreachable(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(error.to_string()))?;
        let task = tokio::task::spawn(async move { drop(connection.await) }).abort_handle();
        let (authority, token) = (host.to_owned(), token.map(str::to_owned));
        Ok(Self { url: url.to_owned(), authority, token, sender, task })
    }

    /// Makes a request and returns the answer, once it begins.
    async fn begin(&mut self, method: &str, path: &str, body: Bytes) -> Result<Response<Incoming>, PublishError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(body));
        let request = request.map_err(|error| self.unreachable(error.to_string()))?;
        let begun = tokio::time::timeout(SILENCE_MAX, self.sender.send_request(request)).await;
        let begun = begun.map_err(|_| self.unreachable("it does not answer".to_owned()))?;
        begun.map_err(|error| self.unreachable(error.to_string()))
    }

    /// Makes a request and returns the body of the answer.
    ///
    /// # Errors
    /// [`PublishError::Unreachable`], [`PublishError::GivenUp`] and [`PublishError::Refused`].
    pub async fn request(&mut self, method: &str, path: &str, body: Bytes) -> Result<Bytes, PublishError> {
        let answer = self.begin(method, path, body).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), DOCUMENT_MAX).collect();
        let body = tokio::time::timeout(SILENCE_MAX, body).await;
        let body = body.map_err(|_| self.unreachable("it falls silent".to_owned()))?;
        let body = body.map_err(|error| self.unreachable(error.to_string()))?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(self.refused(status, path, &body)) }
    }

    fn unreachable(&self, what: String) -> PublishError {
        PublishError::Unreachable { url: self.url.clone(), what }
    }

    fn refused(&self, status: StatusCode, path: &str, body: &[u8]) -> PublishError {
        if status == StatusCode::GONE {
            let version = path.split('/').nth(3).unwrap_or_default().to_owned();
            return PublishError::GivenUp { version };
        }
        let what = serde_json::from_slice(body).map_or_else(|_| "no reason".to_owned(), |it: Refusal| it.error);
        PublishError::Refused { url: format!("{}{path}", self.url), status: status.as_u16(), what }
    }
}

/// Runs a reader on this thread to its end.
///
/// # Errors
/// Those of the system, before it begins.
pub fn block_on<T>(reading: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(reading))
}

/// What something gives within a time; none if it takes longer.
pub async fn within<T>(time: Duration, awaited: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, awaited).await.ok()
}

/// Lets a reader wait.
pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A reader of the versions of a run.
#[derive(Debug)]
pub struct Reader {
    url: String,
    token: Option<String>,
    name: String,
    /// By which rank 0 knows it.
    id: Option<String>,
}

/// A version whose bytes are being fetched: each rank has begun to send.
pub struct Fetching {
    /// Its manifest.
    pub manifest: Manifest,
    /// Where its tensors lie.
    pub layout: Layout,
    /// The bytes of each rank.
    pub ranks: Vec<RankBytes>,
}

/// The bytes that a rank sends, which are checked piece by piece.
pub struct RankBytes {
    version: Version,
    rank: usize,
    piece_bytes: usize,
    /// Bytes that have not come yet.
    left: usize,
    hashes: Bytes,
    next: usize,
    body: Incoming,
    /// Bytes that have come, but do not make a piece.
    spare: Vec<u8>,
    _connection: Connection,
}

impl Reader {
    /// A reader of the run whose rank 0 serves at `url`.
    pub fn new(url: &str, token: Option<&str>, name: &str) -> Self {
        Self { url: url.to_owned(), token: token.map(str::to_owned), name: name.to_owned(), id: None }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, PublishError> {
        let mut connection = Connection::open(&self.url, self.token.as_deref()).await?;
        let body = serde_json::to_vec(body).expect("names and numbers");
        let answer = connection.request(method, path, body.into()).await?;
        let url = format!("{}{path}", self.url);
        serde_json::from_slice(&answer).map_err(|error| PublishError::Refused {
            url,
            status: 200,
            what: error.to_string(),
        })
    }

    /// Joins, unless it has.
    ///
    /// # Errors
    /// Those of a request.
    pub async fn join(&mut self) -> Result<(), PublishError> {
        if self.id.is_none() {
            let joined: Joined = self.ask("POST", "/v1/subscribers", &Joining { name: self.name.clone() }).await?;
            self.id = Some(joined.id);
        }
        Ok(())
    }

    /// Waits for another version than `after`, for up to `seconds`.
    ///
    /// # Errors
    /// Those of a request.
    pub async fn wait(&self, after: Option<&Version>, seconds: u64) -> Result<Option<Version>, PublishError> {
        let after = after.map_or("", |after| &after.0);
        let path = format!("/v1/wait?after={after}&seconds={seconds}");
        let mut connection = Connection::open(&self.url, self.token.as_deref()).await?;
        let answer = connection.request("GET", &path, Bytes::new()).await?;
        Ok(serde_json::from_slice(&answer).ok().and_then(|Newest { newest }| newest))
    }

    /// Says that a version is applied, or why it is refused. If the run does not know the reader, it joins again.
    ///
    /// # Errors
    /// Those of a request.
    pub async fn acknowledge(&mut self, version: &Version, error: Option<String>) -> Result<(), PublishError> {
        self.join().await?;
        let path = format!("/v1/subscribers/{}/ack", self.id.as_deref().unwrap_or_default());
        let said = Acknowledged { version: version.clone(), error };
        match self.ask::<Newest>("POST", &path, &said).await {
            Err(PublishError::Refused { status: 404, .. }) => self.id = None,
            said => drop(said?),
        }
        Ok(())
    }

    /// Notes that the run may not know it any more: it joins again.
    pub fn forget(&mut self) {
        self.id = None;
    }

    /// Leaves, if it has joined and can.
    pub async fn leave(&mut self) {
        if let Some(id) = self.id.take()
            && let Ok(mut connection) = Connection::open(&self.url, self.token.as_deref()).await
        {
            // A server that has gone knows no reader.
            let _ = connection.request("DELETE", &format!("/v1/subscribers/{id}"), Bytes::new()).await;
        }
    }

    /// Begins to fetch a version: reads its manifest and its layout, and has every rank begin to send.
    ///
    /// # Errors
    /// Those of a request, and [`PublishError::Corrupt`].
    pub async fn fetch(&self, version: &Version) -> Result<Fetching, PublishError> {
        let mut first = Connection::open(&self.url, self.token.as_deref()).await?;
        let (manifest, layout) = self.described(&mut first, version).await?;
        let mut ranks = Vec::new();
        for (rank, root) in manifest.roots.iter().enumerate() {
            ranks.push(self.begin(&manifest, &layout, rank, root).await?);
        }
        Ok(Fetching { manifest, layout, ranks })
    }

    /// Where the tensors of a version lie, and which files are beside them.
    ///
    /// # Errors
    /// Those of a request, and [`PublishError::Corrupt`].
    pub async fn layout(&self, version: &Version) -> Result<Layout, PublishError> {
        let mut first = Connection::open(&self.url, self.token.as_deref()).await?;
        Ok(self.described(&mut first, version).await?.1)
    }

    async fn described(&self, first: &mut Connection, version: &Version) -> Result<(Manifest, Layout), PublishError> {
        let manifest = first.request("GET", &format!("/v1/versions/{}/manifest", version.0), Bytes::new()).await?;
        let bytes = first.request("GET", "/v1/layout", Bytes::new()).await?;
        let manifest: Manifest = self.document(version, "manifest", &manifest)?;
        require(version, "layout", &manifest.layout, &bytes)?;
        let layout: Layout = self.document(version, "layout", &bytes)?;
        require_whole(&manifest, &layout)?;
        Ok((manifest, layout))
    }

    /// A file beside the tensors.
    ///
    /// # Errors
    /// Those of a request, and [`PublishError::Corrupt`].
    pub async fn file(&self, version: &Version, file: &FileEntry) -> Result<Bytes, PublishError> {
        let mut first = Connection::open(&self.url, self.token.as_deref()).await?;
        let content = first.request("GET", &format!("/v1/files/{}", file.name), Bytes::new()).await?;
        require(version, &file.name, &file.blake3, &content)?;
        Ok(content)
    }

    fn document<T: DeserializeOwned>(&self, version: &Version, what: &str, bytes: &[u8]) -> Result<T, PublishError> {
        serde_json::from_slice(bytes).map_err(|error| corrupt(version, what, error.to_string()))
    }

    /// Has a rank begin to send its bytes.
    async fn begin(
        &self,
        manifest: &Manifest,
        layout: &Layout,
        rank: usize,
        root: &str,
    ) -> Result<RankBytes, PublishError> {
        let version = manifest.version.clone();
        let Some(of_rank) = layout.ranks.get(rank) else {
            return Err(corrupt(&version, "layout", format!("it has no rank {rank}")));
        };
        let url = match &of_rank.url {
            Some(url) => url.clone(),
            None => {
                let host = authority(&self.url).and_then(|it| it.rsplit_once(':')).map_or("", |(host, _)| host);
                format!("http://{host}:{}", of_rank.port)
            }
        };
        let mut connection = Connection::open(&url, self.token.as_deref()).await?;
        let of_version = format!("/v1/versions/{}", version.0);
        let hashes = connection.request("GET", &format!("{of_version}/hashes"), Bytes::new()).await?;
        require(&version, &format!("list of hashes of rank {rank}"), root, &hashes)?;
        let path = format!("{of_version}/bytes");
        let answer = connection.begin("GET", &path, Bytes::new()).await?;
        if !answer.status().is_success() {
            let status = answer.status();
            let body = Limited::new(answer.into_body(), DOCUMENT_MAX).collect().await;
            return Err(connection.refused(status, &path, &body.map(|it| it.to_bytes()).unwrap_or_default()));
        }
        let length = answer.headers().get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
        let pieces = of_rank.bytes.div_ceil(manifest.piece_bytes);
        if length != Some(of_rank.bytes) || hashes.len() != pieces * HASH_BYTES {
            let why = format!("{length:?} bytes and {} of hashes, expected {}", hashes.len(), of_rank.bytes);
            return Err(corrupt(&version, &format!("length of what rank {rank} serves"), why));
        }
        Ok(RankBytes {
            version,
            rank,
            piece_bytes: manifest.piece_bytes,
            left: of_rank.bytes,
            hashes,
            next: 0,
            body: answer.into_body(),
            spare: Vec::new(),
            _connection: connection,
        })
    }
}

impl RankBytes {
    /// The next piece, which is checked; none after the last. At most a piece and what comes with it is held.
    ///
    /// # Errors
    /// [`PublishError::Corrupt`]; [`PublishError::GivenUp`] if the connection ends early, as it does when a newer version takes the
    /// place of this one; [`PublishError::Unreachable`] if the rank falls silent.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, PublishError> {
        let len = self.piece_bytes.min(self.left);
        if len == 0 {
            return Ok(None);
        }
        while self.spare.len() < len {
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| PublishError::Unreachable {
                url: format!("rank {}", self.rank),
                what: "it falls silent".to_owned(),
            })?;
            let Some(Ok(frame)) = frame else {
                return Err(PublishError::GivenUp { version: self.version.0.clone() });
            };
            self.spare.extend(frame.into_data().unwrap_or_default());
        }
        let rest = self.spare.split_off(len);
        let piece = std::mem::replace(&mut self.spare, rest);
        let expected = &self.hashes[self.next * HASH_BYTES..(self.next + 1) * HASH_BYTES];
        let found = blake3::hash(&piece);
        if found.as_bytes() != expected {
            let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
            let what = format!("piece {} of rank {}", self.next, self.rank);
            return Err(corrupt(&self.version, &what, format!("expected {expected}, found {found}")));
        }
        (self.left, self.next) = (self.left - len, self.next + 1);
        Ok(Some(piece))
    }
}

fn corrupt(version: &Version, what: &str, why: String) -> PublishError {
    PublishError::Corrupt { version: version.0.clone(), what: what.to_owned(), why }
}

/// Requires that a manifest says what is needed to check every byte of its layout: otherwise bytes would be missing, and nobody told.
fn require_whole(manifest: &Manifest, layout: &Layout) -> Result<(), PublishError> {
    let (roots, ranks) = (manifest.roots.len(), layout.ranks.len());
    let why = if roots != ranks {
        format!("hashes of {roots} ranks, expected {ranks}")
    } else if manifest.piece_bytes != PIECE_BYTES {
        format!("pieces of {} bytes, expected {PIECE_BYTES}", manifest.piece_bytes)
    } else {
        return Ok(());
    };
    Err(corrupt(&manifest.version, "manifest", why))
}

/// Requires that bytes have a hash.
fn require(version: &Version, what: &str, expected: &str, bytes: &[u8]) -> Result<(), PublishError> {
    let found = hex_hash(bytes);
    if found == expected { Ok(()) } else { Err(corrupt(version, what, format!("expected {expected}, found {found}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RankAddress;

    #[test]
    fn a_manifest_that_leaves_bytes_unchecked_is_refused() {
        let rank = RankAddress { url: None, port: 1, bytes: 8 };
        let layout = Layout {
            model: String::new(),
            dtype: "f32".to_owned(),
            ranks: vec![rank.clone(), rank],
            tensors: Vec::new(),
            files: Vec::new(),
        };
        let refused = |roots: usize, piece_bytes: usize| {
            let (run, version, layout_hash) = ("r".to_owned(), Version::of(1, "r"), String::new());
            let roots = vec![String::new(); roots];
            let manifest = Manifest { version, step: 1, run, layout: layout_hash, piece_bytes, roots };
            require_whole(&manifest, &layout).err().map(|error| error.to_string())
        };
        assert_eq!(refused(2, PIECE_BYTES), None);
        for (roots, piece_bytes, why) in [
            (1, PIECE_BYTES, "hashes of 1 ranks, expected 2"),
            (3, PIECE_BYTES, "hashes of 3 ranks, expected 2"),
            (2, 0, "pieces of 0 bytes, expected 1048576"),
            (2, 1 << 40, "pieces of 1099511627776 bytes, expected 1048576"),
        ] {
            assert_eq!(refused(roots, piece_bytes), Some(format!("manifest of version 1-r is corrupt: {why}")));
        }
    }
}
