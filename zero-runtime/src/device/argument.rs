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

/// What the tensors of attention measure; tokens = `sequences` x `length`.
///
/// A row of `qkv` belongs to one token: its queries, `heads` x `head_dim`, then its keys, then its values, `key_heads` x
/// `head_dim` each; heads lie one after another. Equally many consecutive heads share each head of keys and values: head i
/// takes number i / (`heads` / `key_heads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences in the batch; none sees another.
    pub sequences: usize,
    /// Tokens in each sequence.
    pub length: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values: a divisor of `heads`, or `heads` itself.
    pub key_heads: usize,
    /// Width of one head's queries, keys and values, [`Device::HEAD_DIM_MAX`] at most.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// Elements of a row of `out`.
    pub fn out_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a row of `qkv`.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.head_dim
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
