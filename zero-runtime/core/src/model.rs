//! Model: what `#[zero]` generates for a struct: its plan, and the code of its fields. Holds constants only.

mod alternating;
mod names;
mod program;

use core::marker::PhantomData;

use zero_plan::{Field, Message, Plan, Unit};

use crate::checked::{bytes, either, max};
use crate::device::Element;
use crate::layer::{
    Activation, Entry, HeadCode, InitialScales, Layer, Loss, PublishedPart, SameAs, Shape, SharesWith, TokenWords,
    UnitCode, activation_bytes, misplaced,
};

pub use alternating::AlternatingFields;
pub use names::{NamesError, published, require_names};
pub use program::require_vocabulary;
pub use program::{Inputs, Program, ShapeSizes, vocabulary_fault};

/// A model under one spec. Implemented by `#[zero]`.
pub trait Model: 'static {
    /// Its input.
    type Input: Activation;
    /// The target of each token.
    type Target: Activation;
    /// Shape of a micro-batch, and the device that layers compute on.
    type Shape: Shape;
    /// Everything that a run needs of the model.
    const PROGRAM: &'static Program<DeviceOf<Self>>;
    /// Its plan: everything that is constant about a run.
    const PLAN: &'static Plan<'static> = Self::PROGRAM.plan;
}

/// The device that a model computes on.
pub type DeviceOf<M> = <<M as Model>::Shape as Shape>::Device;

/// The fields of a model, chained: each must accept the output of the field before it. `N` is the number of fields,
/// where each element that alternates counts as one; `Y` is the output of the last field so far.
pub struct Fields<S: Shape, Y, const N: usize> {
    /// Sizes, for the plan.
    pub sizes: [Field; N],
    /// Code, for the engine.
    pub code: [UnitCode<S::Device>; N],
    len: usize,
    inputs: Inputs,
    output: PhantomData<fn() -> Y>,
}

/// All `N` fields, and the code of the head.
pub struct Whole<S: Shape, const N: usize> {
    /// Sizes and code.
    pub fields: Fields<S, Loss, N>,
    /// The code of the head.
    pub head: HeadCode<S::Device>,
}

impl<S: Shape, const N: usize> Whole<S, N> {
    /// The program that trains these fields under `plan`, without the values that only `#[zero]` knows.
    pub const fn program(&'static self, plan: &'static Plan<'static>) -> Program<S::Device> {
        Program {
            plan,
            code: &self.fields.code,
            head: self.head,
            inputs: self.fields.inputs,
            compute: <S::Compute as Element>::WIDTH,
            name: "",
            directory: "",
            spec: "",
            spec_text: "",
            has_text: false,
            probes: &[],
            config: || serde_json::Value::Null,
            size: None,
        }
    }
}

#[track_caller]
const fn field<S: Shape, X: Activation, L: Layer<S, X>>(
    name: &'static str,
    count: Option<usize>,
    tied: Option<usize>,
) -> Field {
    if let Some(fault) = either(L::FAULT, misplaced::<S, X, L>()) {
        refuse(fault, name);
    }
    let sizes = Unit {
        params: L::PARAMS,
        takes: L::PARAMS,
        saved_bytes: L::SAVED,
        workspace_bytes: L::WORKSPACE,
        input_bytes: activation_bytes::<S, X>(),
        output_bytes: activation_bytes::<S, L::Output>(),
        operations: L::OPERATIONS,
        attending: L::ATTENDING,
        losses_in_backward: L::LOSSES_IN_BACKWARD,
        cache_bytes: L::CACHE,
        matrices: L::MATRICES,
        ..Unit::NONE
    };
    Field { name, count, tied, period: 1, sizes }
}

/// Stops the build if an array of layers is empty.
#[track_caller]
const fn elements(name: &str, count: usize) -> usize {
    if count == 0 {
        let fault =
            Message::new().text("[Z0207] an array of 0 layers makes no unit: make it 1 or more, or remove the field");
        refuse(fault, name);
    }
    count
}

/// Stops the build, and names the field.
#[track_caller]
const fn refuse(fault: Message, field: &str) -> ! {
    panic!("{}", fault.text("\n  in field `").text(field).text("`").as_str());
}

impl<S: Shape, const N: usize> Fields<S, (), N> {
    /// The first field.
    #[track_caller]
    pub const fn first<L: Entry + Layer<S, L::Input>>(name: &'static str) -> Fields<S, L::Output, N> {
        Self::first_of::<L>(name, None)
    }

    #[track_caller]
    const fn first_of<L: Entry + Layer<S, L::Input>>(
        name: &'static str,
        count: Option<usize>,
    ) -> Fields<S, L::Output, N> {
        let mut first = field::<S, L::Input, L>(name, count, None);
        let inputs = Inputs { words: TokenWords::of::<L::Input>(), vocabulary: L::VOCABULARY };
        let given = inputs.words.bytes(S::TOKENS);
        first.sizes.given_bytes = if given == first.sizes.input_bytes { 0 } else { given };
        Fields {
            sizes: [first; N],
            code: [UnitCode::of::<S, L::Input, L>(name, count.is_some()); N],
            len: 1,
            inputs,
            output: PhantomData,
        }
    }

    /// The first field, an array.
    #[track_caller]
    pub const fn first_repeated<L: Entry + Layer<S, L::Input>>(
        name: &'static str,
        count: usize,
    ) -> Fields<S, L::Input, N>
    where
        L::Output: SameAs<L::Input>,
    {
        Self::first_of::<L>(name, Some(elements(name, count))).giving()
    }
}

impl<S: Shape, Y: Activation, const N: usize> Fields<S, Y, N> {
    /// The next field.
    #[track_caller]
    pub const fn then<L: Layer<S, Y>>(self, name: &'static str) -> Fields<S, L::Output, N> {
        self.push::<L>(field::<S, Y, L>(name, None, None))
    }

    /// The next field, an array: its layer's output is its own next input.
    #[track_caller]
    pub const fn repeated<L: Layer<S, Y>>(self, name: &'static str, count: usize) -> Fields<S, Y, N>
    where
        L::Output: SameAs<Y>,
    {
        self.push::<L>(field::<S, Y, L>(name, Some(elements(name, count)), None)).giving()
    }

    /// The next field, which shares the parameters of field `owner` if `is_tied`, and otherwise has its own.
    #[track_caller]
    pub const fn tied<L: Layer<S, Y> + SharesWith<Owner>, Owner>(
        self,
        name: &'static str,
        owner: usize,
        is_tied: bool,
    ) -> Fields<S, L::Output, N> {
        if !is_tied {
            return self.then::<L>(name);
        }
        let shared = self.sizes[owner].sizes.params;
        if L::PARAMS > shared {
            let message =
                Message::new().text("[Z0205] a tied layer takes ").number(L::PARAMS).text(" parameters, but `");
            refuse(message.text(self.sizes[owner].name).text("` has ").number(shared), name);
        }
        self.push::<L>(field::<S, Y, L>(name, None, Some(owner)))
    }

    /// The end: the last field is the head, and `head` is its code.
    #[track_caller]
    pub const fn end(self, head: HeadCode<S::Device>) -> Whole<S, N> {
        let Fields { mut sizes, code, len, inputs, .. } = self;
        let last = &mut sizes[len - 1];
        if activation_bytes::<S, Y>() != activation_bytes::<S, Loss>() {
            let fault = Message::new().text("[Z0204] the head gives ").number(activation_bytes::<S, Y>());
            let fault = fault.text(" bytes for ").number(S::TOKENS).text(" tokens, and losses are ");
            let fault = fault.number(activation_bytes::<S, Loss>()).text(": one f32 for each");
            refuse(fault.text("\n  fix: `type Output = Loss`"), last.name);
        }
        last.sizes.targets_bytes = head.targets.bytes(S::TOKENS);
        // Predictions lie in the workspace until the host has read them.
        last.sizes.workspace_bytes = max(last.sizes.workspace_bytes, bytes::<f32>(head.outputs));
        Whole { fields: Fields { sizes, code, len, inputs, output: PhantomData }, head }
    }

    /// The same fields, with another name for the output type of the last field.
    const fn giving<Z>(self) -> Fields<S, Z, N> {
        let Fields { sizes, code, len, inputs, .. } = self;
        Fields { sizes, code, len, inputs, output: PhantomData }
    }

    const fn push<L: Layer<S, Y>>(mut self, field: Field) -> Fields<S, L::Output, N> {
        self.sizes[self.len] = field;
        self.code[self.len] = UnitCode::of::<S, Y, L>(field.name, field.count.is_some());
        let Fields { sizes, code, len, inputs, .. } = self;
        Fields { sizes, code, len: len + 1, inputs, output: PhantomData }
    }
}

impl<S: Shape, Y, const N: usize> Fields<S, Y, N> {
    /// `#[weights(...)]` on the last field so far.
    pub const fn weights(mut self, weights: &'static [PublishedPart]) -> Self {
        let mut i = self.last_field();
        while i < self.len {
            self.code[i].weights = weights;
            i += 1;
        }
        self
    }

    /// `#[init(...)]` on the last field so far.
    pub const fn init(mut self, init: InitialScales) -> Self {
        let mut i = self.last_field();
        while i < self.len {
            self.code[i].init = Some(init);
            i += 1;
        }
        self
    }

    /// The index where the last field begins: elements that alternate in a field follow the first of them.
    const fn last_field(&self) -> usize {
        let mut first = self.len - 1;
        while self.sizes[first].period == 0 {
            first -= 1;
        }
        first
    }
}
