//! Embeddings: the processor's bits, even for gradients, because each row's tokens are summed in order.

use zero_core::device::{Device, Element, Kernels, Write, bf16};
use zero_core::random::uniform;

use super::{Case, How, MARGIN, Results, Tensor, check, check_in, cuda, ids, noise};

struct Embedding {
    vocabulary: usize,
    width: usize,
    /// Tokens of a sequence, and how many sequences there are.
    length: usize,
    sequences: usize,
    /// The percentage of tokens that are the same id.
    same: usize,
}

impl Embedding {
    fn ids(&self) -> Vec<u32> {
        let draw = |i: u64| (uniform(3, i) * self.vocabulary as f64) as u32;
        let is_same = |i: u64| (uniform(4, i) * 100.0) < self.same as f64;
        let last = self.vocabulary as u32 - 1;
        (0..(self.length * self.sequences) as u64).map(|i| if is_same(i) { last } else { draw(i) }).collect()
    }
}

impl Case for Embedding {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Self { vocabulary, width, length, sequences, .. } = *self;
        let (context, tokens) = (length + 2, length * sequences);
        let named = |what: &str| format!("{what} of {tokens} tokens of {vocabulary}, {width} wide");
        let ids = ids(device, &self.ids());
        let table = Tensor::<D, E>::aligned(device, &noise(vocabulary * width, 1));
        let positions = Tensor::<D, E>::aligned(device, &noise(context * width, 2));
        let dout = Tensor::<D, E>::aligned(device, &noise(tokens * width, 5));
        let mut results = Results::new();
        for has_positions in [false, true] {
            let mut out = Tensor::<D, E>::unwritten(device, tokens * width);
            let positions = has_positions.then(|| positions.view());
            device.embed(ids.view(), table.view(), positions, out.view_mut(), length);
            results.push((named("rows"), How::Bits, out.values(device)));
        }
        for write in [Write::Set, Write::Add] {
            let before = |len| if write == Write::Set { vec![f32::NAN; len] } else { noise(len, 6) };
            let mut dtable = Tensor::<D, f32>::new(device, &before(vocabulary * width), MARGIN);
            let mut dpositions = Tensor::<D, f32>::new(device, &before(context * width), MARGIN);
            let to = Some(dpositions.view_mut());
            device.embed_backward(ids.view(), dout.view(), dtable.view_mut(), to, length, write);
            results.push((named("dtable"), How::Bits, dtable.values(device)));
            results.push((named("dpositions"), How::Bits, dpositions.values(device)));
        }
        results
    }
}

#[test]
fn embeddings_have_the_same_bits() {
    for (vocabulary, width, length, sequences, same) in
        [(1, 1, 1, 1, 0), (5, 33, 3, 7, 0), (70, 64, 31, 5, 30), (300, 17, 17, 65, 5)]
    {
        check(&Embedding { vocabulary, width, length, sequences, same });
    }
}

/// More rows than groups, so that a block has several; more columns than a block; and more tokens of a row than a block collects
/// before it sums.
#[test]
fn embeddings_of_many_rows_and_tokens_have_the_same_bits() {
    // The sizes of GPT-2.
    for width in [768, 1600] {
        check_in::<bf16>(&Embedding { vocabulary: 300, width, length: 5, sequences: 2, same: 3 });
    }
    check_in::<f32>(&Embedding { vocabulary: 2500, width: 1100, length: 40, sequences: 3, same: 20 });
    check_in::<bf16>(&Embedding { vocabulary: 3, width: 5, length: 100, sequences: 50, same: 60 });
    check_in::<f32>(&Embedding { vocabulary: 1100, width: 3, length: 2049, sequences: 2, same: 100 });
}

#[test]
fn an_id_without_a_row_shows_and_touches_nothing() {
    let Some(cuda) = cuda() else { return };
    let ids = ids(&cuda, &[1, u32::MAX, 0, 3]);
    let table = Tensor::<_, f32>::new(&cuda, &noise(3 * 5, 1), 0);
    let (mut out, mut dtable) = (Tensor::<_, f32>::unwritten(&cuda, 20), Tensor::<_, f32>::unwritten(&cuda, 15));
    cuda.embed(ids.view(), table.view(), None, out.view_mut(), 4);
    let out = out.values(&cuda);
    for (token, row) in out.chunks(5).enumerate() {
        assert_eq!(row.iter().all(|x| x.is_nan()), token % 2 == 1, "{out:?}");
    }
    let dout = Tensor::<_, f32>::new(&cuda, &[1.0; 20], 0);
    cuda.embed_backward(ids.view(), dout.view(), dtable.view_mut(), None, 4, Write::Set);
    assert_eq!(dtable.values(&cuda), [[1.0; 5], [1.0; 5], [0.0; 5]].concat());
    assert_eq!(cuda.failure(), None);
}
