//! Versions: hashes what a rank has copied, and on rank 0 shows a version once all ranks have hashed theirs.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::watch;
use zero_core::published::PublishedCopies;

use super::Served;
use crate::client::Connection;
use crate::readers::Readers;
use crate::wire::{Manifest, PIECE_BYTES, Version, hex_hash, list};

/// How long rank 0 may take to note the hash of another rank.
const NOTE_WITHIN: Duration = Duration::from_secs(5);
/// How long the other rank then waits before it tries again, and how often before it says so.
const NEXT_TRY: Duration = Duration::from_millis(50);
const TRIES_UNSAID: u32 = 100;

/// How long a rank sleeps between two looks at a copy that is on its way.
const COMING: Duration = Duration::from_millis(1);

/// What a rank serves.
pub struct Versions<C> {
    pub copies: C,
    pub served: Served,
    pub readers: Arc<Readers>,
    /// The layout as it is sent, and its hash.
    pub layout: Bytes,
    layout_hash: String,
    /// The hash of the token, if there is one: comparing hashes takes as long wherever they differ.
    pub token: Option<blake3::Hash>,
    pub secret: blake3::Hash,
    /// For each step in a copy, the hashes of its pieces.
    hashed: RefCell<VecDeque<(u64, Bytes)>>,
    /// On rank 0: the roots of the ranks that have hashed a version that is not shown.
    roots: RefCell<BTreeMap<u64, Vec<Option<String>>>>,
    /// On rank 0: the manifests of versions that are in copies.
    manifests: RefCell<VecDeque<(u64, Bytes)>>,
    /// On rank 0: the newest version.
    newest: watch::Sender<Option<u64>>,
    report: Box<dyn Fn(&str)>,
}

impl<C: PublishedCopies> Versions<C> {
    pub fn new(copies: C, served: Served, readers: Arc<Readers>, report: Box<dyn Fn(&str)>) -> Self {
        let layout = Bytes::from(serde_json::to_vec(&served.layout).expect("names and numbers"));
        let (layout_hash, newest) = (hex_hash(&layout), watch::channel(None).0);
        let token = served.token.as_ref().map(|token| blake3::hash(token.as_bytes()));
        let secret = blake3::hash(blake3::Hash::from_bytes(served.secret).to_hex().as_bytes());
        let (hashed, roots, manifests) = Default::default();
        Self { copies, served, readers, layout, layout_hash, token, secret, hashed, roots, manifests, newest, report }
    }

    /// The name of the version after a step.
    pub fn version(&self, step: u64) -> Version {
        Version::of(step, &self.served.run)
    }

    /// Tells a person.
    pub fn report(&self, what: &str) {
        (self.report)(what);
    }

    /// The newest version that is shown, and those that come after it.
    pub fn newest(&self) -> watch::Receiver<Option<u64>> {
        self.newest.subscribe()
    }

    /// Whether a copy has the parameters after a step, or will have them.
    pub fn is_held(&self, step: u64) -> bool {
        self.copies.read(step, 0, &mut []) || self.copies.is_coming(step)
    }

    /// The hashes of the pieces of this rank, if they are made and the version is there.
    pub fn hashes(&self, step: u64) -> Option<Bytes> {
        self.hashed.borrow().iter().find(|(of, _)| *of == step).map(|(_, list)| list.clone())
    }

    /// The manifest of a version that is shown and there.
    pub fn manifest(&self, step: u64) -> Option<Bytes> {
        let found = self.manifests.borrow().iter().find(|(of, _)| *of == step).map(|(_, manifest)| manifest.clone());
        found.filter(|_| self.is_held(step))
    }

    /// Hashes what a copy has of a step, and tells rank 0. Does nothing if a newer step takes its place meanwhile.
    pub async fn note(&self, step: u64) {
        let Some(list) = self.hash(step).await else { return };
        let root = hex_hash(&list);
        self.hashed.borrow_mut().retain(|(step, _)| self.is_held(*step));
        self.hashed.borrow_mut().push_back((step, list.into()));
        if self.served.rank == 0 {
            self.note_root(0, step, root);
            return;
        }
        let mut tries = 0;
        // Whoever else connects to rank 0 may be in the way for a while, and without this message there is no version.
        while let Err(why) = self.tell_first(step, &root).await {
            tries += 1;
            if tries == TRIES_UNSAID {
                self.report(&format!(
                    "note: rank {} cannot tell rank 0 of version {step} yet: {why}",
                    self.served.rank
                ));
            }
            tokio::time::sleep(NEXT_TRY).await;
            if !self.is_held(step) {
                return;
            }
        }
    }

    /// Tells rank 0 the hash of this rank's hashes.
    async fn tell_first(&self, step: u64, root: &str) -> Result<(), String> {
        let path = format!("/v1/ranks/{}/{step}", self.served.rank);
        let secret = blake3::Hash::from_bytes(self.served.secret).to_hex();
        let told = async {
            let mut connection = Connection::open(&self.served.first, Some(&secret)).await?;
            connection.request("POST", &path, root.to_owned().into()).await
        };
        match tokio::time::timeout(NOTE_WITHIN, told).await {
            Ok(told) => told.map(drop).map_err(|error| error.to_string()),
            Err(_) => Err("it takes too long".to_owned()),
        }
    }

    /// Piece by piece, so that answers go on meanwhile.
    async fn hash(&self, step: u64) -> Option<Vec<u8>> {
        while self.copies.is_coming(step) {
            tokio::time::sleep(COMING).await;
        }
        let bytes = self.copies.bytes();
        let (mut hashes, mut piece) = (Vec::with_capacity(bytes.div_ceil(PIECE_BYTES)), Vec::new());
        for start in (0..bytes).step_by(PIECE_BYTES) {
            piece.resize(PIECE_BYTES.min(bytes - start), 0);
            if !self.copies.read(step, start, &mut piece) {
                return None;
            }
            hashes.push(blake3::hash(&piece));
            tokio::task::yield_now().await;
        }
        Some(list(&hashes))
    }

    /// On rank 0: notes that a rank has hashed a version. Shows it once all have. Returns whether the rank exists.
    pub fn note_root(&self, rank: usize, step: u64, root: String) -> bool {
        let ranks = self.served.layout.ranks.len();
        if rank >= ranks {
            return false;
        }
        let mut all = self.roots.borrow_mut();
        let roots = all.entry(step).or_insert_with(|| vec![None; ranks]);
        roots[rank] = Some(root);
        if let Some(roots) = roots.iter().cloned().collect::<Option<Vec<String>>>() {
            all.retain(|&other, _| other > step);
            drop(all);
            self.show(step, roots);
        }
        true
    }

    fn show(&self, step: u64, roots: Vec<String>) {
        if self.readers.shown().is_some_and(|shown| shown >= step) {
            return;
        }
        let manifest = Manifest {
            version: self.version(step),
            step,
            run: self.served.run.clone(),
            layout: self.layout_hash.clone(),
            piece_bytes: PIECE_BYTES,
            roots,
        };
        let bytes = serde_json::to_vec(&manifest).expect("names and numbers");
        let mut manifests = self.manifests.borrow_mut();
        manifests.retain(|(step, _)| self.is_held(*step));
        manifests.push_back((step, bytes.into()));
        drop(manifests);
        self.readers.show(step);
        self.newest.send_replace(Some(step));
    }
}
