//! Open: a checkpoint on a disk: its manifest, and the headers of its files after their hashes were checked. Never holds a
//! tensor, and never maps a file, so that a file that is cut off later causes an error instead of a signal.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::elements::Elements;
use super::entry::{TensorRun, parse_name};
use super::error::CheckpointError;
use super::manifest::{CHUNK_BYTES, FORMAT, FileSums, MANIFEST, Manifest, TensorInfo, shard_name};
use super::sealed::unseal;
use super::shard::told;
use super::store::named_step;
use super::verify::HashedChunk;
use crate::weights::header::{self, HeaderError, LENGTH_BYTES};
use crate::weights::{BesideFile, NamedTensor, Publication, is_beside};
use zero_plan::Width;
use zero_plan::place::State;
use zero_plan::reshard::RunSource;

/// A checkpoint whose manifest, lengths and headers are right. [`Checkpoint::verify`] checks the contents of its files.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its folder.
    pub path: PathBuf,
    pub(super) files: Vec<ShardFile>,
}

/// A file of a checkpoint.
#[derive(Debug)]
pub(super) struct ShardFile {
    pub path: PathBuf,
    /// None if it could not be opened; only [`Checkpoint::examine`] continues without it.
    file: Option<File>,
    /// The entries in the order of their bytes, and where each begins.
    pub entries: Vec<(TensorRun, u64)>,
}

impl Checkpoint {
    /// Opens the checkpoint in a folder.
    ///
    /// # Errors
    /// Z0383 if there is none, Z0384 if its manifest is not what was written, Z0385 if a file is missing or cannot be
    /// read, Z0386 if one has another length, Z0387 if the header of one was changed, Z0388 if one is of another step
    /// or rank, Z0389 if a header is impossible.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let manifest = read_manifest(path)?;
        let files = open_files(path, &manifest).collect::<Result<_, _>>()?;
        Ok(Self { manifest, path: path.to_owned(), files })
    }

    /// All faults of the checkpoint in a folder: files that [`Checkpoint::open`] would refuse, then each changed chunk
    /// of the others and, if there are none of these, states that are not whole. Works on `threads` threads; `progress`
    /// receives the number of bytes read since its last call.
    pub fn examine(path: &Path, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Vec<CheckpointError> {
        let manifest = match read_manifest(path) {
            Ok(manifest) => manifest,
            Err(error) => return vec![error],
        };
        let (mut files, mut faults) = (Vec::new(), Vec::new());
        for file in open_files(path, &manifest) {
            files.push(file.unwrap_or_else(|error| {
                faults.push(error);
                ShardFile { path: PathBuf::new(), file: None, entries: Vec::new() }
            }));
        }
        let checkpoint = Self { manifest, path: path.to_owned(), files };
        let chunks = checkpoint.chunks().filter(|chunk| checkpoint.files[chunk.file].file.is_some());
        faults.extend(checkpoint.faults(&chunks.collect::<Vec<_>>(), threads, progress));
        if faults.is_empty() {
            let states = State::ALL.into_iter().filter(|&state| state != State::Master || checkpoint.has(state));
            faults.extend(states.filter_map(|state| Elements::all(&checkpoint, state).err()));
        }
        faults
    }

    /// The length of all files but the manifest.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.iter().map(|file| file.bytes).sum()
    }

    /// The number of elements of each tensor.
    pub fn lens(&self) -> Vec<usize> {
        self.manifest.tensors.iter().map(TensorInfo::elements).collect()
    }

    /// Where all elements of a state lie, and how each is stored; files are numbered as in the manifest.
    pub fn sources(&self, state: State) -> Vec<(RunSource, Width)> {
        let of_file = |(file, shard): (usize, &ShardFile)| {
            let own = shard.entries.iter().filter(|(entry, _)| entry.state == state);
            own.map(|&(TensorRun { tensor, start, len, width, .. }, offset_bytes)| {
                (RunSource { tensor, start, len, file, offset_bytes }, width)
            })
            .collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of_file).collect()
    }

    /// Whether it has a state at all.
    pub fn has(&self, state: State) -> bool {
        self.files.iter().any(|file| file.entries.iter().any(|(entry, _)| entry.state == state))
    }

    /// How its model is published, if it records that.
    ///
    /// # Errors
    /// Z0385 if a file cannot be read, Z0387 if it was changed.
    pub fn publication(&self) -> Result<Option<Publication>, CheckpointError> {
        if self.manifest.published.is_empty() {
            return Ok(None);
        }
        let mut publication = Publication { tensors: self.manifest.published.clone(), files: Vec::new() };
        let mut chunk = Vec::new();
        for (file, sums) in self.manifest.files.iter().enumerate().skip(self.manifest.rank_files()) {
            let mut content = Vec::new();
            for index in 0..sums.chunks.len() {
                self.read_chunk(HashedChunk { file, index }, &mut chunk)?;
                content.extend_from_slice(&chunk);
            }
            publication.files.push(BesideFile::new(&sums.name, content));
        }
        Ok(Some(publication))
    }

    /// [`Checkpoint::publication`] by the places of a model, whose tensors [`Checkpoint::require_model`] returns.
    ///
    /// # Errors
    /// Those of [`Checkpoint::publication`].
    pub fn publication_of(&self, tensors: &[(NamedTensor, usize)]) -> Result<Option<Publication>, CheckpointError> {
        let Some(mut publication) = self.publication()? else { return Ok(None) };
        let place = |named: &NamedTensor| self.manifest.tensors.iter().position(|it| it.is_at(named));
        for named in publication.tensors.iter_mut().map(|tensor| &mut tensor.named) {
            let own = tensors.iter().find(|(_, number)| place(named) == Some(*number));
            (named.unit, named.start) = own.map_or((named.unit, named.start), |(own, _)| (own.unit, own.start));
        }
        Ok(Some(publication))
    }

    /// Reads bytes of a file, and does not check them.
    ///
    /// # Errors
    /// Z0385.
    pub fn read(&self, file: usize, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), CheckpointError> {
        let shard = &self.files[file];
        shard.read(bytes, offset_bytes)
    }
}

fn open_files(folder: &Path, manifest: &Manifest) -> impl Iterator<Item = Result<ShardFile, CheckpointError>> {
    let numbered = manifest.tensors.iter().zip(0..);
    let by_name: HashMap<&str, usize> = numbered.map(|(tensor, index)| (tensor.name.as_str(), index)).collect();
    let files = manifest.files.iter().enumerate();
    files.map(move |(rank, sums)| ShardFile::open(folder, rank, sums, manifest, &by_name))
}

/// The manifest of the checkpoint in a folder.
///
/// # Errors
/// Z0383 if there is no checkpoint, Z0384 if its manifest is not what was written, Z0385 if it cannot be read.
pub fn read_manifest(folder: &Path) -> Result<Manifest, CheckpointError> {
    let none = |what: String| CheckpointError::NoCheckpoint { path: folder.to_owned(), what };
    let metadata = fs::metadata(folder).map_err(|error| none(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(none("it is not a folder".to_owned()));
    }
    let path = folder.join(MANIFEST);
    let metadata = fs::symlink_metadata(&path).map_err(|error| none(format!("it has no {MANIFEST}: {error}")))?;
    if !metadata.is_file() {
        return Err(none(format!("its {MANIFEST} is not a file")));
    }
    let bytes = fs::read(&path).map_err(CheckpointError::unreadable(&path))?;
    // The format is checked first, because a newer one may have other fields.
    let refused = |what: String| CheckpointError::manifest(&path, what);
    let value: serde_json::Value = unseal(&bytes).map_err(refused)?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => return Err(refused(format!("is of format {format}, expected {FORMAT}"))),
        None => return Err(refused("does not say its format".to_owned())),
    }
    let manifest: Manifest =
        serde_json::from_value(value).map_err(|error| refused(format!("is not understood: {error}")))?;
    check(&manifest).map_err(refused)?;
    // The newest checkpoint is found by its name.
    match named_step(folder) {
        Some(named) if named != manifest.step => {
            Err(refused(format!("is of step {}, but its folder has the name of step {named}", manifest.step)))
        }
        _ => Ok(manifest),
    }
}

/// Checks the properties of a manifest that other code relies on.
fn check(manifest: &Manifest) -> Result<(), String> {
    if manifest.files.is_empty() {
        return Err("names no file".to_owned());
    }
    let ranks = manifest.rank_files();
    for (number, sums) in manifest.files.iter().enumerate() {
        let FileSums { name, bytes, chunks } = sums;
        let is_again = manifest.files[..number].iter().any(|before| before.name == *name);
        if number >= ranks && (ranks == 0 || is_again || !is_beside(name)) {
            return Err(format!("names file {number} `{name}`, expected `{}`", shard_name(number)));
        }
        let bytes_min = if number < ranks { LENGTH_BYTES } else { 0 };
        if bytes.div_ceil(CHUNK_BYTES as u64) != chunks.len() as u64 || *bytes < bytes_min {
            return Err(format!("has {} hashes of `{name}` with {bytes} bytes", chunks.len()));
        }
    }
    // No more than the manifest has hashes for.
    let file_bytes: u64 = manifest.files.iter().map(|sums| sums.bytes).sum();
    let of_tensors = manifest.tensors.iter().map(|it| (&it.name, &it.shape));
    let of_published = manifest.published.iter().map(|it| (&it.named.name, &it.named.shape));
    for (name, shape) in of_tensors.clone().chain(of_published) {
        let elements = shape.iter().try_fold(1u64, |elements, &dim| elements.checked_mul(dim as u64));
        if elements.is_none_or(|elements| elements > file_bytes) {
            return Err(format!("has `{name}` of the shape {shape:?}, but its files have {file_bytes} bytes"));
        }
    }
    if let Some(name) = twice(of_tensors.map(|(name, _)| name)) {
        return Err(format!("has `{name}` twice"));
    }
    // A file of weights has one tensor of a name.
    if let Some(name) = twice(manifest.published.iter().map(|it| &it.name)) {
        return Err(format!("publishes `{name}` twice"));
    }
    if let Some(unknown) = manifest.published.iter().find(|it| !manifest.tensors.iter().any(|own| own.is_at(&it.named)))
    {
        return Err(format!("publishes `{}`, which is none of its tensors", unknown.name));
    }
    Ok(())
}

/// The first of some names that is there before.
fn twice<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut before = HashSet::new();
    names.find(|name| !before.insert(name.as_str()))
}

impl ShardFile {
    fn open(
        folder: &Path,
        rank: usize,
        sums: &FileSums,
        manifest: &Manifest,
        by_name: &HashMap<&str, usize>,
    ) -> Result<Self, CheckpointError> {
        let path = folder.join(&sums.name);
        // Opening a pipe would never return.
        let metadata = fs::symlink_metadata(&path).map_err(CheckpointError::unreadable(&path))?;
        if !metadata.is_file() {
            return Err(CheckpointError::malformed(&path, "is not a file"));
        }
        if metadata.len() != sums.bytes {
            let (expected, found) = (sums.bytes, metadata.len());
            return Err(CheckpointError::OtherLength { path, expected, found });
        }
        let file = File::open(&path).map_err(CheckpointError::unreadable(&path))?;
        let mut shard = Self { path, file: Some(file), entries: Vec::new() };
        if is_beside(&sums.name) {
            return Ok(shard);
        }
        let (head, fault) = shard.head(sums)?;
        // A changed file is checked, too, because an error that shows which file it is helps more. Its header may not show
        // that.
        let says = head.get(LENGTH_BYTES as usize..).and_then(told);
        if let Some(found) = says.filter(|&found| found != (rank, manifest.step)) {
            return Err(CheckpointError::Exchanged { path: shard.path, expected: (rank, manifest.step), found });
        }
        let entries = shard.entries(&head, sums.bytes, &manifest.tensors, by_name);
        if let Some(index) = fault {
            // The message lists the contents that the chunk should have.
            shard.entries = entries.unwrap_or_default();
            return Err(shard.changed(index, sums.bytes, &manifest.tensors));
        }
        shard.entries = entries?;
        if says.is_none() {
            return Err(CheckpointError::malformed(&shard.path, "does not say of which rank and step it is"));
        }
        Ok(shard)
    }

    fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> Result<(), CheckpointError> {
        let read = match &self.file {
            Some(file) => file.read_exact_at(bytes, offset_bytes),
            None => Err(ErrorKind::NotFound.into()),
        };
        read.map_err(CheckpointError::unreadable(&self.path))
    }

    /// The header with its length, but only up to the end of the first chunk whose hash is wrong; and the number of
    /// that chunk.
    fn head(&self, sums: &FileSums) -> Result<(Vec<u8>, Option<usize>), CheckpointError> {
        let (mut head, mut needed) = (Vec::new(), LENGTH_BYTES);
        let mut fault = None;
        for (index, expected) in sums.chunks.iter().enumerate() {
            let start = (index * CHUNK_BYTES) as u64;
            if start >= needed || fault.is_some() {
                break;
            }
            let mut chunk = vec![0; CHUNK_BYTES.min((sums.bytes - start) as usize)];
            self.read(&mut chunk, start)?;
            if blake3::hash(&chunk).to_hex().as_str() != expected {
                fault = Some(index);
            }
            head.extend(chunk);
            if let Some(length) = head.first_chunk() {
                needed = u64::from_le_bytes(*length).saturating_add(LENGTH_BYTES);
            }
        }
        head.truncate(usize::try_from(needed).unwrap_or(usize::MAX));
        Ok((head, fault))
    }

    /// The entries that a header lists, in the order of their bytes.
    fn entries(
        &self,
        mut head: &[u8],
        bytes: u64,
        tensors: &[TensorInfo],
        by_name: &HashMap<&str, usize>,
    ) -> Result<Vec<(TensorRun, u64)>, CheckpointError> {
        let refused = |what: String| CheckpointError::malformed(&self.path, what);
        let header = header::read(&mut head, bytes).map_err(|error| match error {
            HeaderError::Io(source) => refused(format!("has a header that ends early: {source}")),
            HeaderError::Malformed(what) => refused(what),
        })?;
        let mut entries = Vec::with_capacity(header.entries.len());
        for (name, found) in header.entries {
            let unknown = || refused(format!("has `{name}`, which is not part of a state of a tensor"));
            let (state, tensor, start) = parse_name(&name).ok_or_else(unknown)?;
            let &tensor = by_name.get(tensor).ok_or_else(unknown)?;
            let &[len] = &found.shape[..] else { return Err(unknown()) };
            let width = match found.dtype {
                Dtype::F32 => Width::F32,
                Dtype::BF16 => Width::BF16,
                _ => return Err(unknown()),
            };
            if start.checked_add(len).is_none_or(|end| end > tensors[tensor].elements()) {
                return Err(refused(format!("has {len} elements in `{name}`, which its tensor does not have")));
            }
            entries.push((TensorRun { state, tensor, start, len, width }, found.start_bytes));
        }
        entries.sort_by_key(|&(_, start)| start);
        Ok(entries)
    }
}
