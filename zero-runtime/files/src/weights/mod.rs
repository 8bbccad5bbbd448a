//! Weights: reads and writes published models: folders as Hugging Face has them, with safetensors and a `config.json`.
//! Never holds a model: numbers go between files and the engine in pieces.
//!
//! `folder` opens files and `header` checks them; `names` says how a model's tensors are published; `config` compares a
//! config with the struct. [`Import`] fills the parameters of an engine, [`Export`] writes them as a [`Publication`] says.

mod config;
pub(crate) mod directory;
mod dtype;
mod error;
pub(crate) mod export;
mod folder;
mod followed;
pub(crate) mod header;
mod import;
pub(crate) mod layout;
mod names;
mod publication;
mod python_json;
mod rotary;
mod runs;

pub use dtype::WeightType;
pub use error::{FirstTen, WeightsError};
pub use export::{Export, ExportError};
pub use folder::{CONFIG, Folder};
pub use followed::{FollowedFolder, VersionFiles, VersionFolder};
pub use import::{Import, ImportedTensor};
pub use layout::Exported;
pub use names::{NamedTensor, of_model as model_tensors};
pub(crate) use publication::is_beside;
pub use publication::{BesideFile, Publication};
