//! Folders of weights: made by a model on ranks that are threads, read and rewritten with the crate `safetensors`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use zero_core::layer::{Tensor, Tensors};
use zero_core::model::{Program, published};
use zero_engine::Engine;
use zero_files::checkpoint::InitialCheckpoint;
use zero_files::weights::{Export, Import, Publication, WeightType, model_tensors};
use zero_plan::{Config, PlanBuf, Unit};
use zero_ranks::transport::{Shared, local};
use zero_runtime::__tests::Error;
use zero_runtime::device::Device;
use zero_tests::training::{HYPER, noise};

/// The source of parameters.
pub enum From<'a> {
    Seed(u64),
    Folder(&'a Path),
    Checkpoint(&'a Path),
}

/// Work on a model before its export.
pub struct Job<'a> {
    pub from: From<'a>,
    pub steps: u64,
    pub kind: Option<WeightType>,
    pub file_bytes_max: u64,
}

impl Default for Job<'_> {
    fn default() -> Self {
        Self { from: From::Seed(7), steps: 0, kind: None, file_bytes_max: u64::MAX }
    }
}

/// Exports a model under a configuration, on ranks that are threads, and returns rank 0's parameters of each unit.
pub fn export<D: Device>(
    program: &'static Program<D>,
    config: Config,
    job: &Job,
    path: &Path,
) -> Result<Vec<Vec<f32>>, Error> {
    let import = match job.from {
        From::Seed(_) | From::Checkpoint(_) => None,
        From::Folder(folder) => Some(Import::open(program, folder)?),
    };
    let publication = match &import {
        Some(import) => Publication::of_import(import)?,
        None => {
            Publication::own(model_tensors(program).into_iter(), (program.config)(), program.plan.config.length, None)
        }
    };
    let export = Export::in_files(path, &publication, job.kind, job.file_bytes_max)?;
    let batch = noise(config);
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        assert_eq!(plan.check(), Ok(()), "{config:?}");
        let rank = |transport: Shared<D>| {
            let mut engine = Engine::new(program, transport);
            match (&job.from, &import) {
                (From::Seed(seed), _) => engine.initialize(*seed),
                (From::Checkpoint(path), _) => InitialCheckpoint::open(program, path)?.load(&mut engine)?,
                (_, Some(import)) => import.load(&mut engine)?,
                _ => unreachable!("a folder is imported"),
            }
            let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
            for step in 0..job.steps {
                engine.step(&HYPER, |part, ids, targets| batch(step, data_rank, part, ids, targets))?;
            }
            export.write(&mut engine, &publication, None)?;
            let units = 0..plan.units.len();
            let parameters = units.map(|unit| Ok(engine.parameters(unit)?.unwrap_or_default()));
            parameters.collect::<Result<Vec<_>, Error>>()
        };
        let mut ranks = local::run(plan, Result::is_err, rank)?;
        ranks.swap_remove(0)
    })
}

/// The tensors of a unit, each with its name in a file.
pub fn named<D: Device>(program: &'static Program<D>, unit: &Unit) -> Vec<(String, Tensor)> {
    let mut list = Tensors::default();
    program.code[unit.position].tensors(&mut list);
    list.into_list().into_iter().map(|tensor| (published(unit, &tensor), tensor)).collect()
}

/// The name of a tensor of a field.
pub fn name<D: Device>(program: &'static Program<D>, field: &str, index: usize) -> String {
    let unit = program.plan.units.iter().find(|unit| unit.field == field).expect("a field of that name");
    named(program, unit).swap_remove(index).0
}

/// The files of a folder.
pub fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap())).collect()
}

/// Type, dims and bytes of a tensor.
pub type Content = (Dtype, Vec<usize>, Vec<u8>);

/// The tensors of one file.
pub fn tensors(path: &Path) -> BTreeMap<String, Content> {
    let bytes = fs::read(path).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    file.iter().map(|(name, it)| (name.to_owned(), (it.dtype(), it.shape().to_vec(), it.data().to_vec()))).collect()
}

/// Writes tensors to one file.
pub fn write(path: &Path, tensors: &BTreeMap<String, Content>) {
    let view =
        |(name, (dtype, shape, data)): (&String, &'_ Content)| (name.clone(), (*dtype, shape.clone(), data.clone()));
    let all: Vec<(String, Content)> = tensors.iter().map(view).collect();
    let views = all.iter().map(|(name, (dtype, shape, data))| {
        (name, TensorView::new(*dtype, shape.clone(), data).expect("as many bytes"))
    });
    serialize_to_file(views, None, path).expect("a file");
}

/// The numbers of a tensor of f32.
pub fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}
