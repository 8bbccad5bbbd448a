//! Fetch: one version after another, from the ranks that own it into a folder. What is refused leaves the folder as it is.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use zero_files::weights::{
    BesideFile, Exported, FollowedFolder, NamedTensor, Publication, VersionFolder, WeightType, WeightsError,
};
use zero_plan::Bytes;
use zero_publish::PublishError;
use zero_publish::client::{Fetching, Reader, block_on, sleep};
use zero_publish::wire::{Layout, PublishedTensor, Version};

use super::FollowArguments;
use crate::error::CommandError;
use crate::say;

/// How long a server may keep a reader waiting for a version, in seconds.
const WAIT_S: u64 = 30;
/// How long to wait before a server that does not answer is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Why a version is not in the folder.
enum NotKept {
    /// A newer one has taken its place.
    GivenUp,
    /// Nobody answers.
    Unreachable(PublishError),
    /// It cannot be used, or written.
    Refused(String),
}

impl From<PublishError> for NotKept {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::GivenUp { .. } => Self::GivenUp,
            PublishError::Corrupt { .. } => Self::Refused(error.to_string()),
            error => Self::Unreachable(error),
        }
    }
}

impl From<WeightsError> for NotKept {
    fn from(error: WeightsError) -> Self {
        Self::Refused(error.to_string())
    }
}

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
    let folder = FollowedFolder::new(&arguments.out)?;
    let mut reader = Reader::new(&arguments.url, token.as_deref(), &arguments.name);
    block_on(async {
        let followed = follow_with(arguments, &folder, &mut reader).await;
        reader.leave().await;
        followed
    })
    .map_err(|error| CommandError::Follow {
        what: format!("cannot wait for answers: {error}"),
        help: "check the limits of this user: threads and open files",
    })?
}

async fn follow_with(
    arguments: &FollowArguments,
    folder: &FollowedFolder,
    reader: &mut Reader,
) -> Result<(), CommandError> {
    let (mut seen, mut kept): (Option<Version>, Option<Version>) = (None, None);
    let mut heard = Instant::now();
    loop {
        let next = match reader.join().await {
            Ok(()) => reader.wait(seen.as_ref(), WAIT_S).await,
            Err(error) => Err(error),
        };
        let unheard = match next {
            Ok(None) => {
                heard = Instant::now();
                continue;
            }
            Ok(Some(version)) => {
                heard = Instant::now();
                match keep(folder, reader, &version, arguments).await {
                    Ok(()) => kept = Some(version.clone()),
                    Err(NotKept::GivenUp) => {}
                    Err(NotKept::Unreachable(error)) => {
                        say::note(format_args!("note: {error}"));
                        // What was given up in the middle is asked for again, if it is still the newest.
                        sleep(AGAIN_AFTER).await;
                        continue;
                    }
                    Err(NotKept::Refused(why)) => {
                        say::note(format_args!("note: version {} is refused: {why}", version.0));
                        // The run is told, if it still listens.
                        let _ = reader.acknowledge(&version, Some(why)).await;
                        seen = Some(version);
                        continue;
                    }
                }
                // A version that was given up is not asked for again: there is a newer one.
                seen = Some(version);
                if arguments.once && kept.is_some() {
                    return Ok(());
                }
                continue;
            }
            Err(error) => error,
        };
        if let PublishError::Refused { status: 401, .. } = unheard {
            let (what, help) = (unheard.to_string(), "name the file with the token of the run by --token");
            return Err(CommandError::Follow { what, help });
        }
        if heard.elapsed() >= Duration::from_secs(arguments.patience) {
            let Some(kept) = kept else {
                let help = "start the run with --publish, and name the address of its rank 0";
                return Err(CommandError::Follow { what: unheard.to_string(), help });
            };
            say::line(format_args!("nobody answers any more: {} stays at version {}", arguments.out.display(), kept.0));
            return Ok(());
        }
        reader.forget();
        sleep(AGAIN_AFTER).await;
    }
}

/// Fetches a version, writes it, and says so.
async fn keep(
    folder: &FollowedFolder,
    reader: &mut Reader,
    version: &Version,
    arguments: &FollowArguments,
) -> Result<(), NotKept> {
    let began = Instant::now();
    let fetching = reader.fetch(version).await?;
    let mut files = Vec::new();
    for file in &fetching.layout.files {
        files.push(BesideFile::new(&file.name, reader.file(version, file).await?.to_vec()));
    }
    let tensors = tensors(&fetching.layout)?;
    let (count, manifest) = (tensors.len(), &fetching.manifest);
    let told = json!({ "version": manifest.version, "step": manifest.step, "run": manifest.run, "url": arguments.url });
    let files = folder.files(Publication { tensors, files }, &format!("{told:#}\n"))?;
    let step = manifest.step;
    let mut written = folder.begin(&files)?;
    let bytes = write(fetching, &mut written).await?;
    written.finish()?;
    // The folder has it, whether the run is still there or not.
    let _ = reader.acknowledge(version, None).await;
    let (bytes, seconds, out) = (Bytes(bytes), began.elapsed().as_secs_f64(), arguments.out.display());
    say::line(format_args!(
        "version {} of step {step}: {count} tensors, {bytes} in {seconds:.3} s, to {out}",
        version.0
    ));
    Ok(())
}

/// The tensors of a layout, as a folder has them.
fn tensors(layout: &Layout) -> Result<Vec<Exported>, NotKept> {
    let kind = match layout.dtype.as_str() {
        "f32" => WeightType::F32,
        "bf16" => WeightType::BF16,
        other => return Err(NotKept::Refused(format!("it is published in the type `{other}`, which is unknown"))),
    };
    let exported = |(unit, it): (usize, &PublishedTensor)| {
        let elements: usize = it.shape.iter().product();
        let mut end = 0;
        for part in &it.parts {
            if part.start != end || part.rank >= layout.ranks.len() {
                return Err(NotKept::Refused(format!("`{}` has no element {end}", it.name)));
            }
            end = part.start.saturating_add(part.len);
            let in_rank = part.len.checked_mul(kind.bytes()).and_then(|bytes| part.offset.checked_add(bytes));
            if in_rank.is_none_or(|end| end > layout.ranks[part.rank].bytes) {
                return Err(NotKept::Refused(format!("`{}` ends after the bytes of rank {}", it.name, part.rank)));
            }
        }
        if end != elements {
            return Err(NotKept::Refused(format!("`{}` has {end} elements, expected {elements}", it.name)));
        }
        let mut shape = it.shape.clone();
        if it.transposed {
            shape.reverse();
        }
        let named =
            NamedTensor { name: it.name.clone(), shape, transposed: it.transposed, unit, start: 0, is_alias: false };
        Ok(Exported { name: it.name.clone(), named, kind })
    };
    layout.tensors.iter().enumerate().map(exported).collect()
}

/// Writes what the ranks send, rank by rank, and returns the number of bytes.
async fn write(fetching: Fetching, to: &mut VersionFolder<'_>) -> Result<usize, NotKept> {
    let Fetching { layout, ranks, .. } = fetching;
    let element = if layout.dtype == "f32" { 4 } else { 2 };
    let mut bytes = 0;
    for (rank, mut of_rank) in ranks.into_iter().enumerate() {
        let mut parts: Vec<_> = layout
            .tensors
            .iter()
            .flat_map(|tensor| tensor.parts.iter().map(|part| (tensor.name.as_str(), *part)))
            .filter(|(_, part)| part.rank == rank)
            .collect();
        parts.sort_by_key(|(_, part)| part.offset);
        let (mut at, mut next) = (0, 0);
        while let Some(piece) = of_rank.next().await? {
            let end = at + piece.len();
            // A part may go on in the next piece.
            while let Some((name, part)) = parts.get(next) {
                let part_end = part.offset + part.len * element;
                let (from, to_byte) = (part.offset.max(at), part_end.min(end));
                if from < to_byte {
                    to.write(name, part.start + (from - part.offset) / element, &piece[from - at..to_byte - at])?;
                }
                if part_end > end {
                    break;
                }
                next += 1;
            }
            (at, bytes) = (end, bytes + piece.len());
        }
    }
    Ok(bytes)
}
