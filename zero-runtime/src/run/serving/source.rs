//! Source: where the weights of a worker come from: a folder, or a run that publishes. Never decodes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zero_core::device::Device;
use zero_core::model::Program;
use zero_files::data::{TOKENIZER, Tokenizer, require_fit};
use zero_files::weights::{NamedTensor, model_tensors};
use zero_ranks::launch;
use zero_serve::Mailbox;
use zero_serve::follow::{Arrival, Expected, FollowedRun, Following, Receiver};

use super::arguments::ServeArguments;
use super::decoder::TensorPlace;
use super::{first_line, refused};
use crate::error::Error;
use crate::run::arguments::RunArguments;
use crate::run::threads::Threads;
use crate::run::train::RankEngine;
use crate::run::weights::WeightFolders;

/// Pieces of newer weights that wait for the thread that decodes, and those around them, in bytes.
const FETCHED_BYTES: usize = 16 << 20;
/// The file that says which version a followed folder has.
const MARK: &str = "published.json";

/// Where weights come from.
pub enum Source {
    /// A folder.
    Folder { path: PathBuf, weights: WeightFolders },
    /// A run.
    Run { url: String, run: FollowedRun },
}

/// What the source of weights has become once the engine is there.
pub struct Weights {
    /// The version that is loaded; nothing if the first is still to come.
    pub version: String,
    /// Newer weights.
    pub arrivals: Option<Receiver<Arrival>>,
    /// Where they go, tensor by tensor.
    pub places: Vec<TensorPlace>,
    /// The thread that fetches them.
    pub following: Option<Following>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Folder { path, .. } => path.display().fmt(f),
            Source::Run { url, .. } => url.fmt(f),
        }
    }
}

impl Source {
    /// Opens the folder, or meets the run.
    pub fn open<D: Device>(program: &Program<D>, serve: &ServeArguments, run: &RunArguments) -> Result<Self, Error> {
        if let Some(url) = &serve.from {
            let token = serve.from_token.as_deref().map(first_line).transpose()?;
            let name = format!("worker-{}", serve.port);
            let met = FollowedRun::meet(url, token.as_deref(), &name, serve.patience);
            return Ok(Source::Run { url: url.clone(), run: met.map_err(|why| refused(&why))? });
        }
        let path = run.init.clone().expect("one of --from and --init");
        Ok(Source::Folder { path, weights: WeightFolders::open(program, run, None)? })
    }

    /// A file beside the tensors, as text; none if it is not there.
    fn file(&self, name: &str) -> Option<String> {
        match self {
            Source::Folder { path, .. } => fs::read_to_string(path.join(name)).ok(),
            Source::Run { run, .. } => {
                let (_, content) = run.files.iter().find(|(found, _)| found == name)?;
                String::from_utf8(content.clone()).ok()
            }
        }
    }

    /// The tokenizer that is `given`, or lies beside the tensors, of a model that predicts `classes` ids.
    pub fn tokenizer(&self, given: Option<&Path>, classes: usize) -> Result<Option<Tokenizer>, Error> {
        let tokenizer = match (given, self) {
            (Some(path), _) => Some(Tokenizer::open(path)?),
            (None, Source::Folder { path, .. }) if path.join(TOKENIZER).exists() => Some(Tokenizer::open(path)?),
            (None, source) => {
                let path = PathBuf::from(format!("{source}/{TOKENIZER}"));
                source.file(TOKENIZER).map(|content| Tokenizer::of(path, &content)).transpose()?
            }
        };
        tokenizer.as_ref().map_or(Ok(()), |tokenizer| require_fit(tokenizer, classes))?;
        Ok(tokenizer)
    }

    /// The config of the tokenizer, and the template of chats, if that has a file of its own.
    pub fn of_chats(&self) -> (Option<Value>, Option<String>) {
        let config = self.file("tokenizer_config.json").and_then(|text| serde_json::from_str(&text).ok());
        (config, self.file("chat_template.jinja"))
    }

    /// Bytes that it holds in memory.
    pub fn resident_bytes(&self) -> usize {
        match self {
            Source::Folder { weights, .. } => weights.resident_bytes(),
            Source::Run { run, .. } => {
                FETCHED_BYTES + run.files.iter().map(|(_, content)| content.len()).sum::<usize>()
            }
        }
    }

    /// Fills the engine from the folder, or begins to follow the run.
    pub fn load<D: Device>(
        self,
        engine: &mut RankEngine<'static, D>,
        run: &RunArguments,
        mailbox: &Mailbox,
    ) -> Result<Weights, Error> {
        match self {
            Source::Folder { path, weights } => {
                let threads = Threads::new(run.threads, engine.plan()).per_rank;
                weights.fill(engine, run.seed, threads)?;
                let version = version_of(&path).unwrap_or_else(|| "init".to_owned());
                Ok(Weights { version, arrivals: None, places: Vec::new(), following: None })
            }
            Source::Run { run, .. } => {
                let (expected, places) = tensors(engine.program());
                let once = !engine.plan().config.serve.staged;
                let (arrivals, following) =
                    run.follow(expected, once, mailbox.clone(), launch::print).map_err(|error| refused(&error))?;
                Ok(Weights { version: String::new(), arrivals: Some(arrivals), places, following: Some(following) })
            }
        }
    }
}

/// The version that a followed folder says it has.
fn version_of(folder: &Path) -> Option<String> {
    let told: Value = serde_json::from_str(&fs::read_to_string(folder.join(MARK)).ok()?).ok()?;
    told["version"].as_str().map(str::to_owned)
}

/// The tensors that a run publishes of this model, and the place of each.
fn tensors<D>(program: &Program<D>) -> (Vec<Expected>, Vec<TensorPlace>) {
    let all = model_tensors(program);
    let is_same = |one: &NamedTensor, other: &NamedTensor| {
        (one.unit, one.start, one.elements()) == (other.unit, other.start, other.elements())
    };
    let owners = all.iter().filter(|tensor| !tensor.is_alias);
    owners
        .map(|owner| {
            // A run that began with a folder has its names: of tied tensors, that of either.
            let names = all.iter().filter(|other| is_same(owner, other)).map(|other| other.name.clone()).collect();
            let transposed = owner.transposed && owner.shape.len() == 2;
            let expected = Expected { names, shape: owner.published_shape(), transposed };
            (expected, TensorPlace { unit: owner.unit, start: owner.start })
        })
        .unzip()
}
