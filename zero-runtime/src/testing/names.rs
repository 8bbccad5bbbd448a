//! Names: how errors name an element that a check objects to: its layer, its tensor, and its position in that.

use super::trial::{ALL, DX, Unwritten, Y};
use zero_core::layer::{Activation, HiddenMatrix, Layer, OrthogonalCost, Shape, Tensor, Tensors, cost};

/// A layer as errors name it.
pub(super) struct LayerNames {
    layer: String,
    tensors: Vec<Tensor>,
    x_width: usize,
    y_width: usize,
}

impl LayerNames {
    pub(super) fn of<S: Shape, X: Activation, L: Layer<S, X>>() -> Self {
        let mut tensors = Tensors::default();
        L::tensors(&mut tensors);
        let (layer, tensors) = (without_paths(std::any::type_name::<L>()), tensors.into_list());
        let names = Self { layer, tensors, x_width: X::WIDTH, y_width: L::Output::WIDTH };
        let named: usize = names.tensors.iter().map(Tensor::len).sum();
        if named != L::PARAMS {
            names.object(&format!("`tensors` names {named} parameters, but `PARAMS` is {}", L::PARAMS));
        }
        names.require_matrices(L::MATRICES);
        names
    }

    /// Objects unless `MATRICES` of a layer that computes in f32 is the sum over its tensors.
    fn require_matrices(&self, said: OrthogonalCost) {
        let listed = self.tensors.iter().flat_map(Tensor::hidden_matrices);
        let listed = listed.fold(OrthogonalCost::NONE, |all, HiddenMatrix { rows, columns, .. }| {
            all.and(cost::matrix::<f32>([rows, columns]))
        });
        if listed != said {
            self.object(&format!("the matrices of `tensors` take {listed:?}, but `MATRICES` is {said:?}"));
        }
    }

    /// Panics with the layer and what is wrong.
    #[track_caller]
    pub(super) fn object(&self, what: &str) -> ! {
        panic!("gradcheck of `{}`: {what}", self.layer);
    }

    /// The name of element `i` of a buffer.
    fn element(&self, buffer: Unwritten, i: usize) -> String {
        let of_rows = |width: usize| format!("{} [{}, {}]", buffer.name, i / width, i % width);
        match buffer.name {
            name if name == Y.name => of_rows(self.y_width),
            name if name == DX.name => of_rows(self.x_width),
            _ => self.parameter(buffer, i),
        }
    }

    fn parameter(&self, buffer: Unwritten, i: usize) -> String {
        let within = |tensor: &&Tensor| (tensor.start..tensor.start + tensor.len()).contains(&i);
        let tensor = self.tensors.iter().find(within).expect("tensors cover all parameters");
        let mut rest = i - tensor.start;
        let mut index = |dim: &usize| {
            let index = rest % dim;
            rest /= dim;
            index
        };
        let mut place: Vec<_> = tensor.shape.iter().rev().map(&mut index).collect();
        place.reverse();
        format!("{} of `{}` {place:?}", buffer.name, tensor.name)
    }

    /// Objects to element `i` of a buffer, which should be `expected`, as `why` says.
    #[track_caller]
    pub(super) fn differs(&self, buffer: Unwritten, i: usize, why: &str, expected: f64, found: f32) -> ! {
        self.object(&format!("{}: expected {expected} {why}, found {found}", self.element(buffer, i)));
    }

    /// Objects unless all of a buffer has been written, without NaN.
    #[track_caller]
    pub(super) fn require_written(&self, buffer: Unwritten, numbers: &[f32]) {
        let is_unwritten = |number: &f32| buffer.is(*number);
        if !numbers.is_empty() && numbers.iter().all(is_unwritten) {
            self.object(&format!("{} was never written", buffer.name));
        }
        let Some((i, &found)) = numbers.iter().enumerate().find(|(_, number)| number.is_nan()) else { return };
        let element = self.element(buffer, i);
        match ALL.into_iter().find(|origin| origin.is(found)) {
            Some(origin) if origin.name == buffer.name => self.object(&format!("{element} was never written")),
            Some(origin) => self.object(&format!("{element} comes from {}, which was not written before", origin.name)),
            None => self.object(&format!("{element} is NaN")),
        }
    }
}

/// The name of a type without the modules that it and its parameters lie in.
fn without_paths(name: &str) -> String {
    let mut short = String::new();
    for (i, part) in name.split("::").enumerate() {
        let begun = short.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        if i > 0 {
            short.truncate(begun);
        }
        short += part;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_called_as_its_user_does() {
        let name = without_paths("zero::layer::chain::Chain<zero::Linear<3, 5>, (a::b::C<1>, [d::E; 2])>");
        assert_eq!(name, "Chain<Linear<3, 5>, (C<1>, [E; 2])>");
        assert_eq!(without_paths("u32"), "u32");
    }
}
