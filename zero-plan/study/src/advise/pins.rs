//! Pins: keys of a spec whose values are given, so that the search does not vary them. The table of keys reads them as
//! it reads a spec. Never knows the values that the search would try.

use core::fmt;

use zero_plan::Often;
use zero_plan::diagnostic::closest;
use zero_plan::spec::{RecomputedUnits, Spec};

/// The keys that can be given.
const KEYS: &[&str] = &[
    "mesh.zero",
    "mesh.replica",
    "mesh.pipeline",
    "zero.stage",
    "zero.prefetch",
    "zero.bucket",
    "zero.gather",
    "zero.reduce",
    "pipeline.schedule",
    "batch.sequences",
    "batch.micro_batches",
    "precision.compute",
    "precision.params",
    "precision.reduce",
    "precision.master",
    "precision.moments",
    "recompute",
    "optimizer",
];

/// The values that are given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    /// A spec with these values.
    pub(super) spec: Spec,
    /// Their keys.
    keys: Vec<&'static str>,
}

/// A pin that cannot be read. Z0165.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPin {
    /// The value that was asked for.
    pub pin: String,
    /// The problem, and how to fix it.
    pub what: String,
}

impl fmt::Display for BadPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[Z0165]: `--pin {}` is not understood\n  = help: {}", self.pin, self.what)
    }
}

impl std::error::Error for BadPin {}

impl Pins {
    /// Pins these keys to the values that a spec has.
    pub(super) fn of(spec: &Spec, keys: &[&'static str]) -> Self {
        Self { spec: spec.clone(), keys: keys.to_vec() }
    }

    /// Reads pins such as `zero.stage=3`.
    ///
    /// # Errors
    /// The first pin that has an unknown key, or a value that its key cannot have.
    pub fn read<S: AsRef<str>>(pins: &[S]) -> Result<Self, BadPin> {
        let mut read = Self { spec: Spec::of_defaults(), keys: Vec::new() };
        for pin in pins {
            read.add(pin.as_ref()).map_err(|what| BadPin { pin: pin.as_ref().to_owned(), what })?;
        }
        Ok(read)
    }

    fn add(&mut self, pin: &str) -> Result<(), String> {
        let all = || KEYS.join(", ");
        let (path, value) = pin.split_once('=').ok_or_else(|| format!("write KEY=VALUE; the keys are {}", all()))?;
        let known = KEYS.iter().find(|key| **key == path.trim());
        let key = known.ok_or_else(|| match closest(path, KEYS.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? The keys are {}", all()),
            None => format!("the keys are {}", all()),
        })?;
        if self.keys.contains(key) {
            return Err(format!("`{key}` is given twice"));
        }
        let row = zero_plan::spec::KEYS.iter().find(|row| row.path == *key).expect("every pin is a key of a spec");
        let read = row.read(&mut self.spec, value.trim());
        let fields = matches!(self.spec.recompute, Some(RecomputedUnits::Fields(_)));
        if read.is_err() || fields {
            return Err(if fields {
                "`recompute` takes `Every(k)` here, or `None`".to_owned()
            } else {
                format!("expected {}", row.expects)
            });
        }
        self.keys.push(key);
        Ok(())
    }

    /// Whether a key is pinned.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// The value of a key if it is pinned; otherwise all values that the search would try.
    pub(super) fn or<T: Clone>(&self, key: &str, pinned: T, tried: &[T]) -> Vec<T> {
        if self.has(key) { vec![pinned] } else { tried.to_vec() }
    }

    /// [`Pins::or`] for a key whose value is a number.
    pub(super) fn numbers(&self, key: &str, tried: &[usize]) -> Vec<usize> {
        let spec = &self.spec;
        let pinned = match key {
            "mesh.zero" => spec.mesh.zero,
            "mesh.replica" => spec.mesh.replica,
            "mesh.pipeline" => spec.mesh.pipeline,
            "batch.sequences" => spec.batch.sequences,
            "batch.micro_batches" => spec.batch.micro_batches,
            _ => spec.zero.prefetch(),
        };
        self.or(key, pinned as usize, tried)
    }

    /// [`Pins::or`] for `zero.gather` or `zero.reduce`.
    pub(super) fn often(&self, key: &str) -> Vec<Often> {
        let pinned = if key == "zero.gather" { self.spec.zero.gather } else { self.spec.zero.reduce };
        self.or(key, pinned, &[Often::PerMicroBatch, Often::PerStep])
    }
}
