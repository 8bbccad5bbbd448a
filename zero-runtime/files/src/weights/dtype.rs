//! Dtype: the types in which parameters are published, and conversions of their numbers to f32 and back. Never touches
//! a file.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use half::{bf16, f16};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use zero_core::device::Element;

/// A type that parameters are published in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightType {
    /// The upper half of an f32.
    BF16,
    /// The half precision of IEEE 754, up to 65504.
    F16,
    /// All of an f32.
    F32,
}

// Not derived: clap would take the docs of the variants, and show the whole help in its long form.
impl ValueEnum for WeightType {
    fn value_variants<'a>() -> &'a [Self] {
        &[WeightType::BF16, WeightType::F16, WeightType::F32]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

impl WeightType {
    /// The type that a file names, if it is one of these.
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::BF16 => Some(WeightType::BF16),
            Dtype::F16 => Some(WeightType::F16),
            Dtype::F32 => Some(WeightType::F32),
            _ => None,
        }
    }

    /// Its name in a file of tensors.
    pub(super) fn dtype(self) -> Dtype {
        match self {
            WeightType::BF16 => Dtype::BF16,
            WeightType::F16 => Dtype::F16,
            WeightType::F32 => Dtype::F32,
        }
    }

    /// Its name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::BF16 => "bf16",
            WeightType::F16 => "f16",
            WeightType::F32 => "f32",
        }
    }

    /// Its name in `config.json`.
    pub(super) fn config_name(self) -> &'static str {
        match self {
            WeightType::BF16 => "bfloat16",
            WeightType::F16 => "float16",
            WeightType::F32 => "float32",
        }
    }

    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            WeightType::BF16 | WeightType::F16 => 2,
            WeightType::F32 => 4,
        }
    }

    /// The numbers that little-endian bytes stand for, exactly: number `i` goes to `values[first + i * step]`.
    pub fn decode(self, bytes: &[u8], values: &mut [f32], first: usize, step: usize) {
        let places = values[first..].iter_mut().step_by(step);
        match self {
            WeightType::F32 => {
                places.zip(bytes.as_chunks().0).for_each(|(value, &bytes)| *value = f32::from_le_bytes(bytes));
            }
            WeightType::BF16 => {
                let numbers = bytes.as_chunks().0.iter().map(|&bytes| bf16::from_le_bytes(bytes).widen());
                places.zip(numbers).for_each(|(value, number)| *value = number);
            }
            WeightType::F16 => {
                let numbers = bytes.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32());
                places.zip(numbers).for_each(|(value, number)| *value = number);
            }
        }
    }

    /// Appends the bytes of numbers, each rounded to the nearest in this type.
    ///
    /// # Errors
    /// The index of the first finite number that becomes infinite.
    pub(super) fn encode(self, values: impl Iterator<Item = f32>, bytes: &mut Vec<u8>) -> Result<(), usize> {
        for (index, value) in values.enumerate() {
            let is_finite = match self {
                WeightType::F32 => {
                    bytes.extend(value.to_le_bytes());
                    true
                }
                WeightType::BF16 => {
                    let number = <bf16 as Element>::narrow(value);
                    bytes.extend(number.to_le_bytes());
                    number.is_finite()
                }
                WeightType::F16 => {
                    let number = f16::from_f32(value);
                    bytes.extend(number.to_le_bytes());
                    number.is_finite()
                }
            };
            if !is_finite && value.is_finite() {
                return Err(index);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_16_bits_comes_back() {
        for kind in [WeightType::BF16, WeightType::F16] {
            let numbers: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let mut values = vec![0.0; 1 << 16];
            kind.decode(&numbers, &mut values, 0, 1);
            assert_eq!(values[0x3c00], if kind == WeightType::F16 { 1.0 } else { 0.0078125 });
            let mut again = Vec::new();
            kind.encode(values.iter().copied(), &mut again).expect("no finite number becomes infinite");
            for ((bits, value), (old, new)) in (0..).zip(&values).zip(numbers.chunks(2).zip(again.chunks(2))) {
                // Signaling NaNs become quiet.
                assert!(old == new || value.is_nan(), "{kind:?}: {bits:x}");
            }
        }
    }

    #[test]
    fn numbers_go_to_every_so_many_places() {
        let mut values = [9.0; 6];
        let bytes: Vec<u8> = [1f32, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        WeightType::F32.decode(&bytes, &mut values, 1, 3);
        assert_eq!(values, [9.0, 1.0, 9.0, 9.0, 2.0, 9.0]);
    }

    #[test]
    fn what_does_not_fit_is_found() {
        let encode = |kind: WeightType, values: &[f32]| kind.encode(values.iter().copied(), &mut Vec::new());
        assert_eq!(encode(WeightType::F16, &[1.0, f32::INFINITY, 65504.0, 65536.0]), Err(3));
        assert_eq!(encode(WeightType::BF16, &[65536.0, f32::MAX]), Err(1));
        assert_eq!(encode(WeightType::F32, &[f32::MAX, f32::NAN]), Ok(()));
    }
}
