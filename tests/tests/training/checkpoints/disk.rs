//! Disk: a file system that records each operation and can fail one, and the states that a crash after such operations may leave:
//! data that was not flushed is on the disk, or missing, or partly written. Knows nothing of checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use zero_files::checkpoint::{Disk, Sink, System};

/// An operation that was done.
#[derive(Clone, Debug)]
pub enum Done {
    CreateDir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
    /// Nothing was changed.
    Looked,
}

/// The operations that fail, and their error.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The first failing operation, counted from 0.
    pub first: usize,
    /// Whether all later ones fail, too.
    pub forever: bool,
    /// The number of the error.
    pub errno: i32,
}

/// The file system of this machine, with a record of each operation.
#[derive(Clone, Default)]
pub struct Noting {
    done: Arc<Mutex<Vec<Done>>>,
    asked: Arc<Mutex<usize>>,
    failure: Option<Failure>,
}

impl Noting {
    pub fn failing(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// The operations so far, in order.
    pub fn done(&self) -> Vec<Done> {
        self.done.lock().unwrap().clone()
    }

    /// Counts an operation, executes it unless it should fail, and records it.
    fn note<T>(&self, done: Done, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let number = std::mem::replace(&mut *self.asked.lock().unwrap(), 0);
        *self.asked.lock().unwrap() = number + 1;
        if let Some(Failure { first, forever, errno }) = self.failure
            && (number == first || forever && number > first)
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let result = act()?;
        self.done.lock().unwrap().push(done);
        Ok(result)
    }
}

impl Disk for Noting {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Done::CreateDir(path.to_owned()), || System.create_dir(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let sink = self.note(Done::Create(path.to_owned()), || System.create(path))?;
        Ok(Box::new(NotingSink { disk: self.clone(), path: path.to_owned(), sink }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Done::SyncDir(path.to_owned()), || System.sync_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Done::Rename(from.to_owned(), to.to_owned()), || System.rename(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.note(Done::Exchange(one.to_owned(), other.to_owned()), || System.exchange(one, other))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.note(Done::RemoveFile(path.to_owned()), || System.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.note(Done::RemoveDir(path.to_owned()), || System.remove_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.note(Done::Looked, || System.list(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(Done::Looked, || System.read(path))
    }
}

struct NotingSink {
    disk: Noting,
    path: PathBuf,
    sink: Box<dyn Sink>,
}

impl Sink for NotingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { disk, path, sink } = self;
        let result = disk.note(Done::Write(path.clone(), bytes.to_owned()), || sink.write(bytes));
        if result.is_err() {
            // A full disk has written a part.
            sink.write(&bytes[..bytes.len() / 2])?;
        }
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let Self { disk, path, sink } = self;
        disk.note(Done::Sync(path.clone()), || sink.sync())
    }
}

/// The contents of a folder: bytes for a file, none for a folder.
pub type Tree = BTreeMap<PathBuf, Option<Arc<Vec<u8>>>>;

/// The contents of a folder now, by paths that begin in it.
pub fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                found.insert(path.clone(), None);
                folders.push(path);
            } else {
                found.insert(path, Some(Arc::new(fs::read(entry.path()).unwrap())));
            }
        }
    }
    found
}

/// Creates these contents in an empty folder.
pub fn make(root: &Path, tree: &Tree) {
    // A folder comes before its contents.
    for (path, bytes) in tree {
        match bytes {
            None => fs::create_dir(root.join(path)).unwrap(),
            Some(bytes) => fs::write(root.join(path), &**bytes).unwrap(),
        }
    }
}

/// Names in a folder that change together; none for a removed name.
type Change = Vec<(OsString, Option<usize>)>;

/// A file or a folder, independent of its name.
#[derive(Clone)]
enum Node {
    Folder { flushed: BTreeMap<OsString, usize>, pending: Vec<Change> },
    File { flushed: Arc<Vec<u8>>, written: Option<Arc<Vec<u8>>> },
}

/// A file system in the middle of operations: the flushed state, and the changes since.
#[derive(Clone)]
pub struct World {
    root: PathBuf,
    nodes: Vec<Node>,
}

/// The state after a crash of a file that was written and not flushed.
type Fate = fn(&[u8]) -> Vec<u8>;

const FATES: [Fate; 4] = [
    |written| written.to_vec(),
    |_| Vec::new(),
    |written| written[..written.len() / 2].to_vec(),
    // The length reached the disk, but the bytes did not.
    |written| vec![0; written.len()],
];

impl World {
    /// The contents of `root`, all flushed long ago.
    pub fn new(root: &Path, tree: &Tree) -> Self {
        let folder = || Node::Folder { flushed: BTreeMap::new(), pending: Vec::new() };
        let mut world = Self { root: root.to_owned(), nodes: vec![folder()] };
        for (path, bytes) in tree {
            let node = bytes.as_ref().map_or_else(folder, |bytes| Node::File { flushed: bytes.clone(), written: None });
            let (parent, id) = (world.find(&root.join(path.parent().unwrap())), world.add(node));
            let Node::Folder { flushed, .. } = &mut world.nodes[parent] else { panic!("{path:?} lies in a file") };
            flushed.insert(path.file_name().unwrap().to_owned(), id);
        }
        world
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The names in a folder as programs see them.
    fn names(&self, id: usize) -> BTreeMap<OsString, usize> {
        let Node::Folder { flushed, pending } = &self.nodes[id] else { panic!("not a folder") };
        applied(flushed, pending.iter())
    }

    fn find(&self, path: &Path) -> usize {
        let parts = path.strip_prefix(&self.root).unwrap().iter();
        parts.fold(0, |id, part| self.names(id)[part])
    }

    fn change(&mut self, path: &Path, change: Change) {
        let parent = self.find(path.parent().unwrap());
        let Node::Folder { pending, .. } = &mut self.nodes[parent] else { panic!("not a folder") };
        pending.push(change);
    }

    /// Applies an operation.
    pub fn apply(&mut self, done: &Done) {
        let name = |path: &Path| path.file_name().unwrap().to_owned();
        match done {
            Done::CreateDir(path) => {
                let id = self.add(Node::Folder { flushed: BTreeMap::new(), pending: Vec::new() });
                self.change(path, vec![(name(path), Some(id))]);
            }
            Done::Create(path) => {
                let id = self.add(Node::File { flushed: Arc::default(), written: None });
                self.change(path, vec![(name(path), Some(id))]);
            }
            Done::Write(path, bytes) => {
                let id = self.find(path);
                let Node::File { flushed, written } = &mut self.nodes[id] else { panic!("{path:?} is a folder") };
                let before = written.as_ref().unwrap_or(flushed);
                *written = Some(Arc::new([&before[..], bytes].concat()));
            }
            Done::Sync(path) => {
                let id = self.find(path);
                let Node::File { flushed, written } = &mut self.nodes[id] else { panic!("{path:?} is a folder") };
                *flushed = written.take().unwrap_or(flushed.clone());
            }
            Done::SyncDir(path) => {
                let id = self.find(path);
                let names = self.names(id);
                self.nodes[id] = Node::Folder { flushed: names, pending: Vec::new() };
            }
            Done::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "names are changed within a folder");
                let id = self.find(from);
                self.change(from, vec![(name(from), None), (name(to), Some(id))]);
            }
            Done::Exchange(one, other) => {
                let ids = [self.find(other), self.find(one)].map(Some);
                self.change(one, vec![(name(one), ids[0]), (name(other), ids[1])]);
            }
            Done::RemoveFile(path) | Done::RemoveDir(path) => self.change(path, vec![(name(path), None)]),
            Done::Looked => {}
        }
    }

    /// All states that a crash now may leave. The folder itself may have lost any of its changes on which no other change depends,
    /// and so may one folder in it at a time, while the other folders have lost all changes or none. All files end in the same way.
    pub fn crashed(&self) -> BTreeSet<Tree> {
        let folders = self.nodes.iter().enumerate().filter_map(|(id, node)| match node {
            Node::Folder { pending, .. } if !pending.is_empty() && id > 0 => Some(id),
            _ => None,
        });
        let folders: Vec<usize> = folders.collect();
        let is_written = |node: &Node| matches!(node, Node::File { written: Some(_), .. });
        let fates = if self.nodes.iter().any(is_written) { &FATES[..] } else { &FATES[..1] };
        let mut trees = BTreeSet::new();
        for kept in self.keepable(0) {
            for rest in [true, false] {
                let all = |id: usize| if rest { self.names(id) } else { self.flushed(id) };
                for fate in fates {
                    trees.insert(self.tree(&|id| if id == 0 { kept.clone() } else { all(id) }, fate));
                    for &one in &folders {
                        for own in self.keepable(one) {
                            let names = |id: usize| match id {
                                0 => kept.clone(),
                                id if id == one => own.clone(),
                                id => all(id),
                            };
                            trees.insert(self.tree(&names, fate));
                        }
                    }
                }
            }
        }
        trees
    }

    fn flushed(&self, id: usize) -> BTreeMap<OsString, usize> {
        let Node::Folder { flushed, .. } = &self.nodes[id] else { panic!("not a folder") };
        flushed.clone()
    }

    /// The names that a folder may have: any of its changes may be lost, and with each change all later ones of the same names.
    fn keepable(&self, id: usize) -> BTreeSet<BTreeMap<OsString, usize>> {
        let Node::Folder { flushed, pending } = &self.nodes[id] else { panic!("not a folder") };
        assert!(pending.len() < 16, "too many changes to try all sets of them");
        let sets = (0..1_u32 << pending.len()).map(|set| {
            let mut lost: BTreeSet<&OsString> = BTreeSet::new();
            let kept = pending.iter().enumerate().filter(|(i, change)| {
                let is_kept = set >> i & 1 == 1 && change.iter().all(|(name, _)| !lost.contains(name));
                if !is_kept {
                    lost.extend(change.iter().map(|(name, _)| name));
                }
                is_kept
            });
            let kept: Vec<&Change> = kept.map(|(_, change)| change).collect();
            applied(flushed, kept.into_iter())
        });
        sets.collect()
    }

    fn tree(&self, names: &dyn Fn(usize) -> BTreeMap<OsString, usize>, fate: &Fate) -> Tree {
        let (mut found, mut folders) = (Tree::new(), vec![(PathBuf::new(), 0)]);
        while let Some((folder, id)) = folders.pop() {
            for (name, id) in names(id) {
                let path = folder.join(name);
                let bytes = match &self.nodes[id] {
                    Node::Folder { .. } => {
                        folders.push((path.clone(), id));
                        None
                    }
                    Node::File { written: Some(written), .. } => Some(Arc::new(fate(written))),
                    Node::File { flushed, written: None } => Some(flushed.clone()),
                };
                found.insert(path, bytes);
            }
        }
        found
    }
}

fn applied<'a>(
    flushed: &BTreeMap<OsString, usize>,
    changes: impl Iterator<Item = &'a Change>,
) -> BTreeMap<OsString, usize> {
    let mut names = flushed.clone();
    for (name, id) in changes.flatten() {
        match id {
            Some(id) => drop(names.insert(name.clone(), *id)),
            None => drop(names.remove(name)),
        }
    }
    names
}
