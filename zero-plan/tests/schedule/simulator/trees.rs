//! Trees: sums as symbols; each shape of a sum has a unique number. Never adds numbers.

use std::collections::HashMap;

/// The gradient of one unit from one micro-batch of one rank, in one part of its flat buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    pub pass: usize,
    pub unit: usize,
    pub micro_batch: usize,
    pub data_rank: usize,
    pub part: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Leaf(Leaf),
    Sum(Tree, Tree),
    /// The direction that Muon makes of a sum.
    Direction(Tree),
}

/// A sum, as its number. Sums are equal if their leaves and shapes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree(usize);

#[derive(Default)]
pub struct Trees {
    nodes: Vec<Node>,
    numbers: HashMap<Node, Tree>,
}

impl Trees {
    fn number(&mut self, node: Node) -> Tree {
        *self.numbers.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            Tree(self.nodes.len() - 1)
        })
    }

    pub fn leaf(&mut self, leaf: Leaf) -> Tree {
        self.number(Node::Leaf(leaf))
    }

    pub fn sum(&mut self, a: Tree, b: Tree) -> Tree {
        self.number(Node::Sum(a, b))
    }

    pub fn direction(&mut self, sum: Tree) -> Tree {
        self.number(Node::Direction(sum))
    }

    /// Terms added one after another.
    pub fn in_order(&mut self, terms: &[Tree]) -> Tree {
        let (first, rest) = terms.split_first().expect("a sum of something");
        rest.iter().fold(*first, |sum, &term| self.sum(sum, term))
    }

    /// Terms added like those of ranks: the first part has the largest power of two that leaves some for the second.
    pub fn balanced(&mut self, terms: &[Tree]) -> Tree {
        if let [term] = terms {
            return *term;
        }
        let (low, high) = terms.split_at(terms.len().next_power_of_two() / 2);
        let (low, high) = (self.balanced(low), self.balanced(high));
        self.sum(low, high)
    }

    /// The sum as a person reads it.
    pub fn show(&self, tree: Tree) -> String {
        match self.nodes[tree.0] {
            Node::Leaf(Leaf { pass, unit, micro_batch, data_rank, part }) => {
                format!("{unit}@{micro_batch} of {data_rank} [{part}, pass {pass}]")
            }
            Node::Direction(sum) => format!("the direction of {}", self.show(sum)),
            Node::Sum(a, b) => format!("({} + {})", self.show(a), self.show(b)),
        }
    }
}
