//! Convert: copies between the widths of stored numbers, exact to f32 and rounded from it. Never computes.

use super::simd::{check_len, vectorised};
use zero_core::device::Element;
use zero_core::device::{known, known_mut};

/// `to` := `from`, rounded to the width of `to`.
pub fn convert<To: Element, From: Element>(to: &mut [To], from: &[From]) {
    check_len("from", from.len(), to.len());
    if let (Some(to), Some(from)) = (known_mut::<_, f32>(to), known::<_, f32>(from)) {
        // The system's copy is fast for large slices too.
        return to.copy_from_slice(from);
    }
    vectorised(
        #[inline(always)]
        || {
            for (to, from) in to.iter_mut().zip(from) {
                *to = To::narrow(from.widen());
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, noise};
    use zero_core::device::bf16;

    /// Noise with the special cases of conversions: a tie, subnormals, infinities, NaN, zeros.
    fn awkward(len: usize) -> Vec<f32> {
        let special = [0x3f81_8000, 1, 0x0000_8001, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x8000_0000, 0x7f7f_ffff];
        let mut x = noise(len, 1);
        for (i, x) in x.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
            *x = f32::from_bits(special[i / 3 % special.len()]);
        }
        x
    }

    #[test]
    fn vectors_convert_as_their_elements_do() {
        for len in LENGTHS {
            let wide = awkward(len);
            let mut stored = vec![bf16::ZERO; len];
            convert(&mut stored, &wide);
            let expected: Vec<_> = wide.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
            assert_eq!(stored.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), expected);
            let mut back = vec![0.0f32; len];
            convert(&mut back, &stored);
            let expected: Vec<_> = stored.iter().map(|x| x.to_f32().to_bits()).collect();
            assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn f32_is_copied_bit_for_bit() {
        let from = awkward(65);
        let mut to = vec![0.0f32; 65];
        convert(&mut to, &from);
        assert!(to.iter().zip(&from).all(|(to, from)| to.to_bits() == from.to_bits()));
    }

    #[test]
    #[should_panic(expected = "`from` has 3 elements, expected 2")]
    fn lengths_must_agree() {
        convert(&mut [bf16::ZERO; 2], &[0.0f32; 3]);
    }
}
