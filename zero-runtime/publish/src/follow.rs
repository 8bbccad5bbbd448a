//! Follow: a reader that keeps one version of a run after another, for as long as the run is there. Never knows what keeps them.

use std::time::{Duration, Instant};

use crate::client::{Fetching, Reader, sleep};
use crate::error::PublishError;
use crate::wire::{Layout, Part, Version};

/// How long a server may keep a reader waiting for a version, in seconds.
const WAIT_S: u64 = 30;
/// How long to wait before a server that does not answer is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What keeps versions.
pub trait Keeper {
    /// Fetches a version and keeps it.
    fn keep(&mut self, reader: &mut Reader, version: &Version) -> impl Future<Output = Result<(), NotKept>>;

    /// Tells a person why a version is not kept.
    fn note(&mut self, what: &str);
}

/// Why a version is not kept.
#[derive(Debug)]
pub enum NotKept {
    /// A newer one has taken its place.
    GivenUp,
    /// Nobody answers.
    Unreachable(PublishError),
    /// It cannot be used, or written.
    Refused(String),
    /// The keeper has gone.
    Gone,
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

/// Follows a run: returns the version that was kept last, after the first of them if it is to be kept `once`; or once nobody has
/// answered for as long as `patience`.
///
/// # Errors
/// The last one of the reader, if no version was kept before; and that the run asks for another token.
pub async fn follow(
    reader: &mut Reader,
    keeper: &mut impl Keeper,
    patience: Duration,
    once: bool,
) -> Result<Version, PublishError> {
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
                match keeper.keep(reader, &version).await {
                    Ok(()) => {
                        // It is kept, whether the run is still there or not.
                        let _ = reader.acknowledge(&version, None).await;
                        if once {
                            return Ok(version);
                        }
                        kept = Some(version.clone());
                    }
                    Err(NotKept::GivenUp) => {}
                    Err(NotKept::Unreachable(error)) => {
                        keeper.note(&error.to_string());
                        // What was given up in the middle is asked for again, if it is still the newest.
                        sleep(AGAIN_AFTER).await;
                        continue;
                    }
                    Err(NotKept::Refused(why)) => {
                        keeper.note(&format!("version {} is refused: {why}", version.0));
                        // The run is told, if it still listens.
                        let _ = reader.acknowledge(&version, Some(why)).await;
                    }
                    Err(NotKept::Gone) => return Ok(kept.unwrap_or(version)),
                }
                // One that was given up or refused is not asked for again.
                seen = Some(version);
                continue;
            }
            Err(error) => error,
        };
        if let PublishError::Refused { status: 401, .. } = unheard {
            return Err(unheard);
        }
        if heard.elapsed() >= patience {
            return kept.ok_or(unheard);
        }
        reader.forget();
        sleep(AGAIN_AFTER).await;
    }
}

/// Bytes of a number of a layout.
///
/// # Errors
/// A sentence for a type that is unknown.
pub fn number_bytes(layout: &Layout) -> Result<usize, NotKept> {
    match layout.dtype.as_str() {
        "f32" => Ok(4),
        "bf16" => Ok(2),
        other => Err(NotKept::Refused(format!("it is published in the type `{other}`, which is unknown"))),
    }
}

/// Checks that a layout has each element of its tensors once, in the bytes of a rank.
///
/// # Errors
/// A sentence.
pub fn require_parts(layout: &Layout) -> Result<(), NotKept> {
    let (bytes, refuse) = (number_bytes(layout)?, |why| Err(NotKept::Refused(why)));
    for it in &layout.tensors {
        let mut end = 0;
        for part in &it.parts {
            if part.start != end || part.rank >= layout.ranks.len() {
                return refuse(format!("`{}` has no element {end}", it.name));
            }
            end = part.start.saturating_add(part.len);
            let in_rank = part.len.checked_mul(bytes).and_then(|bytes| part.offset.checked_add(bytes));
            if in_rank.is_none_or(|end| end > layout.ranks[part.rank].bytes) {
                return refuse(format!("`{}` ends after the bytes of rank {}", it.name, part.rank));
            }
        }
        let elements: usize = it.shape.iter().product();
        if end != elements {
            return refuse(format!("`{}` has {end} elements, expected {elements}", it.name));
        }
    }
    Ok(())
}

impl Fetching {
    /// Hands over what the ranks send, rank by rank: a tensor's number in the layout, its first element, and bytes of elements from
    /// that on. Returns the number of bytes of all ranks. The layout has passed [`require_parts`].
    ///
    /// # Errors
    /// Those of the reader, and of `take`.
    pub async fn hand_over(
        self,
        mut take: impl AsyncFnMut(usize, usize, &[u8]) -> Result<(), NotKept>,
    ) -> Result<usize, NotKept> {
        let Self { layout, ranks, .. } = self;
        let element = number_bytes(&layout)?;
        let mut bytes = 0;
        for (rank, mut of_rank) in ranks.into_iter().enumerate() {
            let of_tensor = |(tensor, parts): (usize, Vec<Part>)| parts.into_iter().map(move |part| (tensor, part));
            let all = layout.tensors.iter().map(|tensor| tensor.parts.clone()).enumerate().flat_map(of_tensor);
            let mut parts: Vec<(usize, Part)> = all.filter(|(_, part)| part.rank == rank).collect();
            parts.sort_by_key(|(_, part)| part.offset);
            let (mut at, mut next) = (0, 0);
            while let Some(piece) = of_rank.next().await? {
                let end = at + piece.len();
                // A part may go on in the next piece.
                while let Some(&(tensor, part)) = parts.get(next) {
                    let part_end = part.offset + part.len * element;
                    let (from, to) = (part.offset.max(at), part_end.min(end));
                    if from < to {
                        take(tensor, part.start + (from - part.offset) / element, &piece[from - at..to - at]).await?;
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
}
