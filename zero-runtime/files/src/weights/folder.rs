//! Folder: published weights as they lie on disk: a config, and one file of tensors or several with an index. Each is
//! checked before it is trusted. Never knows a model, and never maps a file, so that a file that is cut off later causes an
//! error instead of a signal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use safetensors::Dtype;
use serde::Deserialize;
use serde_json::{Map, Value};
use zero_plan::Fingerprint;

use super::error::WeightsError;
use super::header::{self, HeaderError};
use super::python_json;
use crate::{Pointer, hub};

/// The file that describes the model.
pub const CONFIG: &str = "config.json";
/// The one file of tensors.
pub const SINGLE: &str = "model.safetensors";
/// The file that says in which of several files each tensor is.
pub const INDEX: &str = "model.safetensors.index.json";
/// The mark that a text may begin with.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// The longest file that is held in memory.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// A folder whose headers match their files.
#[derive(Debug)]
pub struct Folder {
    /// Where it lies.
    pub path: PathBuf,
    /// Its config, if there is one.
    pub config: Option<Map<String, Value>>,
    /// All tensors, by name.
    pub tensors: BTreeMap<String, FolderTensor>,
    /// A hash of the config, and of the headers and lengths of all files.
    pub fingerprint: u64,
    files: Vec<(PathBuf, File)>,
}

/// A tensor of a folder.
#[derive(Clone, Debug)]
pub struct FolderTensor {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dims.
    pub shape: Vec<usize>,
    file: usize,
    start_bytes: u64,
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// Z0360 if something is missing or cannot be read, Z0361 if a file is malformed, Z0362 if an index names one elsewhere.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        if hub::may_have(path) {
            return Err(WeightsError::NoFolder { path: path.to_owned() });
        }
        let metadata = fs::metadata(path).map_err(WeightsError::unreadable(path))?;
        if !metadata.is_dir() {
            return Err(WeightsError::unreadable(path)(ErrorKind::NotADirectory.into()));
        }
        let mut folder =
            Self { path: path.to_owned(), config: None, tensors: BTreeMap::new(), fingerprint: 0, files: Vec::new() };
        let mut fingerprint = Fingerprint::default();
        if let Some(bytes) = folder.small_file(CONFIG)? {
            fingerprint.add(&bytes);
            folder.config = Some(folder.json(CONFIG, &bytes)?);
        }
        if folder.open_inside(SINGLE)?.is_some() {
            folder.add(SINGLE, &mut fingerprint)?;
        } else if let Some(bytes) = folder.small_file(INDEX)? {
            fingerprint.add(&bytes);
            folder.add_indexed(&bytes, &mut fingerprint)?;
        } else {
            return Err(WeightsError::unreadable(&path.join(SINGLE))(ErrorKind::NotFound.into()));
        }
        folder.fingerprint = fingerprint.finish();
        Ok(folder)
    }

    /// A regular file of this folder, or the one that a link there leads to, as in Hugging Face's caches; none if there is
    /// none.
    fn open_inside(&self, name: &str) -> Result<Option<(File, u64)>, WeightsError> {
        let path = self.path.join(name);
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let what = format!("names `{name}`, expected the name of a file beside it");
            return Err(WeightsError::Outside { path: self.path.join(INDEX), what });
        }
        let metadata = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&path).is_err() => {
                return Ok(None);
            }
            metadata => metadata.map_err(WeightsError::unreadable(&path))?,
        };
        // Opening a pipe could take forever.
        if !metadata.is_file() {
            return Err(WeightsError::malformed(&path, "is not a file"));
        }
        if let Some(pointer) = Pointer::at(&path).map_err(WeightsError::unreadable(&path))? {
            return Err(pointer.into());
        }
        let file = File::open(&path).map_err(WeightsError::unreadable(&path))?;
        Ok(Some((file, metadata.len())))
    }

    /// The bytes of a file that is held in memory; none if it is not there.
    pub(super) fn small_file(&self, name: &str) -> Result<Option<Vec<u8>>, WeightsError> {
        let Some((file, len)) = self.open_inside(name)? else { return Ok(None) };
        let path = self.path.join(name);
        if len > JSON_BYTES_MAX {
            return Err(WeightsError::malformed(&path, format!("has {len} bytes, expected at most {JSON_BYTES_MAX}")));
        }
        let mut bytes = Vec::new();
        file.take(JSON_BYTES_MAX).read_to_end(&mut bytes).map_err(WeightsError::unreadable(&path))?;
        // Some editors put a mark in front of a text, which `transformers` does not read.
        if bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        Ok(Some(bytes))
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, name: &str, bytes: &[u8]) -> Result<T, WeightsError> {
        let told = |error| WeightsError::malformed(&self.path.join(name), format!("is not understood: {error}"));
        serde_json::from_slice(&python_json::named(bytes)).map_err(told)
    }

    /// Adds all tensors of a file, and returns their names.
    fn add(&mut self, name: &str, fingerprint: &mut Fingerprint) -> Result<Vec<String>, WeightsError> {
        let path = self.path.join(name);
        let Some((mut file, len)) = self.open_inside(name)? else {
            return Err(WeightsError::unreadable(&path)(ErrorKind::NotFound.into()));
        };
        let header = header::read(&mut file, len).map_err(|error| match error {
            HeaderError::Io(source) => WeightsError::Unreadable { path: path.clone(), source },
            HeaderError::Malformed(what) => WeightsError::Malformed { path: path.clone(), what },
        })?;
        fingerprint.add(&[name.as_bytes(), &len.to_le_bytes(), &header.bytes].concat());
        let mut names = Vec::with_capacity(header.entries.len());
        for (tensor, entry) in header.entries {
            let found = FolderTensor {
                dtype: entry.dtype,
                shape: entry.shape,
                file: self.files.len(),
                start_bytes: entry.start_bytes,
            };
            names.push(tensor.clone());
            if let Some(other) = self.tensors.insert(tensor, found) {
                let tensor = names.last().map_or("", String::as_str);
                let other = self.files[other.file].0.display();
                return Err(WeightsError::malformed(&path, format!("has `{tensor}`, which `{other}` has too")));
            }
        }
        self.files.push((path, file));
        Ok(names)
    }

    /// Adds the files of an index, which must name the file of each tensor correctly.
    fn add_indexed(&mut self, bytes: &[u8], fingerprint: &mut Fingerprint) -> Result<(), WeightsError> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let Index { weight_map } = self.json(INDEX, bytes)?;
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        weight_map.iter().for_each(|(tensor, file)| files.entry(file).or_default().push(tensor));
        for (file, indexed) in files {
            let held = self.add(file, fingerprint)?;
            let index = self.path.join(INDEX);
            if let Some(tensor) =
                indexed.iter().find(|&&tensor| held.binary_search_by(|it| it.as_str().cmp(tensor)).is_err())
            {
                let what = format!("names `{tensor}` in `{file}`, which does not have it");
                return Err(WeightsError::malformed(&index, what));
            }
            if let Some(tensor) = held.iter().find(|tensor| indexed.binary_search(&tensor.as_str()).is_err()) {
                let what = format!("does not name `{tensor}`, which `{file}` has");
                return Err(WeightsError::malformed(&index, what));
            }
        }
        Ok(())
    }

    /// Reads bytes of a tensor from byte `start` of it on.
    ///
    /// # Errors
    /// Z0360.
    pub fn read(&self, found: &FolderTensor, start: usize, bytes: &mut [u8]) -> Result<(), WeightsError> {
        let (path, file) = &self.files[found.file];
        file.read_exact_at(bytes, found.start_bytes + start as u64).map_err(WeightsError::unreadable(path))
    }

    /// The file that a tensor is in.
    pub fn file_of(&self, found: &FolderTensor) -> &Path {
        &self.files[found.file].0
    }
}
