//! Readers: the tensors of a published version as a reader gets them, and those of an exported folder.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::SafeTensors;
use zero_publish::PublishError;
use zero_publish::client::Reader;
use zero_publish::wire::{Layout, PublishedTensor, Version};

/// The bytes of each tensor of a version, in the order in which they are served.
pub type Tensors = BTreeMap<String, Vec<u8>>;

/// Fetches a version in bf16.
///
/// # Errors
/// Those of its reader.
///
/// # Panics
/// If it has another type.
pub async fn fetched(reader: &Reader, version: &Version) -> Result<Tensors, PublishError> {
    let fetching = reader.fetch(version).await?;
    let Layout { tensors, dtype, .. } = fetching.layout;
    assert_eq!(dtype, "bf16");
    let mut ranks = Vec::new();
    for mut rank in fetching.ranks {
        let mut bytes = Vec::new();
        while let Some(piece) = rank.next().await? {
            bytes.extend(piece);
        }
        ranks.push(bytes);
    }
    let of_tensor = |tensor: &PublishedTensor| {
        let parts = tensor.parts.iter().flat_map(|part| &ranks[part.rank][part.offset..][..2 * part.len]);
        (tensor.name.clone(), parts.copied().collect())
    };
    Ok(tensors.iter().map(of_tensor).collect())
}

/// The tensors of an exported folder.
///
/// # Panics
/// If there are none.
pub fn exported(folder: &Path) -> Tensors {
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("exported weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("exported weights");
    tensors.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect()
}
