//! Followed: a folder of weights that is replaced whole by each newer version, so that whoever opens it finds one version. Never knows
//! where versions come from.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::directory::{Directory, UnfinishedFolder};
use super::error::WeightsError;
use super::export::{Writer, begin};
use super::layout::{FILE_BYTES_MAX, Layout};
use super::publication::{BesideFile, Publication};
use crate::flush::sync_dir;

/// The file that says which version a folder has. A folder without it is not replaced.
const MARK: &str = "published.json";
const HELP: &str = "name a folder that does not exist yet, or one that `cargo zero follow` has made";

/// A folder that follows a run.
#[derive(Debug)]
pub struct FollowedFolder {
    path: PathBuf,
    /// Where the next version is made, and where the one before it is until it is removed.
    next: PathBuf,
}

/// A version that is being written.
pub struct VersionFolder<'a> {
    folder: &'a FollowedFolder,
    partial: UnfinishedFolder<'a>,
    writer: Writer<'a>,
    layout: &'a Layout,
    numbers: Vec<f32>,
}

/// The files of a version.
pub struct VersionFiles {
    layout: Layout,
    files: Vec<BesideFile>,
    directory: Directory,
}

impl FollowedFolder {
    /// The folder at `path`, which must not exist yet, or have a version. Removes what an earlier process has left unfinished beside it.
    ///
    /// # Errors
    /// Z0368.
    pub fn new(path: &Path) -> Result<Self, WeightsError> {
        let refused = |why: &str| WeightsError::Directory { what: format!("`{}` {why}", path.display()), help: HELP };
        let name = path.file_name().ok_or_else(|| refused("has no name of its own"))?.to_owned();
        match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&format!("cannot be read: {error}"))),
            Ok(mut entries) => {
                if entries.next().is_some() && !path.join(MARK).is_file() {
                    return Err(refused(&format!("has files, but no `{MARK}`: it would be replaced")));
                }
            }
        }
        let mut next = name.clone();
        next.push(".next");
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unfinished = format!("{}.", next.display());
        for entry in fs::read_dir(parent).map_err(WeightsError::unreadable(parent))?.flatten() {
            let found = entry.file_name();
            if found == next || found.to_string_lossy().starts_with(&unfinished) {
                fs::remove_dir_all(entry.path()).map_err(WeightsError::unwritable(&entry.path()))?;
            }
        }
        Ok(Self { path: path.to_owned(), next: parent.join(next) })
    }

    /// The files of a version in which tensors are as `publication` says. `told` is what `published.json` says of it.
    ///
    /// # Errors
    /// Z0368, also if there is no room for it.
    pub fn files(&self, publication: Publication, told: &str) -> Result<VersionFiles, WeightsError> {
        let bytes = publication.bytes() as u64;
        let Publication { tensors, mut files } = publication;
        files.push(BesideFile::new(MARK, told.as_bytes().to_vec()));
        let layout = Layout::new(tensors, FILE_BYTES_MAX);
        let directory = Directory::new(&self.next, layout.file_bytes() + bytes)?;
        Ok(VersionFiles { layout, files, directory })
    }

    /// Begins to write a version.
    ///
    /// # Errors
    /// Z0368.
    pub fn begin<'a>(&'a self, files: &'a VersionFiles) -> Result<VersionFolder<'a>, WeightsError> {
        let VersionFiles { layout, files, directory } = files;
        let partial = begin(directory, layout, files)?;
        let writer = Writer::open(layout, &directory.partial(std::process::id()))?;
        Ok(VersionFolder { folder: self, partial, writer, layout, numbers: Vec::new() })
    }

    /// Gives the folder that is made its name, in place of the one that has it.
    fn replace(&self) -> Result<(), WeightsError> {
        let Self { path, next } = self;
        let named = if path.exists() {
            // Both have a name at every moment.
            renameat_with(CWD, next, CWD, path, RenameFlags::EXCHANGE).map_err(Into::into)
        } else {
            fs::rename(next, path)
        };
        named.map_err(|source| WeightsError::Unnamed { path: path.clone(), whole: next.clone(), source })?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_dir(parent).map_err(WeightsError::unwritable(parent))?;
        match fs::remove_dir_all(next) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(WeightsError::unwritable(next)(error)),
            _ => Ok(()),
        }
    }
}

impl VersionFolder<'_> {
    /// Writes elements of the tensor with this name, from `first` on in the order of the model: little-endian numbers of its type.
    ///
    /// # Errors
    /// Z0368; Z0401 if one of them is not finite.
    ///
    /// # Panics
    /// If there is no such tensor, or it has fewer elements.
    pub fn write(&mut self, name: &str, first: usize, bytes: &[u8]) -> Result<(), WeightsError> {
        let target = self.layout.targets.iter().find(|target| target.tensor.name == name);
        let target = target.expect("a tensor of the publication");
        let kind = target.tensor.kind;
        self.numbers.clear();
        self.numbers.resize(bytes.len() / kind.bytes(), 0.0);
        assert!(first + self.numbers.len() <= target.tensor.named.elements(), "elements after the end of `{name}`");
        kind.decode(bytes, &mut self.numbers, 0, 1);
        self.writer.write_tensor(target, first, &self.numbers)
    }

    /// Gives the version the name of the folder, once all of it is on its disk.
    ///
    /// # Errors
    /// Z0368.
    pub fn finish(self) -> Result<(), WeightsError> {
        self.partial.finish()?;
        self.folder.replace()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::dtype::WeightType;
    use super::super::folder::{CONFIG, Folder};
    use super::super::layout::Exported;
    use super::super::names::NamedTensor;
    use super::*;

    fn publication() -> Publication {
        let named = NamedTensor {
            name: "w".to_owned(),
            shape: vec![2, 3],
            transposed: true,
            unit: 0,
            start: 0,
            is_alias: false,
        };
        let tensor = Exported { name: named.name.clone(), named, kind: WeightType::F32 };
        let config = BesideFile::new(CONFIG, json!({ "x": 1 }).to_string().into_bytes());
        Publication { tensors: vec![tensor], files: vec![config] }
    }

    fn write(folder: &FollowedFolder, number: f32, told: &str, finishes: bool) -> Result<(), WeightsError> {
        let files = folder.files(publication(), told)?;
        let mut version = folder.begin(&files)?;
        for first in 0..6 {
            version.write("w", first, &(number + first as f32).to_le_bytes())?;
        }
        if finishes { version.finish() } else { Ok(()) }
    }

    #[test]
    fn a_newer_version_replaces_the_whole_folder() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("followed");
        let names = |path: &Path| {
            let mut names: Vec<_> = fs::read_dir(path).expect("a folder").flatten().map(|it| it.file_name()).collect();
            names.sort();
            names
        };
        for (number, told) in [(1.0, "one"), (7.0, "seven")] {
            let folder = FollowedFolder::new(&path).expect("a folder");
            write(&folder, number, told, true).expect("written");
            assert_eq!(fs::read_to_string(path.join(MARK)).expect("a mark"), told);
            assert_eq!(names(root.path()), ["followed"]);
            assert_eq!(names(&path), ["config.json", "model.safetensors", MARK]);
            Folder::open(&path).expect("a folder of weights");
            let bytes = fs::read(path.join("model.safetensors")).expect("tensors");
            let numbers: Vec<f32> =
                bytes[bytes.len() - 24..].as_chunks().0.iter().map(|&it| f32::from_le_bytes(it)).collect();
            // (2, 3) in the model, and published as (3, 2).
            assert_eq!(numbers, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0].map(|at| number + at));
        }
        // One that is not finished changes nothing, and what a process leaves is removed by the next one.
        let folder = FollowedFolder::new(&path).expect("a folder");
        write(&folder, 9.0, "nine", false).expect("written");
        fs::create_dir(root.path().join("followed.next.partial-0000000001")).expect("a folder");
        FollowedFolder::new(&path).expect("a folder");
        assert_eq!(names(root.path()), ["followed"]);
        assert_eq!(fs::read_to_string(path.join(MARK)).expect("a mark"), "seven");
    }

    #[test]
    fn what_it_has_not_made_is_not_replaced() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("thesis.tex"), "mine").expect("a file");
        let error = FollowedFolder::new(root.path()).expect_err("a folder with files");
        assert!(error.to_string().contains("no `published.json`"), "{error}");
        assert!(FollowedFolder::new(Path::new("/")).is_err());
        let folder = FollowedFolder::new(&root.path().join("new")).expect("a new folder");
        let error = write(&folder, f32::NAN, "nan", true).expect_err("no number");
        assert_eq!(error.code(), "Z0401");
        assert!(!root.path().join("new").exists());
    }
}
