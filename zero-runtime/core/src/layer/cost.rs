//! Cost: how layers count their work, and the faults of their dimensions, in constants. Never wraps around: a size that
//! is too large to count stops the build.

use zero_plan::{Message, OrthogonalCost};

pub use crate::checked::{bytes, product, sum};
use crate::orthogonal::{operations, room_bytes};

/// Operations of one exponential: about as many as it takes on the processor.
pub const EXP: usize = 20;

/// Operations of a softmax, for each element: the largest, a difference, an exponential and a sum.
pub const SOFTMAX: usize = EXP + 3;

/// Operations of the forward of an attention: queries by keys and scores by values, 2 for each element and key that a
/// token sees; and the softmax of the scores. Scores that the causal mask hides are counted as well, as they are in published
/// counts (Narayanan et al., 2021, appendix).
pub const fn attending(tokens: usize, keys: usize, heads: usize, head_dim: usize) -> usize {
    sum(&[product(&[4, tokens, keys, heads, head_dim]), product(&[tokens, keys, heads, SOFTMAX])])
}

/// A (rows, columns) matrix that Muon orthogonalizes, where layers compute in `E`: for `MATRICES` of a layer.
///
/// # Panics
/// Z0210 if a `usize` cannot hold its sizes; in a constant, that is a build error.
#[track_caller]
pub const fn matrix<E>(shape: [usize; 2]) -> OrthogonalCost {
    let operations = operations(shape);
    OrthogonalCost { room_bytes: room_bytes::<E>(shape), operations, operations_max: operations }
}

/// The fault of a layer with a dimension of 0, whose tensors would have no elements.
pub(super) const fn empty(layer: &str, dimensions: &[(&str, usize)]) -> Option<Message> {
    let mut i = 0;
    while i < dimensions.len() {
        let (dimension, size) = dimensions[i];
        if size == 0 {
            let message = Message::new().text("[Z0207] the ").text(dimension).text(" of ").text(layer);
            return Some(message.text(" is 0, which leaves it tensors without elements: make it 1 or more"));
        }
        i += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::either;

    #[test]
    fn a_dimension_of_nothing_is_a_fault() {
        assert!(empty("Linear", &[("input width", 1), ("output width", 1)]).is_none());
        let fault = empty("Linear", &[("input width", 1), ("output width", 0)]).unwrap();
        assert!(fault.as_str().starts_with("[Z0207] the output width of Linear is 0,"));
        let other = empty("Norm", &[("width", 0)]);
        assert!(either(Some(fault), other).unwrap().as_str().contains("Linear"));
        assert!(either(None, other).unwrap().as_str().contains("Norm"));
    }
}
