//! Tensors: names, shapes and initial values of parameters, in the order of the flat buffer. Never holds elements.

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
    /// Whether it is a table of which rows are looked up. Such a table may be left out of weight decay.
    pub embeds: bool,
    /// Its initial values.
    pub init: Init,
    /// Its first element in the flat buffer of the unit.
    pub start: usize,
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
}

/// The list that layers add their tensors to.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    scope: Vec<&'static str>,
    list: Vec<Tensor>,
    len: usize,
}

impl Tensors {
    /// Adds a tensor behind those before it.
    pub fn add(&mut self, name: &'static str, shape: &[usize], init: Init) {
        self.scope.push(name);
        let tensor = Tensor { name: self.scope.join("."), shape: shape.to_vec(), embeds: false, init, start: self.len };
        self.scope.pop();
        self.len += tensor.len();
        self.list.push(tensor);
    }

    /// [`Tensors::add`] for a table of which rows are looked up.
    pub fn embedding(&mut self, name: &'static str, shape: &[usize], init: Init) {
        self.add(name, shape, init);
        self.list.iter_mut().last().into_iter().for_each(|tensor| tensor.embeds = true);
    }

    /// Puts `name.` before the names that `inner` adds.
    pub fn scope(&mut self, name: &'static str, inner: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        inner(self);
        self.scope.pop();
    }

    /// All tensors so far.
    pub fn into_list(self) -> Vec<Tensor> {
        self.list
    }
}
