//! Program: a model under one spec as a value, with everything that runs, files and the engine need of it, so that they
//! are compiled without its type. Holds constants only.

use zero_plan::{Field, Message, Plan, Width};

use crate::layer::{HeadCode, TokenWords, UnitCode};

/// A model under one spec, for a device.
pub struct Program<D: 'static> {
    /// Everything that is constant about a run.
    pub plan: &'static Plan<'static>,
    /// Code of each field, and of each element that alternates; [`zero_plan::Unit::position`] is the index.
    pub code: &'static [UnitCode<D>],
    /// The code of the head.
    pub head: HeadCode<D>,
    /// The input of the first field.
    pub inputs: Inputs,
    /// The width in which layers compute.
    pub compute: Width,
    /// The path of the struct that it was made from.
    pub name: &'static str,
    /// The directory of the package that defines it.
    pub directory: &'static str,
    /// The spec that it was built from: the path of its file, or `#[zero]` where the attribute's options are the spec.
    pub spec: &'static str,
    /// The text of that spec, in RON, as it was when the binary was built.
    pub spec_text: &'static str,
    /// Whether the command that built the binary puts a text beside it, for training without other data.
    pub has_text: bool,
    /// Sizes under other shapes of a micro-batch: those that `ZERO_PROBE` listed when the program was built.
    pub probes: &'static [ShapeSizes],
    /// The value of `#[config({...})]` on the struct: the sizes of the model as it is published. Null without it.
    pub config: fn() -> serde_json::Value,
    /// The name of the model's size, if it comes in several and the program was built without a name.
    pub size: Option<&'static str>,
}

/// The input of the first field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The words of data for each token.
    pub words: TokenWords,
    /// One more than the largest id, if it takes ids.
    pub vocabulary: Option<usize>,
}

/// The sizes of all fields under some shape.
#[derive(Clone, Copy, Debug)]
pub struct ShapeSizes {
    /// The width in which layers compute.
    pub compute: Width,
    /// Sequences of a micro-batch.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// The fields.
    pub fields: &'static [Field],
}

/// Stops the build of a program that trains on text if the model has a [`vocabulary_fault`].
#[track_caller]
pub const fn require_vocabulary<D>(program: &Program<D>) {
    if let Some(fault) = vocabulary_fault(program) {
        panic!("{}", fault.as_str());
    }
}

/// Z0213, if the model cannot be trained on text because its head predicts ids that the first field does not take: the
/// targets of a text are its next inputs, and so are sampled tokens.
pub const fn vocabulary_fault<D>(program: &Program<D>) -> Option<Message> {
    let Program { plan, head: HeadCode { classes, .. }, .. } = *program;
    let Some(ids) = program.inputs.vocabulary else { return None };
    if classes <= ids {
        return None;
    }
    let (first, last) = (plan.units[0].field, plan.units[plan.units.len() - 1].field);
    let message = Message::new().text("[Z0213] `").text(last).text("` predicts ").number(classes);
    let message = message.text(" classes, but `").text(first).text("` takes only ids below ").number(ids);
    let message = message.text(": in a text, the prediction is the next input\n  fix: give `").text(first);
    let message = message.text("` a vocabulary of ").number(classes).text(", or `").text(last);
    Some(message.text("` one of ").number(ids))
}
