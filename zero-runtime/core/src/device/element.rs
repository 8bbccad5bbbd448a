//! Element: how a number is stored: as f32, or as bf16 in half the bytes. Never computes: all arithmetic is in f32.

pub use half::bf16;

use bytemuck::Pod;
use zero_plan::Width;

/// A type as which a number is stored.
pub trait Element: Pod + Send + Sync {
    /// Its name in a plan.
    const WIDTH: Width;
    /// The number, exactly.
    fn widen(self) -> f32;
    /// The nearest number that can be stored; a tie goes to the one whose last bit is 0. NaN stays NaN.
    fn narrow(number: f32) -> Self;
}

impl Element for f32 {
    const WIDTH: Width = Width::F32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        number
    }
}

/// A bf16 is the upper half of an f32. The conversions of `half` are not used because they are not always inlined,
/// which a vectorised loop needs.
impl Element for bf16 {
    const WIDTH: Width = Width::BF16;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        Self::from_bits((rounded(number) >> 16) as u16)
    }
}

/// Bits whose upper half is the nearest bf16.
#[inline(always)]
fn rounded(number: f32) -> u32 {
    let bits = number.to_bits();
    let last_kept = (bits >> 16) & 1;
    // Carries into the upper half just above a tie and beyond, and at a tie if the last bit kept is 1.
    let rounded = bits.wrapping_add(0x7fff + last_kept);
    // A NaN whose fraction bits all lie in the lower half would become an infinity, so the quiet bit is set.
    let quiet = bits | 0x40_0000;
    if number.is_nan() { quiet } else { rounded }
}

/// [`Element::widen`] of two elements that share a word.
#[inline(always)]
pub fn widen_pair(pair: [bf16; 2]) -> [f32; 2] {
    let word: u32 = bytemuck::cast(pair);
    let numbers = [word << 16, word & 0xffff_0000].map(f32::from_bits);
    if cfg!(target_endian = "little") { numbers } else { [numbers[1], numbers[0]] }
}

/// [`Element::narrow`] of two elements that share a word.
#[inline(always)]
pub fn narrow_pair(numbers: [f32; 2]) -> [bf16; 2] {
    let [low, high] = if cfg!(target_endian = "little") { numbers } else { [numbers[1], numbers[0]] };
    bytemuck::cast((rounded(low) >> 16) | (rounded(high) & 0xffff_0000))
}

/// The same elements as type `To`, if that is their type: for generic code that has a faster path for one width.
#[inline(always)]
pub fn known<From: Element, To: Element>(elements: &[From]) -> Option<&[To]> {
    (From::WIDTH == To::WIDTH).then(|| bytemuck::cast_slice(elements))
}

/// [`known`], for elements to write.
pub fn known_mut<From: Element, To: Element>(elements: &mut [From]) -> Option<&mut [To]> {
    (From::WIDTH == To::WIDTH).then(|| bytemuck::cast_slice_mut(elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            let (stored, wide) = (bf16::from_bits(bits), bf16::from_bits(bits).widen());
            assert_eq!(wide.is_nan(), stored.is_nan(), "{bits:#06x}");
            if !wide.is_nan() {
                assert_eq!(wide.to_bits(), stored.to_f32().to_bits(), "{bits:#06x}");
                assert_eq!(bf16::narrow(wide).to_bits(), bits, "{bits:#06x}");
            }
        }
    }

    /// Against `half`, at every upper half: on it, off it by one bit, and at, below and above the tie.
    #[test]
    fn narrowing_matches_an_independent_implementation() {
        for upper in 0..=u32::from(u16::MAX) {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let wide = f32::from_bits((upper << 16) | lower);
                let (found, expected) = (bf16::narrow(wide), bf16::from_f32(wide));
                assert_eq!(found.to_bits(), expected.to_bits(), "{:#010x}", wide.to_bits());
            }
        }
    }

    #[test]
    fn a_pair_is_as_its_elements() {
        let wide =
            [0x3f81_8000, 1, 0x0000_8001, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x7f7f_8000].map(f32::from_bits);
        for first in wide {
            for second in wide {
                let pair = [first, second].map(bf16::narrow);
                let bits = |pair: [bf16; 2]| pair.map(bf16::to_bits);
                assert_eq!(bits(narrow_pair([first, second])), bits(pair));
                assert_eq!(widen_pair(pair).map(f32::to_bits), pair.map(|x| x.widen().to_bits()));
            }
        }
    }

    #[test]
    fn narrowing_at_its_edges() {
        let narrow = |bits: u32| bf16::narrow(f32::from_bits(bits)).to_bits();
        assert_eq!([0x3f80_8000, 0x3f81_8000].map(narrow), [0x3f80, 0x3f82], "ties go to the even neighbour");
        assert_eq!([0x3f80_8001, 0x3f81_7fff].map(narrow), [0x3f81, 0x3f81], "all else to the nearer");
        assert_eq!([0, 0x8000_0000].map(narrow), [0, 0x8000], "zeros keep their sign");
        assert_eq!([1, 0x0000_8000, 0x0000_8001, 0x007f_8000].map(narrow), [0, 0, 1, 0x80], "subnormals are kept");
        assert_eq!([0x7f7f_7fff, 0x7f7f_8000].map(narrow), [0x7f7f, 0x7f80], "beyond the largest is infinite");
        assert_eq!([0x7f80_0000, 0xff80_0000].map(narrow), [0x7f80, 0xff80], "infinities stay");
        assert_eq!([0x7f80_0001, 0xffff_ffff].map(narrow), [0x7fc0, 0xffff], "NaN stays NaN");
    }
}
