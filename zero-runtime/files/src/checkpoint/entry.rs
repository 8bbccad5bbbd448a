//! Entry: elements of one state of one tensor, as stored in a file of a checkpoint, and their name there. Never reads a
//! file.

use zero_plan::Width;
use zero_plan::place::State;

use super::manifest::TensorInfo;

/// The name of a state in names of entries and in messages.
pub const fn state_name(state: State) -> &'static str {
    match state {
        State::Parameters => "parameters",
        State::Master => "master",
        State::FirstMoment => "first_moment",
        State::SecondMoment => "second_moment",
    }
}

/// A run of elements of a tensor, in the tensor's own flat order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRun {
    /// The state of the tensor.
    pub state: State,
    /// The index of the tensor in [`super::Manifest::tensors`].
    pub tensor: usize,
    /// Its first element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
    /// How each is stored.
    pub width: Width,
}

impl TensorRun {
    /// Its length in a file.
    pub fn bytes(&self) -> u64 {
        (self.len * self.width.bytes()) as u64
    }

    /// Its name in a file: `STATE/TENSOR@START`.
    pub fn name(&self, tensors: &[TensorInfo]) -> String {
        format!("{}/{}@{}", state_name(self.state), tensors[self.tensor].name, self.start)
    }
}

/// The state, the tensor's name and the first element that a name stands for.
pub fn parse_name(name: &str) -> Option<(State, &str, usize)> {
    let (state, rest) = name.split_once('/')?;
    let (tensor, start) = rest.rsplit_once('@')?;
    let state = State::ALL.into_iter().find(|&it| state_name(it) == state)?;
    let parsed = start.parse().ok()?;
    // Only one way to write the number is accepted, so that an entry has only one name.
    (format!("{parsed}") == start).then_some((state, tensor, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let tensors = [TensorInfo { name: "a/b@1.w".to_owned(), shape: vec![9], transposed: false, unit: 0, start: 0 }];
        for state in State::ALL {
            let name = TensorRun { state, tensor: 0, start: 7, len: 2, width: Width::F32 }.name(&tensors);
            assert_eq!(parse_name(&name), Some((state, "a/b@1.w", 7)), "{name}");
        }
        for name in ["parameters/a", "a@0", "param/a@0", "master/a@", "master/a@-1", "master/a@+1", "master/a@01"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
