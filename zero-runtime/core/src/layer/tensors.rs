//! Tensors: names, shapes and initial values of parameters, in the order of the flat buffer. Never holds elements.

use super::published::{NamesMisfit, Path, PublishedPart, TensorNames};

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Normal around zero with this standard deviation.
    Normal(f32),
}

/// One parameter tensor of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name within the unit, such as `mlp.1.weight`.
    pub name: String,
    /// Its dims.
    pub shape: Vec<usize>,
    /// The rows of each matrix, if it consists of matrices of a hidden layer, one after another. Empty for anything
    /// else: an embedding, the weight of a head or of a norm, or a bias.
    pub hidden_rows: Vec<usize>,
    /// Whether it is a table whose rows are looked up. A run may leave such a table out of weight decay.
    pub embeds: bool,
    /// Its initial values.
    pub init: Init,
    /// Its first element in the flat buffer of the unit.
    pub start: usize,
    /// Its published name. `None` if no attribute sets one: then it is published under its own names.
    pub weights: Option<TensorNames>,
}

impl Tensor {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether weight decay applies: to matrices, not to gains and biases; to embeddings unless a run leaves them out.
    pub fn decays(&self) -> bool {
        self.shape.len() > 1
    }

    /// The matrices that Muon orthogonalizes, each by itself.
    pub fn hidden_matrices(&self) -> impl Iterator<Item = HiddenMatrix> {
        let columns = self.shape.last().copied().unwrap_or_default();
        self.hidden_rows.iter().scan(self.start, move |next, &rows| {
            let start = *next;
            *next += rows * columns;
            Some(HiddenMatrix { start, rows, columns })
        })
    }

    /// Whether `#[init]` applies: to matrices whose initial values are drawn.
    fn is_drawn_matrix(&self) -> bool {
        self.decays() && matches!(self.init, Init::Normal(_))
    }
}

/// A matrix of a hidden layer, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenMatrix {
    /// Its first element in the flat buffer of the unit.
    pub start: usize,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
}

/// The list that layers add their tensors to.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// The own names of open scopes.
    scope: Vec<&'static str>,
    /// The published names of open scopes.
    path: Path,
    list: Vec<Tensor>,
    /// Whether an attribute has decided the initial values of each tensor of the list.
    is_decided: Vec<bool>,
    len: usize,
    misfit: Option<NamesMisfit>,
}

impl Tensors {
    /// Adds a tensor after those that are there.
    pub fn add(&mut self, name: &'static str, shape: &[usize], init: Init) {
        let outer = self.path.open_tensor(name);
        self.scope.push(name);
        let (name, weights) = (self.scope.join("."), self.path.weights(shape.len()));
        let tensor = Tensor {
            name,
            shape: shape.to_vec(),
            hidden_rows: Vec::new(),
            embeds: false,
            init,
            start: self.len,
            weights,
        };
        self.scope.pop();
        self.path.close(outer);
        self.len += tensor.len();
        self.list.push(tensor);
        self.is_decided.push(false);
    }

    /// [`Tensors::add`] for a table whose rows are looked up.
    pub fn embedding(&mut self, name: &'static str, shape: &[usize], init: Init) {
        self.add(name, shape, init);
        self.list.iter_mut().last().into_iter().for_each(|tensor| tensor.embeds = true);
    }

    /// [`Tensors::add`] for a matrix of a hidden layer, which Muon updates, or for several, one after another, each
    /// with its number of `rows`. [`super::Layer::MATRICES`] has to count them.
    pub fn hidden(&mut self, name: &'static str, rows: &[usize], columns: usize, init: Init) {
        self.add(name, &[rows.iter().sum(), columns], init);
        self.list.iter_mut().last().into_iter().for_each(|tensor| tensor.hidden_rows = rows.to_vec());
    }

    /// Puts `name.` before the names that `inner` adds.
    pub fn scope(&mut self, name: &'static str, inner: impl FnOnce(&mut Self)) {
        self.field(name, &[], inner);
    }

    /// The scope of a field with the names of its `#[weights(...)]`: a single name replaces the field's own; several
    /// names are those of the parts (scopes or tensors) that `inner` opens, in order.
    pub fn field(&mut self, name: &'static str, weights: &'static [PublishedPart], inner: impl FnOnce(&mut Self)) {
        let outer = self.path.open(&[name], weights);
        self.scope.push(name);
        inner(self);
        self.close(outer, weights);
        self.scope.pop();
    }

    /// A field of a model. The own names of its tensors begin within it, so it opens no scope for them.
    pub fn unit(&mut self, own: &[&'static str], weights: &'static [PublishedPart], inner: impl FnOnce(&mut Self)) {
        let outer = self.path.open(own, weights);
        inner(self);
        self.close(outer, weights);
    }

    /// Sets the standard deviation of the drawn matrices that `inner` adds: `last` for the last of them, and `all` for
    /// the others. A deviation that was set inside of `inner` stays.
    pub fn initial(&mut self, all: f32, last: Option<f32>, inner: impl FnOnce(&mut Self)) {
        let start = self.list.len();
        inner(self);
        let added = self.list.iter_mut().zip(&mut self.is_decided).skip(start);
        let matrices = added.filter(|(tensor, _)| tensor.is_drawn_matrix()).rev();
        let deviations = std::iter::once(last.unwrap_or(all)).chain(std::iter::repeat(all));
        for ((tensor, is_decided), deviation) in matrices.zip(deviations) {
            if !std::mem::replace(is_decided, true) {
                tensor.init = Init::Normal(deviation);
            }
        }
    }

    /// All tensors so far.
    pub fn into_list(self) -> Vec<Tensor> {
        self.list
    }

    /// The first list of published names that is longer or shorter than the list of the parts that it names.
    pub fn misfit(&self) -> Option<&NamesMisfit> {
        self.misfit.as_ref()
    }

    fn close(&mut self, outer: Path, weights: &'static [PublishedPart]) {
        let misfit = self.path.misfit(weights).map(|parts| NamesMisfit::new(&self.scope, weights.len(), parts));
        self.misfit = self.misfit.take().or(misfit);
        self.path.close(outer);
    }
}

#[cfg(test)]
#[path = "tensors_tests.rs"]
mod tests;
