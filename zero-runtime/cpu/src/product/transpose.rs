//! Transpose of a square of words, to pack a matrix that is contiguous in the other direction. Never changes a word.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m256, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps,
    _mm256_unpacklo_ps,
};

use super::pack::SIDE;

/// Exchanges rows and columns.
#[inline(always)]
pub fn transpose(rows: &mut [[u32; SIDE]; SIDE]) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        return unsafe { by_vectors(rows) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx") {
        // SAFETY: the instructions are there.
        return unsafe { by_quarters(rows) };
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

/// Transposes each quarter, and exchanges the two beside the diagonal.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn by_quarters(rows: &mut [[u32; SIDE]; SIDE]) {
    const HALF: usize = SIDE / 2;
    for (row, col) in [(0, 0), (0, HALF), (HALF, HALF)] {
        // SAFETY: half a row is as long as a vector.
        let quarter = |row: usize, col: usize| unsafe {
            transposed(core::array::from_fn(|i| _mm256_loadu_ps(rows[row + i][col..].as_ptr().cast())))
        };
        let (one, other) = (quarter(row, col), quarter(col, row));
        for i in 0..HALF {
            // SAFETY: as above.
            unsafe {
                _mm256_storeu_ps(rows[col + i][row..].as_mut_ptr().cast(), one[i]);
                _mm256_storeu_ps(rows[row + i][col..].as_mut_ptr().cast(), other[i]);
            }
        }
    }
}

/// Interleaves neighbouring rows, then pairs of them, then halves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn transposed(rows: [__m256; SIDE / 2]) -> [__m256; SIDE / 2] {
    let neighbours = |i: usize| match i % 2 {
        0 => _mm256_unpacklo_ps(rows[i], rows[i + 1]),
        _ => _mm256_unpackhi_ps(rows[i - 1], rows[i]),
    };
    let neighbours: [_; SIDE / 2] = core::array::from_fn(neighbours);
    let pairs: [_; SIDE / 2] = core::array::from_fn(|i| {
        let from = i / 4 * 4 + i % 4 / 2;
        let (one, other) = (neighbours[from], neighbours[from + 2]);
        if i % 2 == 0 { _mm256_shuffle_ps::<0x44>(one, other) } else { _mm256_shuffle_ps::<0xee>(one, other) }
    });
    core::array::from_fn(|i| {
        let (one, other) = (pairs[i % 4], pairs[i % 4 + 4]);
        if i < 4 { _mm256_permute2f128_ps::<0x20>(one, other) } else { _mm256_permute2f128_ps::<0x31>(one, other) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_finds_its_place() {
        let mut all: Vec<fn(&mut [[u32; SIDE]; SIDE])> = vec![transpose, one_by_one];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx") {
            // SAFETY: the instructions are there.
            all.push(|rows| unsafe { by_quarters(rows) });
        }
        for transpose in all {
            let mut words = core::array::from_fn(|row| core::array::from_fn(|col| (row * SIDE + col) as u32));
            transpose(&mut words);
            for (row, words) in words.into_iter().enumerate() {
                assert_eq!(words, core::array::from_fn(|col| (col * SIDE + row) as u32));
            }
        }
    }
}
