//! Fetch: one version after another, from the ranks that own it into a folder. What is refused leaves the folder as it is.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use zero_files::weights::{BesideFile, Exported, FollowedFolder, NamedTensor, Publication, WeightType, WeightsError};
use zero_plan::Bytes;
use zero_publish::PublishError;
use zero_publish::client::{Reader, block_on};
use zero_publish::follow::{Keeper, NotKept, follow as follow_with, number_bytes, require_parts};
use zero_publish::wire::{Layout, PublishedTensor, Version};

use super::FollowArguments;
use super::engines::{self, Engine};
use crate::error::CommandError;
use crate::say;

/// Follows a run until it has ended.
pub fn follow(arguments: &FollowArguments) -> Result<(), CommandError> {
    let read = |path: &Path| std::fs::read_to_string(path);
    let token = arguments.token.as_deref().map(|path| {
        let what = |error| CommandError::Follow {
            what: format!("cannot read the token in {}: {error}", path.display()),
            help: "name a file whose first line is the token",
        };
        read(path).map(|text| text.lines().next().unwrap_or_default().trim().to_owned()).map_err(what)
    });
    let token = token.transpose()?;
    let engines = arguments.engines.as_deref().map(engines::read).transpose()?.unwrap_or_default();
    let mut folder = KeptFolder { folder: FollowedFolder::new(&arguments.out)?, arguments, engines };
    let mut reader = Reader::new(&arguments.url, token.as_deref(), &arguments.name);
    let followed = block_on(async {
        let patience = Duration::from_secs(arguments.patience);
        let followed = follow_with(&mut reader, &mut folder, patience, arguments.once).await;
        reader.leave().await;
        followed
    });
    let followed = followed.map_err(|error| CommandError::Follow {
        what: format!("cannot wait for answers: {error}"),
        help: "check the limits of this user: threads and open files",
    })?;
    match followed {
        Ok(Version(kept)) => {
            if !arguments.once {
                let out = arguments.out.display();
                say::line(format_args!("nobody answers any more: {out} stays at version {kept}"));
            }
            Ok(())
        }
        Err(error) => {
            let help = match error {
                PublishError::Refused { status: 401, .. } => "name the file with the token of the run by --token",
                _ => "start the run with --publish, and name the address of its rank 0",
            };
            Err(CommandError::Follow { what: error.to_string(), help })
        }
    }
}

/// The folder that has the newest version.
struct KeptFolder<'a> {
    folder: FollowedFolder,
    arguments: &'a FollowArguments,
    engines: Vec<Engine>,
}

impl Keeper for KeptFolder<'_> {
    /// Fetches a version, writes it, and says so.
    async fn keep(&mut self, reader: &mut Reader, version: &Version) -> Result<(), NotKept> {
        let began = Instant::now();
        let fetching = reader.fetch(version).await?;
        let mut files = Vec::new();
        for file in &fetching.layout.files {
            files.push(BesideFile::new(&file.name, reader.file(version, file).await?.to_vec()));
        }
        let tensors = tensors(&fetching.layout)?;
        let names: Vec<String> = tensors.iter().map(|tensor| tensor.name.clone()).collect();
        let (manifest, url) = (&fetching.manifest, &self.arguments.url);
        let told = json!({ "version": manifest.version, "step": manifest.step, "run": manifest.run, "url": url });
        let files = self.folder.files(Publication { tensors, files }, &format!("{told:#}\n")).map_err(refused)?;
        let step = manifest.step;
        let mut written = self.folder.begin(&files).map_err(refused)?;
        let write =
            async |tensor: usize, first, bytes: &[u8]| written.write(&names[tensor], first, bytes).map_err(refused);
        let bytes = fetching.hand_over(write).await?;
        written.finish().map_err(refused)?;
        let (bytes, seconds, out) = (Bytes(bytes), began.elapsed().as_secs_f64(), self.arguments.out.display());
        let (version, count) = (&version.0, names.len());
        say::line(format_args!(
            "version {version} of step {step}: {count} tensors, {bytes} in {seconds:.3} s, to {out}"
        ));
        // No newer version takes the place of the folder while an engine reads it.
        for engine in &self.engines {
            match engine.load(&self.arguments.out, version).await {
                Ok(()) => say::line(format_args!("version {version} is in {}", engine.url())),
                Err(why) => say::note(format_args!("note: {why}")),
            }
        }
        Ok(())
    }

    fn note(&mut self, what: &str) {
        say::note(format_args!("note: {what}"));
    }
}

fn refused(error: WeightsError) -> NotKept {
    NotKept::Refused(error.to_string())
}

/// The tensors of a layout, as a folder has them.
fn tensors(layout: &Layout) -> Result<Vec<Exported>, NotKept> {
    require_parts(layout)?;
    let kind = if number_bytes(layout)? == 4 { WeightType::F32 } else { WeightType::BF16 };
    let exported = |(unit, it): (usize, &PublishedTensor)| {
        let (name, mut shape) = (it.name.clone(), it.shape.clone());
        if it.transposed {
            shape.reverse();
        }
        let named =
            NamedTensor { name: name.clone(), shape, transposed: it.transposed, unit, start: 0, is_alias: false };
        Exported { name, named, kind }
    };
    Ok(layout.tensors.iter().enumerate().map(exported).collect())
}
