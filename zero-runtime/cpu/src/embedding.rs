//! Token and position embedding: rows looked up and added. Never hides an id beyond the table.

use super::elementwise::each;
use super::matrix_mut::MatrixMut;
use super::rows::accumulate;
use super::simd::{check_len, divided, vectorised};
use zero_core::device::Element;

/// `out` (tokens, width) := row `ids[t]` of `table` (vocab, width), plus row t % `length` of `positions` (context,
/// width), if there are positions.
///
/// `length` is the length of one sequence; `ids` holds whole sequences.
pub fn embed<E: Element>(ids: &[u32], table: &[E], positions: Option<&[E]>, out: &mut [E], length: usize) {
    let width = check_shapes(ids, table.len(), positions.map(<[E]>::len), out.len(), length);
    vectorised(
        #[inline(always)]
        || {
            for (token, (&id, out)) in ids.iter().zip(out.chunks_exact_mut(width)).enumerate() {
                let word = &table[row(id as usize, width)];
                match positions {
                    Some(positions) => {
                        each(out, [word, &positions[row(token % length, width)]], |_, [word, place]| word + place);
                    }
                    None => out.copy_from_slice(word),
                }
            }
        },
    );
}

/// Adds the gradients of `embed`, given `dout` (tokens, width), to the same columns of `dtable` (vocab, width) and
/// `dpositions` (context, width), token by token.
pub fn embed_backward<E: Element>(
    ids: &[u32],
    dout: &[E],
    mut dtable: MatrixMut<f32>,
    mut dpositions: Option<MatrixMut<f32>>,
    length: usize,
) {
    let (width, columns) = (dtable.row_stride(), dtable.columns());
    let context = dpositions.as_ref().map(|dpositions| dpositions.rows().len() * width);
    check_shapes(ids, dtable.rows().len() * width, context, dout.len(), length);
    check_len("dout", dout.len(), ids.len() * width);
    vectorised(
        #[inline(always)]
        || {
            for (token, (&id, dout)) in ids.iter().zip(dout.chunks_exact(width)).enumerate() {
                let dout = &dout[columns.clone()];
                accumulate(dtable.row(id as usize), dout);
                if let Some(dpositions) = &mut dpositions {
                    accumulate(dpositions.row(token % length), dout);
                }
            }
        },
    );
}

#[inline(always)]
fn row(index: usize, width: usize) -> std::ops::Range<usize> {
    index * width..(index + 1) * width
}

/// The width of a row, from the length of `out` (tokens, width); panics unless the shapes of all slices agree and every
/// id has a row.
#[track_caller]
fn check_shapes(ids: &[u32], table: usize, positions: Option<usize>, out: usize, length: usize) -> usize {
    divided("ids", ids.len(), length);
    let width = divided("out", out, ids.len());
    let vocab = divided("table", table, width);
    if let Some(positions) = positions {
        let context = divided("positions", positions, width);
        assert!(length <= context, "sequences have {length} tokens, expected at most the context, {context}");
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        panic!("token id {id} is not in the vocabulary, expected an id below {vocab}");
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, noise, stored};
    use zero_core::device::bf16;

    const IDS: [u32; 6] = [3, 0, 3, 1, 3, 3];
    const LENGTH: usize = 3;
    const VOCAB: usize = 5;
    const CONTEXT: usize = 4;

    /// [`embed_backward`] of all columns.
    fn backward<E: Element>(ids: &[u32], dout: &[E], dtable: &mut [f32], dpositions: Option<&mut [f32]>, width: usize) {
        let dpositions = dpositions.map(|dpositions| MatrixMut::of_width(dpositions, width));
        embed_backward(ids, dout, MatrixMut::of_width(dtable, width), dpositions, LENGTH);
    }

    fn sums_of_two<E: Element>() {
        for width in LENGTHS {
            let (table, positions) = (stored::<E>(VOCAB * width, 1), stored::<E>(CONTEXT * width, 2));
            let mut out = vec![E::narrow(f32::NAN); IDS.len() * width];
            embed(&IDS, &table, Some(&positions), &mut out, LENGTH);
            for (i, found) in out.iter().enumerate() {
                let (token, column) = (i / width, i % width);
                let word = table[IDS[token] as usize * width + column];
                let expected = E::narrow(word.widen() + positions[token % LENGTH * width + column].widen());
                assert_eq!(found.widen(), expected.widen(), "out[{i}]");
            }
        }
    }

    #[test]
    fn embed_adds_the_token_and_its_position() {
        sums_of_two::<f32>();
        sums_of_two::<bf16>();
    }

    #[test]
    fn gradients_are_summed_as_f32() {
        for width in LENGTHS {
            let dout = stored::<bf16>(IDS.len() * width, 1);
            let wide: Vec<f32> = dout.iter().map(|x| x.widen()).collect();
            let (mut dtable, mut dpositions) = (noise(VOCAB * width, 2), noise(CONTEXT * width, 3));
            let (mut expected, mut expected_too) = (dtable.clone(), dpositions.clone());
            backward(&IDS, &dout, &mut dtable, Some(&mut dpositions), width);
            backward(&IDS, &wide, &mut expected, Some(&mut expected_too), width);
            assert_eq!([dtable, dpositions], [expected, expected_too]);
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        let table = [f32::NAN, f32::INFINITY, 1.0, 1.0, 1.0].map(bf16::narrow);
        let (mut out, mut dtable) = ([bf16::ZERO; 3], [0.0; VOCAB]);
        embed(&[0, 1, 2], &table, Some(&[bf16::ONE, bf16::ONE, bf16::NEG_INFINITY]), &mut out, 3);
        assert!(out[0].widen().is_nan() && out[1..] == [bf16::INFINITY, bf16::NEG_INFINITY], "{out:?}");
        backward(&[0, 1, 2], &out, &mut dtable, None, 1);
        assert!(dtable[0].is_nan() && dtable[1..3] == [f32::INFINITY, f32::NEG_INFINITY], "{dtable:?}");
    }

    #[test]
    fn positions_may_be_absent() {
        let (table, mut out, mut dtable) = (noise(VOCAB, 1), [f32::NAN; 6], [0.0; VOCAB]);
        embed(&IDS, &table, None, &mut out, LENGTH);
        assert_eq!(out, IDS.map(|id| table[id as usize]));
        backward(&IDS, &[1.0; 6], &mut dtable, None, 1);
        assert_eq!(dtable, [1.0, 1.0, 0.0, 4.0, 0.0]);
    }

    #[test]
    fn backward_sums_repeated_ids() {
        let dout = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let (mut dtable, mut dpositions) = ([0.0; VOCAB], [0.0; CONTEXT]);
        backward(&IDS, &dout, &mut dtable, Some(&mut dpositions), 1);
        assert_eq!(dtable, [2.0, 8.0, 0.0, 1.0 + 4.0 + 16.0 + 32.0, 0.0]);
        assert_eq!(dpositions, [9.0, 18.0, 36.0, 0.0]);
        backward(&IDS, &dout, &mut dtable, Some(&mut dpositions), 1);
        assert_eq!((dtable[3], dpositions[2]), (106.0, 72.0));
    }

    #[test]
    #[should_panic(expected = "token id 5 is not in the vocabulary, expected an id below 5")]
    fn an_id_beyond_the_table_is_refused() {
        embed(&[5], &[0.0; VOCAB], Some(&[0.0; CONTEXT]), &mut [0.0], 1);
    }

    #[test]
    #[should_panic(expected = "sequences have 5 tokens, expected at most the context, 4")]
    fn a_sequence_beyond_the_context_is_refused() {
        embed(&[0; 5], &[0.0; VOCAB], Some(&[0.0; CONTEXT]), &mut [0.0; 5], 5);
    }
}
