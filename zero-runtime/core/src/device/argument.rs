//! Argument: arguments of ops other than views: how to write, what follows, which nonlinearity, how a tensor is laid
//! out. Never computes.

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

/// An operation on a result before it leaves the cache, equivalent to the op of the same name afterwards. A
/// nonlinearity gives the same bits. A sum may be computed before the result is rounded, so that both are rounded once.
pub enum Then<'a, D, E> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result is written to another place; the result itself stays, for backward.
    Activate(Nonlinearity, ViewMut<'a, D, E>),
    /// The view is added to the result.
    Add(View<'a, D, E>),
}

impl<D: Device, E: Element> Then<'_, D, E> {
    /// Applies the operation to a result that is already in memory.
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
    /// Whether it stands for its transpose.
    pub transposed: bool,
}

impl<D, E> Clone for Matrix<'_, D, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, E> Copy for Matrix<'_, D, E> {}

impl<'a, D, E> Matrix<'a, D, E> {
    /// The matrix as stored.
    pub fn new(view: View<'a, D, E>, rows: usize, cols: usize) -> Self {
        Self { view, rows, cols, transposed: false }
    }

    /// Its transpose, of the same elements.
    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// Rows and columns, after the transpose if there is one.
    pub fn size(&self) -> [usize; 2] {
        if self.transposed { [self.cols, self.rows] } else { [self.rows, self.cols] }
    }
}

/// Which nonlinearity; the formulas are PyTorch's. NaN gives NaN, except in the derivative of [`Nonlinearity::Relu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonlinearity {
    /// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): `gelu(approximate="tanh")`.
    Gelu,
    /// max(x, 0); the derivative at 0 is 0.
    Relu,
    /// x sigmoid(x), also called swish.
    Silu,
}

/// Rows within wider rows: row i is `view[i * stride ..][.. width]`, where the op says the width. The last row need not
/// be followed by a whole stride.
pub struct Strided<'a, D, E> {
    /// The elements, from the first row on.
    pub view: View<'a, D, E>,
    /// Elements from the start of one row to the start of the next: at least the width.
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

/// [`Strided`] rows that may be written; the elements between them stay as they are.
pub struct StridedMut<'a, D, E> {
    /// The elements, from the first row on.
    pub view: ViewMut<'a, D, E>,
    /// Elements from the start of one row to the start of the next: at least the width.
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

/// The sizes of the tensors of attention; tokens = `sequences` x `length`.
///
/// Queries are (tokens, `heads` x `head_dim`), keys and values (`sequences` x (`before` + `length`), `key_heads` x
/// `head_dim`): sequence by sequence, with the heads of a row one after another. Each head of keys and values is shared
/// by the same number of consecutive heads: head i uses number i / (`heads` / `key_heads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Sequences in the batch; none sees another.
    pub sequences: usize,
    /// Tokens of each sequence that have queries.
    pub length: usize,
    /// Earlier tokens of each sequence, which have only keys and values. 0 in training.
    pub before: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values: a divisor of `heads`, or `heads` itself.
    pub key_heads: usize,
    /// Width of one head's queries, keys and values, at most [`Kernels::HEAD_DIM_MAX`](super::Kernels::HEAD_DIM_MAX).
    pub head_dim: usize,
    /// How many tokens a token sees at most, itself included: token i sees token j where 0 <= i - j < window, which is
    /// Hugging Face's `sliding_window`. At least 1. Without a window, a token sees all tokens before it.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// Tokens that have queries, in all sequences.
    #[inline]
    pub fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// Tokens of one sequence that have keys and values.
    #[inline]
    pub fn keys(&self) -> usize {
        self.before + self.length
    }

    /// Elements of a row of queries, and of `out`.
    #[inline]
    pub fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a row of keys, and of values.
    #[inline]
    pub fn key_width(&self) -> usize {
        self.key_heads * self.head_dim
    }

    /// Elements of a row that has a token's queries, then its keys, then its values.
    #[inline]
    pub fn qkv_width(&self) -> usize {
        self.out_width() + 2 * self.key_width()
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
    /// If `key_heads` does not divide `heads`.
    #[track_caller]
    #[inline]
    pub fn sharing(&self) -> usize {
        let Self { heads, key_heads, .. } = *self;
        assert!(key_heads > 0 && heads % key_heads == 0, "{heads} heads cannot share {key_heads} heads of keys");
        heads / key_heads
    }
}
