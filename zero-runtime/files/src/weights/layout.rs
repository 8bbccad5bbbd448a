//! Layout: assigns each exported tensor a file and a place in it. Never writes a file.

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::dtype::WeightType;
use super::folder::SINGLE;
use super::header::LENGTH_BYTES;
use super::names::NamedTensor;

/// The longest file, as Hugging Face splits them: 5 GB. A single tensor may make a longer one.
pub const FILE_BYTES_MAX: u64 = 5_000_000_000;

/// A tensor that is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    /// The model's tensor.
    pub named: NamedTensor,
    /// Its name in the file.
    pub name: String,
    /// The type of its numbers.
    pub kind: WeightType,
}

/// Where a tensor goes.
#[derive(Debug)]
pub struct Target {
    /// The tensor.
    pub tensor: Exported,
    /// The index of its file in [`Layout::files`].
    pub file: usize,
    /// Where its bytes begin in the file.
    pub start_bytes: u64,
}

/// A file that is exported.
#[derive(Debug)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its first bytes: the length of its header, and the header.
    pub head: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// All files of an export.
#[derive(Debug)]
pub struct Layout {
    /// Where each tensor goes, in the order of units and of their flat buffers.
    pub targets: Vec<Target>,
    /// The files.
    pub files: Vec<Planned>,
    /// Bytes of all tensors.
    total_size: u64,
}

fn bytes(tensor: &Exported) -> u64 {
    (tensor.named.elements() * tensor.kind.bytes()) as u64
}

impl Layout {
    /// Lays tensors out in files of up to `file_bytes_max` bytes of them, in their order.
    pub fn new(tensors: Vec<Exported>, file_bytes_max: u64) -> Self {
        let mut parts: Vec<Vec<Exported>> = Vec::new();
        let mut filled = 0;
        for tensor in tensors {
            let bytes = bytes(&tensor);
            match parts.last_mut() {
                Some(part) if filled + bytes <= file_bytes_max => part.push(tensor),
                _ => {
                    parts.push(vec![tensor]);
                    filled = 0;
                }
            }
            filled += bytes;
        }
        let count = parts.len();
        let mut layout = Self { targets: Vec::new(), files: Vec::new(), total_size: 0 };
        for (file, part) in parts.into_iter().enumerate() {
            let name = match count {
                1 => SINGLE.to_owned(),
                _ => format!("model-{:05}-of-{count:05}.safetensors", file + 1),
            };
            layout.add(name, part);
        }
        layout.targets.sort_by_key(|target| (target.tensor.named.unit, target.tensor.named.start));
        layout
    }

    /// Adds a file of these tensors, the wider ones first, so that each begins at a multiple of its width.
    fn add(&mut self, name: String, mut part: Vec<Exported>) {
        part.sort_by_key(|tensor| core::cmp::Reverse(tensor.kind.bytes()));
        let mut end = 0;
        let infos = part.iter().map(|tensor| {
            let start = end;
            end += bytes(tensor) as usize;
            let shape = tensor.named.published_shape();
            (tensor.name.clone(), TensorInfo { dtype: tensor.kind.dtype(), shape, data_offsets: (start, end) })
        });
        let infos: Vec<_> = infos.collect();
        let starts: Vec<u64> = infos.iter().map(|(_, info)| info.data_offsets.0 as u64).collect();
        let told = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let metadata = Metadata::new(Some(told), infos).expect("tensors one after another");
        let mut header = serde_json::to_vec(&metadata).expect("names, numbers and types");
        // As the crate `safetensors` does, so that data begins at a multiple of 8.
        header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
        let head = [&(header.len() as u64).to_le_bytes()[..], &header].concat();
        let file = self.files.len();
        let first = head.len() as u64;
        let placed = part.into_iter().zip(starts);
        self.targets.extend(placed.map(|(tensor, start)| Target { tensor, file, start_bytes: first + start }));
        self.files.push(Planned { name, bytes: first + end as u64, head });
        self.total_size += end as u64;
    }

    /// The index of several files; none if there is only one.
    pub fn index(&self) -> Option<Vec<u8>> {
        if self.files.len() < 2 {
            return None;
        }
        let file = |target: &Target| (target.tensor.name.clone(), self.files[target.file].name.clone());
        let weight_map: BTreeMap<String, String> = self.targets.iter().map(file).collect();
        let index = json!({ "metadata": { "total_size": self.total_size }, "weight_map": weight_map });
        Some(serde_json::to_vec_pretty(&index).expect("names and a number"))
    }

    /// Bytes of all files of tensors.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, len: usize, start: usize, kind: WeightType) -> Exported {
        let named =
            NamedTensor { name: name.to_owned(), shape: vec![len], transposed: false, unit: 0, start, is_alias: false };
        Exported { name: name.to_owned(), named, kind }
    }

    #[test]
    fn tensors_fill_files_in_order_and_wide_ones_come_first() {
        let tensors = || {
            let narrow = tensor("a", 3, 0, WeightType::BF16);
            vec![narrow, tensor("b", 2, 3, WeightType::F32), tensor("c", 1, 5, WeightType::F32)]
        };
        let one = Layout::new(tensors(), 18);
        assert_eq!((one.files.len(), one.index()), (1, None));
        assert_eq!(one.files[0].name, "model.safetensors");
        let head = one.files[0].head.len() as u64;
        assert!(head.is_multiple_of(8) && one.file_bytes() == head + 18, "{head}");
        let starts: Vec<u64> = one.targets.iter().map(|target| target.start_bytes - head).collect();
        assert_eq!(starts, [12, 0, 8]);

        let two = Layout::new(tensors(), 17);
        let names: Vec<&str> = two.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]);
        let index: serde_json::Value = serde_json::from_slice(&two.index().expect("two files")).expect("JSON");
        assert_eq!(index["metadata"]["total_size"], 18);
        assert_eq!(index["weight_map"]["b"], names[0]);
        assert_eq!(index["weight_map"]["c"], names[1]);
    }

    #[test]
    fn a_tensor_longer_than_a_file_has_one_of_its_own() {
        let tensors = vec![tensor("a", 9, 0, WeightType::F32), tensor("b", 1, 9, WeightType::F32)];
        assert_eq!(Layout::new(tensors, 8).files.len(), 2);
    }
}
