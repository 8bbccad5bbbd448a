//! Transpose of a square of words, to pack a matrix that is contiguous in the other direction. Never changes a word.
#![allow(unsafe_code)]

use super::pack::SIDE;

/// Exchanges rows and columns.
#[inline(always)]
pub fn transpose(rows: &mut [[u32; SIDE]; SIDE]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        return unsafe { by_vectors(rows) };
    }
    one_by_one(rows);
}

fn one_by_one(rows: &mut [[u32; SIDE]; SIDE]) {
    for row in 1..SIDE {
        let (above, below) = rows.split_at_mut(row);
        for (col, above) in above.iter_mut().enumerate() {
            std::mem::swap(&mut above[row], &mut below[0][col]);
        }
    }
}

/// Interleaves the lower half of all words with the upper half, four times. Each time, the highest bit of a word's
/// index moves to the end. The index has four bits of its row and then four of its column, so after four times rows are
/// columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn by_vectors(rows: &mut [[u32; SIDE]; SIDE]) {
    use core::arch::x86_64::{_mm512_loadu_si512, _mm512_permutex2var_epi32, _mm512_setr_epi32, _mm512_storeu_si512};
    let halves = [
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
    ];
    // SAFETY: a row is as long as a vector.
    let mut vectors = rows.each_ref().map(|row| unsafe { _mm512_loadu_si512(row.as_ptr().cast()) });
    for _ in 0..SIDE.ilog2() {
        let interleaved =
            |row: usize| _mm512_permutex2var_epi32(vectors[row / 2], halves[row % 2], vectors[row / 2 + SIDE / 2]);
        vectors = core::array::from_fn(interleaved);
    }
    for (row, vector) in rows.iter_mut().zip(vectors) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_finds_its_place() {
        for transpose in [transpose, one_by_one] {
            let mut words = core::array::from_fn(|row| core::array::from_fn(|col| (row * SIDE + col) as u32));
            transpose(&mut words);
            for (row, words) in words.into_iter().enumerate() {
                assert_eq!(words, core::array::from_fn(|col| (col * SIDE + row) as u32));
            }
        }
    }
}
