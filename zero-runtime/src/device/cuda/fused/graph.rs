//! Graph: attention and its gradients as operations of cuDNN, on the tensors in their own layout. Never chooses how
//! they are computed.

use std::ffi::c_int;
use std::fmt;
use std::rc::Rc;

use super::descriptor::{DataType, Descriptor, Flag, Pointwise};
use crate::device::AttentionShape;
use crate::device::cuda::library::Dnn;

/// Kinds of `cudnnBackendDescriptorType_t`.
const GRAPH: c_int = 15;
const TENSOR: c_int = 17;
const ATTENTION: c_int = 41;
const ATTENTION_BACKWARD: c_int = 43;
const BAND_MASK: c_int = 44;

/// Names of `cudnnBackendAttributeName_t`: of a graph and of a tensor.
const GRAPH_OPERATIONS: c_int = 801;
const TENSOR_ALIGNMENT: c_int = 900;
const TENSOR_TYPE: c_int = 901;
const TENSOR_SIZES: c_int = 902;
const TENSOR_STRIDES: c_int = 903;
const TENSOR_ID: c_int = 906;
const TENSOR_IS_VIRTUAL: c_int = 907;
const TENSOR_IS_BY_VALUE: c_int = 908;

/// Of a mask: its input, its left bound, the value for hidden scores, its output, and its comparison.
const MASK_INPUT: c_int = 3000;
const MASK_LEFT_BOUND: c_int = 3003;
const MASK_HIDDEN: c_int = 3005;
const MASK_OUTPUT: c_int = 3006;
const MASK_COMPARISON: c_int = 3007;

const FLOAT: DataType = DataType(0);
const BF16: DataType = DataType(9);

/// Comparisons of a token's place with a bound: above it, and no less than it.
const ABOVE: Pointwise = Pointwise(302);
const NO_LESS: Pointwise = Pointwise(303);

/// Every tensor begins at a multiple of this many bytes: a line of the plan is longer.
pub(super) const ALIGNMENT: usize = 16;

/// The tensors of attention, by the numbers that tell the library which tensor an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum FusedTensor {
    Queries = 1,
    Keys,
    Values,
    Output,
    Statistics,
    Scale,
    QueryGradients,
    KeyGradients,
    ValueGradients,
    OutputGradients,
    Hidden,
    Window,
    Scores,
    Causal,
    Seen,
}

/// The properties that decide how attention is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FusedShape {
    pub shape: AttentionShape,
    /// Strides of the rows of queries, keys and values.
    pub strides: [usize; 3],
    pub is_backward: bool,
}

impl fmt::Display for FusedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionShape { sequences, length, heads, key_heads, head_dim, window, .. } = self.shape;
        let what = if self.is_backward { "gradients of attention" } else { "attention" };
        write!(f, "{what} of {sequences} sequences of {length} tokens, {heads} heads of {head_dim}")?;
        if key_heads < heads {
            write!(f, " that share {key_heads} of keys")?;
        }
        window.map_or(Ok(()), |window| write!(f, ", within {window} tokens"))
    }
}

impl FusedShape {
    /// The operations.
    pub fn graph(&self, library: &'static Dnn) -> Result<Rc<Descriptor>, String> {
        let operation = FusedGraph { of: self, library }.operation()?;
        Descriptor::new(library, GRAPH)?.with_parts(GRAPH_OPERATIONS, &[&operation])?.finalized()
    }

    /// The largest distance of a token that is seen, plus one; none if only the tokens that follow are hidden.
    pub fn window(&self) -> Option<usize> {
        self.shape.window.filter(|&window| window < self.shape.length)
    }
}

/// Makes the tensors of a graph.
struct FusedGraph<'a> {
    of: &'a FusedShape,
    library: &'static Dnn,
}

/// Where a tensor is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lies {
    OnDevice,
    /// One number, which is read on the host when a plan is executed.
    OnHost,
    Nowhere,
}

impl FusedGraph<'_> {
    fn tensor(
        &self,
        tensor: FusedTensor,
        kind: DataType,
        lies: Lies,
        [sizes, strides]: [[usize; 4]; 2],
    ) -> Result<Rc<Descriptor>, String> {
        let [sizes, strides] = [sizes, strides].map(|numbers| numbers.map(|number| number as i64));
        let made = Descriptor::new(self.library, TENSOR)?
            .with(TENSOR_ID, &[tensor as i64])?
            .with(TENSOR_TYPE, &[kind])?
            .with(TENSOR_SIZES, &sizes)?
            .with(TENSOR_STRIDES, &strides)?
            .with(TENSOR_ALIGNMENT, &[ALIGNMENT as i64])?;
        match lies {
            Lies::OnDevice => made,
            Lies::OnHost => made.with(TENSOR_IS_BY_VALUE, &[Flag(1)])?,
            Lies::Nowhere => made.with(TENSOR_IS_VIRTUAL, &[Flag(1)])?,
        }
        .finalized()
    }

    /// Heads of rows that are `stride` elements apart.
    fn rows(&self, tensor: FusedTensor, heads: usize, stride: usize) -> Result<Rc<Descriptor>, String> {
        let AttentionShape { sequences, length, head_dim, .. } = self.of.shape;
        let strides = [length * stride, head_dim, stride, 1];
        self.tensor(tensor, BF16, Lies::OnDevice, [[sequences, heads, length, head_dim], strides])
    }

    fn number(&self, tensor: FusedTensor) -> Result<Rc<Descriptor>, String> {
        self.tensor(tensor, FLOAT, Lies::OnHost, [[1; 4], [1; 4]])
    }

    /// A number for each query and each key of each head, which is stored nowhere.
    fn scores(&self, tensor: FusedTensor) -> Result<Rc<Descriptor>, String> {
        let AttentionShape { sequences, heads, length, .. } = self.of.shape;
        let strides = [heads * length * length, length * length, length, 1];
        self.tensor(tensor, FLOAT, Lies::Nowhere, [[sequences, heads, length, length], strides])
    }

    /// A log-sum-exp for each query. All kernels of the library read this order, and some read no other.
    fn statistics(&self) -> Result<Rc<Descriptor>, String> {
        let AttentionShape { sequences, heads, length, .. } = self.of.shape;
        let strides = [heads * length, length, 1, 1];
        self.tensor(FusedTensor::Statistics, FLOAT, Lies::OnDevice, [[sequences, heads, length, 1], strides])
    }

    /// A mask of the tokens that a query does not see: those after it, and those before its window. Returns the
    /// operations on scores, and the tensors that go in and come out.
    fn mask(&self) -> Result<(Rc<Descriptor>, [FusedTensor; 2]), String> {
        let (scores, causal) = (self.scores(FusedTensor::Scores)?, self.scores(FusedTensor::Causal)?);
        let hidden = self.number(FusedTensor::Hidden)?;
        let mask = |from, to| {
            let mask = Descriptor::new(self.library, BAND_MASK)?;
            mask.with_parts(MASK_INPUT, &[from])?.with_parts(MASK_HIDDEN, &[&hidden])?.with_parts(MASK_OUTPUT, &[to])
        };
        // The place of a query is no less than that of a token that it sees.
        let mut operations = vec![mask(&scores, &causal)?.with(MASK_COMPARISON, &[NO_LESS])?.finalized()?];
        let mut output = FusedTensor::Causal;
        if self.of.window().is_some() {
            // The place of a token that is seen, plus the window, is above that of the query.
            let (seen, window) = (self.scores(FusedTensor::Seen)?, self.number(FusedTensor::Window)?);
            let mask = mask(&causal, &seen)?.with_parts(MASK_LEFT_BOUND, &[&window])?;
            operations.push(mask.with(MASK_COMPARISON, &[ABOVE])?.finalized()?);
            output = FusedTensor::Seen;
        }
        let operations: Vec<_> = operations.iter().collect();
        let graph = Descriptor::new(self.library, GRAPH)?.with_parts(GRAPH_OPERATIONS, &operations)?.finalized()?;
        Ok((graph, [FusedTensor::Scores, output]))
    }

    fn operation(&self) -> Result<Rc<Descriptor>, String> {
        let AttentionShape { heads, key_heads, .. } = self.of.shape;
        let ([query_stride, key_stride, value_stride], row) = (self.of.strides, self.of.shape.qkv_width());
        // In both operations, the names of queries, keys, values, output, statistics and scale are consecutive, and so
        // are those of the mask, its input and its output.
        let (kind, first, masks) =
            if self.of.is_backward { (ATTENTION_BACKWARD, 2851, 2867) } else { (ATTENTION, 2800, 2811) };
        let (mask, [input, output]) = self.mask()?;
        let operation = Descriptor::new(self.library, kind)?
            .with_parts(first, &[&self.rows(FusedTensor::Queries, heads, query_stride)?])?
            .with_parts(first + 1, &[&self.rows(FusedTensor::Keys, key_heads, key_stride)?])?
            .with_parts(first + 2, &[&self.rows(FusedTensor::Values, key_heads, value_stride)?])?
            .with_parts(first + 3, &[&self.rows(FusedTensor::Output, heads, self.of.shape.out_width())?])?
            .with_parts(first + 4, &[&self.statistics()?])?
            .with_parts(first + 5, &[&self.number(FusedTensor::Scale)?])?
            .with_parts(masks, &[&mask])?
            .with(masks + 1, &[input as i64])?
            .with(masks + 2, &[output as i64])?;
        if !self.of.is_backward {
            return operation.finalized();
        }
        operation
            .with_parts(2859, &[&self.rows(FusedTensor::QueryGradients, heads, row)?])?
            .with_parts(2860, &[&self.rows(FusedTensor::KeyGradients, key_heads, row)?])?
            .with_parts(2861, &[&self.rows(FusedTensor::ValueGradients, key_heads, row)?])?
            .with_parts(2862, &[&self.rows(FusedTensor::OutputGradients, heads, self.of.shape.out_width())?])?
            .finalized()
    }
}
