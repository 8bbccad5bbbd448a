//! Published: the names under which a model's tensors are published, by the `#[weights]` of their fields. Never knows a
//! file.

/// The name of a parameter where the model is published.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorNames {
    /// Its name. `{}` stands for the index of a unit of an array field.
    pub name: String,
    /// Whether it is published transposed, as a matrix (inputs, outputs).
    pub transposed: bool,
}

/// What `#[weights]` says about one part of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PublishedPart {
    /// Its name.
    Named(&'static str),
    /// Its name, and that all matrices in it are stored transposed.
    Transposed(&'static str),
    /// It adds nothing to the names of its tensors; a tensor keeps its own.
    Unnamed,
}

/// The fields and parts that are open, and the names of their parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// Names from the field of the model to here.
    names: Vec<&'static str>,
    /// Whether any of them comes from an attribute.
    is_given: bool,
    is_transposed: bool,
    /// Names of the parts that are opened here, if an attribute lists them.
    parts: Option<&'static [PublishedPart]>,
    /// Own names of the parts that have been opened here.
    opened: Vec<&'static str>,
}

impl Path {
    /// Opens a part with its own names, and with the names that `#[weights]` gives it; returns the path outside of it.
    pub fn open(&mut self, own: &[&'static str], weights: &'static [PublishedPart]) -> Self {
        let from_outside = self.next(own);
        let outer = self.clone();
        match (from_outside, weights) {
            (None, []) => self.names.extend(own),
            (None, _) => {}
            (Some(part), _) => self.give(part),
        }
        self.is_given |= !weights.is_empty();
        match weights {
            [] => self.parts = None,
            [one] => {
                self.give(*one);
                self.parts = None;
            }
            _ => self.parts = Some(weights),
        }
        self.opened.clear();
        outer
    }

    /// Opens a tensor; returns the path outside of it.
    pub fn open_tensor(&mut self, own: &'static str) -> Self {
        let from_outside = self.next(&[own]);
        let outer = self.clone();
        match from_outside {
            None | Some(PublishedPart::Unnamed) => self.names.push(own),
            Some(part) => self.give(part),
        }
        outer
    }

    /// Goes back to the path outside.
    pub fn close(&mut self, outer: Self) {
        *self = outer;
    }

    /// The name that an attribute here gives to the part that is opened next.
    fn next(&mut self, own: &[&'static str]) -> Option<PublishedPart> {
        let parts = self.parts?;
        let part = parts.get(self.opened.len()).copied();
        self.opened.extend(own);
        Some(part.unwrap_or(PublishedPart::Unnamed))
    }

    fn give(&mut self, part: PublishedPart) {
        self.is_given = true;
        match part {
            PublishedPart::Named(name) => self.names.push(name),
            PublishedPart::Transposed(name) => {
                self.names.push(name);
                self.is_transposed = true;
            }
            PublishedPart::Unnamed => {}
        }
    }

    /// The published name of an open tensor with `dims` dims, if attributes name any part of it.
    pub fn weights(&self, dims: usize) -> Option<TensorNames> {
        self.is_given.then(|| TensorNames { name: self.names.join("."), transposed: self.is_transposed && dims == 2 })
    }

    /// The parts that were opened here, if there are more or fewer of them than names.
    pub fn misfit(&self, weights: &'static [PublishedPart]) -> Option<&[&'static str]> {
        (weights.len() > 1 && weights.len() != self.opened.len()).then_some(&self.opened)
    }
}

/// A list of names that is longer or shorter than the list of the parts that it names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamesMisfit {
    /// The fields that it lies in, within the unit; empty for the unit itself.
    pub within: String,
    /// How many names there are.
    pub names: usize,
    /// The parts that are to be named.
    pub parts: Vec<&'static str>,
}

impl NamesMisfit {
    pub(super) fn new(scope: &[&'static str], names: usize, parts: &[&'static str]) -> Self {
        Self { within: scope.join("."), names, parts: parts.to_vec() }
    }
}
