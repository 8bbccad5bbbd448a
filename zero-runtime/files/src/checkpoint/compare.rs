//! Compare: compares two checkpoints element by element, whatever the layouts and widths that they were written under.
//! Never holds more than a piece of each.

use serde_json::Value;

use super::elements::Elements;
use super::entry::state_name;
use super::error::CheckpointError;
use super::manifest::Manifest;
use super::open::Checkpoint;
use zero_core::states::PIECE_ELEMENTS;
use zero_plan::place::State;

/// How two checkpoints differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Tensors and states that only one of them has, or whose shapes differ, in words.
    pub model: Vec<String>,
    /// Tensors that differ, by state and in the order of the model.
    pub tensors: Vec<StateDifference>,
    /// Tensors that were compared, each state counted.
    pub compared: usize,
    /// Other differences between their manifests, in words: arguments, plan, step.
    pub about: Vec<String>,
}

/// How a state of a tensor differs.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDifference {
    /// The state, as it is called in the first checkpoint.
    pub state: State,
    /// The tensor.
    pub tensor: String,
    /// Number of elements.
    pub elements: usize,
    /// Elements whose bits differ after both are converted to f32.
    pub differing: usize,
    /// The greatest difference; infinite where one of the two is not finite.
    pub max_abs: f64,
    /// The greatest difference relative to the greater of the two.
    pub max_relative: f64,
}

impl Comparison {
    /// Whether all elements of all states are equal. Arguments, plans and steps may differ.
    pub fn is_equal(&self) -> bool {
        self.model.is_empty() && self.tensors.is_empty()
    }
}

/// Compares all states of two checkpoints tensor by tensor, matching tensors by name. If only one has a master copy, it is
/// compared with the other's parameters. `progress` receives the number of elements compared since its last call.
///
/// # Errors
/// Z0385, Z0387 or Z0389 if one of them is not whole.
pub fn compare(a: &Checkpoint, b: &Checkpoint, progress: &(dyn Fn(u64) + Sync)) -> Result<Comparison, CheckpointError> {
    let mut comparison = Comparison { about: about(&a.manifest, &b.manifest), ..Comparison::default() };
    let mut pairs = vec![(a.best_parameters(), b.best_parameters())];
    if a.has(State::Master) && b.has(State::Master) {
        pairs.push((State::Parameters, State::Parameters));
    }
    pairs.extend([State::FirstMoment, State::SecondMoment].map(|state| (state, state)));
    let common = &common(a, b, &mut comparison.model);
    let found = std::thread::scope(|scope| {
        let of = |&(of_a, of_b)| scope.spawn(move || compare_state((a, of_a), (b, of_b), common, progress));
        let running: Vec<_> = pairs.iter().map(of).collect();
        running.into_iter().map(|one| one.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    comparison.compared = found.len() * common.len();
    comparison.tensors = found.into_iter().flatten().collect();
    Ok(comparison)
}

/// The numbers of the tensors that both have in the same shape; all others are described in `told`.
fn common(a: &Checkpoint, b: &Checkpoint, told: &mut Vec<String>) -> Vec<(usize, usize)> {
    let (ours, theirs) = (&a.manifest.tensors, &b.manifest.tensors);
    let mut common = Vec::new();
    for (i, one) in ours.iter().enumerate() {
        match theirs.iter().position(|other| other.name == one.name) {
            None => told.push(format!("`{}` {:?} is only in the first", one.name, one.shape)),
            Some(j) if theirs[j].shape != one.shape => {
                told.push(format!(
                    "`{}` is {:?} in the first, {:?} in the second",
                    one.name, one.shape, theirs[j].shape
                ));
            }
            Some(j) => common.push((i, j)),
        }
    }
    let only = theirs.iter().filter(|other| ours.iter().all(|one| one.name != other.name));
    told.extend(only.map(|other| format!("`{}` {:?} is only in the second", other.name, other.shape)));
    common
}

fn compare_state(
    (a, of_a): (&Checkpoint, State),
    (b, of_b): (&Checkpoint, State),
    common: &[(usize, usize)],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<StateDifference>, CheckpointError> {
    let (mut ours, mut theirs) = (Elements::all(a, of_a)?, Elements::all(b, of_b)?);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut differing = Vec::new();
    for &(i, j) in common {
        let tensor = &a.manifest.tensors[i];
        let (name, elements) = (tensor.name.clone(), tensor.elements());
        let mut difference =
            StateDifference { state: of_a, tensor: name, elements, differing: 0, max_abs: 0.0, max_relative: 0.0 };
        for first in (0..elements).step_by(PIECE_ELEMENTS) {
            let len = PIECE_ELEMENTS.min(elements - first);
            one.resize(len, 0.0);
            other.resize(len, 0.0);
            ours.read(i, first, &mut one)?;
            theirs.read(j, first, &mut other)?;
            one.iter().zip(&other).for_each(|(&one, &other)| difference.add(one, other));
            progress(len as u64);
        }
        if difference.differing > 0 {
            differing.push(difference);
        }
    }
    Ok(differing)
}

impl StateDifference {
    fn add(&mut self, one: f32, other: f32) {
        if one.to_bits() == other.to_bits() {
            return;
        }
        self.differing += 1;
        let (one, other) = (f64::from(one), f64::from(other));
        let (abs, relative) = match one.is_finite() && other.is_finite() {
            true => ((one - other).abs(), (one - other).abs() / one.abs().max(other.abs()).max(f64::MIN_POSITIVE)),
            false => (f64::INFINITY, f64::INFINITY),
        };
        self.max_abs = self.max_abs.max(abs);
        self.max_relative = self.max_relative.max(relative);
    }

    /// The name of its state.
    pub fn state_name(&self) -> &'static str {
        state_name(self.state)
    }
}

/// How two manifests differ, except in tensors, files and the time.
fn about(a: &Manifest, b: &Manifest) -> Vec<String> {
    let plain = |manifest: &Manifest| {
        let small = Manifest {
            tensors: Vec::new(),
            files: Vec::new(),
            published: Vec::new(),
            written_at: String::new(),
            ..manifest.clone()
        };
        serde_json::to_value(small).expect("names, numbers and text")
    };
    let mut told = Vec::new();
    walk("", &plain(a), &plain(b), &mut told);
    told
}

/// Adds each leaf in which two values differ to `told`, with its path.
fn walk(path: &str, a: &Value, b: &Value, told: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                walk(&below, &of(ours), &of(theirs), told);
            }
        }
        // The text of a whole file would not be readable in one line.
        _ if a != b && path == "spec.text" => told.push("spec.text: not the same".to_owned()),
        _ if a != b => told.push(format!("{path}: {a} and {b}")),
        _ => {}
    }
}
