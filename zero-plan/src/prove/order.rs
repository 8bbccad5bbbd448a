//! Order: proves that sums along an axis are made along the tree of all its ranks, whichever rank adds which part.
//! Looks at the terms that ops read, one after another, before they write a sum.

use super::Ranks;
use crate::mesh::{Axis, Coordinates};
use crate::place::{Access, Content, Gradients};
use crate::plan::Plan;
use crate::schedule::Op;
use crate::subtrees::Subtree;

/// The terms that an op has read for a sum that it has not written yet.
pub(super) struct TermsRead<'a> {
    plan: &'a Plan<'a>,
    own: Coordinates,
    /// The axis along which the op sums, if it does.
    sums: Option<Axis>,
    terms: Vec<Subtree>,
    /// Whether the last term read has yet to arrive here, where it is read again.
    arrives: bool,
}

impl<'a> TermsRead<'a> {
    /// The start of an op of the rank at `own`: no terms yet.
    pub fn new(ranks: &Ranks<'a>, op: Op, own: Coordinates) -> Self {
        let plan = ranks.plan;
        // If the transport carries all bytes, an op also reads what it sends, and all terms are in one sum, by rank.
        let sums = match op {
            _ if plan.config.transport.carries() => None,
            Op::Settle { .. } => Some(Axis::Zero),
            Op::Combine { .. } => Some(Axis::Replica),
            Op::Subtotal { axis, .. } => Some(axis),
            _ => None,
        };
        Self { plan, own, sums, terms: Vec::new(), arrives: false }
    }

    /// Processes the next access of the op; returns the rule that it breaks, if any.
    pub fn wrong(&mut self, access: &Access) -> Option<String> {
        let Content::Gradients { of, .. } = access.content else { return None };
        let (mesh, axis) = (&self.plan.config.mesh, self.sums?);
        let subtree = |index: usize| Subtree { first: index, end: index + 1 };
        if access.writes {
            if core::mem::take(&mut self.arrives) {
                return None;
            }
            let whole = match of {
                Gradients::OfSubtree { subtree, .. } | Gradients::OfReplicas(subtree) => subtree,
                _ => Subtree { first: 0, end: mesh.len(axis) },
            };
            let (terms, name) = (core::mem::take(&mut self.terms), axis.name());
            let rule = || format!("the sum over {whole:?} along `{name}` is not made along the tree, but of {terms:?}");
            return (!is_tree(&terms, whole)).then(rule);
        }
        let [own, rank] = [self.own, access.at].map(|at| mesh.rank(at));
        self.arrives = !self.plan.config.reaches(own, rank);
        let term = match of {
            Gradients::Of(data_rank) => subtree(data_rank % mesh.zero),
            Gradients::OfReplica(replica) => subtree(replica),
            Gradients::OfSubtree { subtree, .. } | Gradients::OfReplicas(subtree) => subtree,
            // The sum of earlier rounds, to which the new one is added.
            Gradients::OfAll | Gradients::OfTie | Gradients::OfLastStep => return None,
        };
        if !self.arrives {
            self.terms.push(term);
        }
        None
    }
}

/// Whether terms, each of which is a sum along the tree that splits ranks at the largest power of two, add up to the
/// sum over the ranks of `whole` along that tree.
fn is_tree(terms: &[Subtree], whole: Subtree) -> bool {
    match terms {
        [] => false,
        [term] => *term == whole,
        _ => {
            let middle = whole.first + whole.ranks().next_power_of_two() / 2;
            let (left, right) = terms.split_at(terms.len().next_power_of_two() / 2);
            is_tree(left, Subtree { end: middle, ..whole }) && is_tree(right, Subtree { first: middle, ..whole })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_added_along_the_tree_or_not() {
        let terms = |ends: &[usize]| -> Vec<Subtree> {
            let firsts = core::iter::once(&0).chain(ends);
            firsts.zip(ends).map(|(&first, &end)| Subtree { first, end }).collect()
        };
        for (ends, is_one) in [
            (&[6][..], true),
            (&[1, 2, 3, 4, 5, 6], true),
            (&[2, 4, 6], true),
            (&[4, 6], true),
            (&[2, 3, 4, 6], false),
            (&[3, 6], false),
            (&[2, 6], false),
            (&[2, 4], false),
            (&[], false),
        ] {
            assert_eq!(is_tree(&terms(ends), Subtree { first: 0, end: 6 }), is_one, "{ends:?}");
        }
    }
}
