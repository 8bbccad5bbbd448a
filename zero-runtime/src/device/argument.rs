//! Argument: what ops take beside views: how to write, what follows, which nonlinearity, how a tensor is laid out. Never
//! computes.

use super::{Device, Element};
use crate::view::{View, ViewMut};

/// Whether a result overwrites its destination or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Overwrites.
    Set,
    /// Adds.
    Add,
}

/// What is done to a result before it leaves the cache: to the bit what the op of that name does to it afterwards.
pub enum Then<'a, D, E> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result goes to another place; the result stays too, for backward.
    Activate(Nonlinearity, ViewMut<'a, D, E>),
    /// As much is added to the result.
    Add(View<'a, D, E>),
}

impl<D: Device, E: Element> Then<'_, D, E> {
    /// Does it to a result that is there already.
    pub fn apply(self, device: &D, result: ViewMut<D, E>) {
        match self {
            Then::Nothing => {}
            Then::Activate(kind, to) => device.activate(kind, result.as_view(), to),
            Then::Add(other) => device.add(result, other),
        }
    }
}

/// A row-major (rows, cols) matrix, or the transpose of one.
pub struct Matrix<'a, D, E> {
    /// The elements.
    pub view: View<'a, D, E>,
    /// Rows as stored.
    pub rows: usize,
    /// Columns as stored.
    pub cols: usize,
    /// Whether its transpose is meant.
    pub transposed: bool,
}

impl<'a, D, E> Matrix<'a, D, E> {
    /// The matrix as stored.
    pub fn new(view: View<'a, D, E>, rows: usize, cols: usize) -> Self {
        Self { view, rows, cols, transposed: false }
    }

    /// Its transpose, of the same elements.
    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// Rows and columns of the matrix that is meant.
    pub fn size(&self) -> [usize; 2] {
        if self.transposed { [self.cols, self.rows] } else { [self.rows, self.cols] }
    }
}

/// Which nonlinearity; the formulas are PyTorch's. NaN gives NaN, but for the derivative of [`Nonlinearity::Relu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonlinearity {
    /// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): `gelu(approximate="tanh")`.
    Gelu,
    /// max(x, 0); the derivative at 0 is 0.
    Relu,
    /// x sigmoid(x), also called swish.
    Silu,
}

/// Rows that lie among others: row i is `view[i * stride ..][.. width]`, where the op says the width. The last row need not
/// be followed by a whole stride.
pub struct Strided<'a, D, E> {
    /// The elements from those of the first row on.
    pub view: View<'a, D, E>,
    /// Elements from the start of a row to that of the next; the width, or more.
    pub stride: usize,
}

impl<D, E> Clone for Strided<'_, D, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, E> Copy for Strided<'_, D, E> {}

impl<'a, D, E> Strided<'a, D, E> {
    /// Rows that start `stride` elements after one another.
    pub fn new(view: View<'a, D, E>, stride: usize) -> Self {
        Self { view, stride }
    }

    /// The rows without their first `columns` elements.
    pub fn after(self, columns: usize) -> Self {
        Self { view: self.view.split_at(columns.min(self.view.len())).1, ..self }
    }
}

/// [`Strided`] rows that may be written; what lies between them is left as it is.
pub struct StridedMut<'a, D, E> {
    /// The elements from those of the first row on.
    pub view: ViewMut<'a, D, E>,
    /// Elements from the start of a row to that of the next; the width, or more.
    pub stride: usize,
}

impl<'a, D, E> StridedMut<'a, D, E> {
    /// Rows that start `stride` elements after one another.
    pub fn new(view: ViewMut<'a, D, E>, stride: usize) -> Self {
        Self { view, stride }
    }

    /// The rows without their first `columns` elements.
    pub fn after(self, columns: usize) -> Self {
        let at = columns.min(self.view.len());
        Self { view: self.view.split_at(at).1, ..self }
    }

    /// The same rows for a shorter time.
    pub fn reborrow(&mut self) -> StridedMut<'_, D, E> {
        StridedMut { view: self.view.reborrow(), stride: self.stride }
    }

    /// The same rows, to read.
    pub fn as_view(&self) -> Strided<'_, D, E> {
        Strided { view: self.view.as_view(), stride: self.stride }
    }
}

/// What the tensors of attention measure; tokens = `sequences` x `length`.
///
/// Queries are (tokens, `heads` x `head_dim`), keys and values (`sequences` x (`before` + `length`), `key_heads` x
/// `head_dim`): sequence by sequence, in a row one head after another. Equally many consecutive heads share each head of keys
/// and values: head i takes number i / (`heads` / `key_heads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Sequences in the batch; none sees another.
    pub sequences: usize,
    /// Tokens of each sequence that ask: those that have queries.
    pub length: usize,
    /// Tokens of each sequence before those, of which there are keys and values alone. 0 in training.
    pub before: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values: a divisor of `heads`, or `heads` itself.
    pub key_heads: usize,
    /// Width of one head's queries, keys and values, [`Device::HEAD_DIM_MAX`] at most.
    pub head_dim: usize,
    /// How many tokens one sees at most, itself the last of them: token i sees token j where 0 <= i - j < window, which is
    /// what Hugging Face calls `sliding_window`. At least 1. Without one, a token sees all that are before it.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// Tokens that ask, of all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// Tokens of one sequence that have keys and values.
    pub fn keys(&self) -> usize {
        self.before + self.length
    }

    /// Elements of a row of queries, and of `out`.
    pub fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a row of keys, and of values.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.head_dim
    }

    /// Elements of a row that has a token's queries, then its keys, then its values.
    pub fn qkv_width(&self) -> usize {
        self.out_width() + 2 * self.key_width()
    }

    /// Bytes of the room that fused kernels work in. In f32, for each query of each head: two sums, and what its gradient is
    /// summed in; where heads share keys, as much for those of keys and values, of each head apart. For each head of a sequence,
    /// counts by which blocks take turns; and lines at which all these begin. It does not grow with the square of the length.
    /// Where no number holds it, the largest one.
    pub const fn fused_bytes(&self) -> usize {
        const COUNTS: usize = 16;
        const LINES: usize = 4096;
        let accumulated = self.head_dim.saturating_mul(if self.key_heads == self.heads { 1 } else { 2 });
        let of_query = accumulated.saturating_add(2).saturating_mul(size_of::<f32>());
        let of_head = self.length.saturating_mul(of_query).saturating_add(COUNTS);
        of_head.saturating_mul(self.sequences).saturating_mul(self.heads).saturating_add(LINES)
    }

    /// The queries, the keys and the values of rows that have all three.
    pub fn parts<'a, D, E>(&self, qkv: View<'a, D, E>) -> [Strided<'a, D, E>; 3] {
        let queries = Strided::new(qkv, self.qkv_width());
        let keys = queries.after(self.out_width());
        [queries, keys, keys.after(self.key_width())]
    }

    /// Heads that share a head of keys and values.
    ///
    /// # Panics
    /// If there are not equally many for each.
    #[track_caller]
    pub fn sharing(&self) -> usize {
        let Self { heads, key_heads, .. } = *self;
        assert!(key_heads > 0 && heads % key_heads == 0, "{heads} heads cannot share {key_heads} heads of keys");
        heads / key_heads
    }
}
