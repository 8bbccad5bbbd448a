//! Model: what `#[zero]` generates for a struct: its plan, and the code of its fields. Holds constants only.

mod names;
mod turns;

use core::marker::PhantomData;

use zero_plan::{Field, Message, Plan, Unit, Width};

use crate::device::Device;
use crate::layer::{
    Activation, Backward, Context, Entry, Forward, Grads, Head, Layer, Loss, PublishedPart, SameAs, Shape, SharesWith,
    Tensors, activation_bytes, misplaced,
};
use crate::size::{bytes, either, max, product};
use crate::view::{View, ViewMut};

pub use names::{published, require_names};
pub use turns::FieldTurns;

/// A model under one spec. Implemented by `#[zero]`.
pub trait Model: 'static {
    /// Its input.
    type Input: Activation;
    /// The target of each token.
    type Target: Activation;
    /// Shape of a micro-batch, and the device that layers compute on.
    type Shape: Shape;
    /// All that is constant about a run.
    const PLAN: &'static Plan<'static>;
    /// Code of each field, and of each element that alternates; [`Unit::position`] is the index.
    const CODE: &'static [UnitCode<DeviceOf<Self>>];
    /// The code of the head.
    const HEAD: HeadCode<DeviceOf<Self>>;
    /// The directory of the package that defines it.
    const DIRECTORY: &'static str;
    /// The spec that it was built from: the path of its file, or `#[zero]` where the attribute's options are the spec.
    const SPEC: &'static str;
    /// The text of that spec, in RON, as it was when the binary was built.
    const SPEC_TEXT: &'static str;
    /// Text that was put into the binary when it was built.
    const TEXT: Option<&'static [u8]>;

    /// Sizes under other shapes of a micro-batch: those that `ZERO_PROBE` listed when the program was built.
    const PROBES: &'static [ShapeSizes] = &[];

    /// The value of `#[config({...})]` on the struct: the sizes of the model as it is published. Null without it.
    fn config() -> serde_json::Value {
        serde_json::Value::Null
    }
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

/// The device that a model computes on.
pub type DeviceOf<M> = <<M as Model>::Shape as Shape>::Device;

/// Arguments of a forward call, as the engine has them: as bytes, whose meaning only the layer knows.
pub struct ForwardBytes<'a, D> {
    /// [`Forward::params`]
    pub params: View<'a, D, u8>,
    /// [`Forward::x`]
    pub x: View<'a, D, u8>,
    /// [`Forward::y`]
    pub y: ViewMut<'a, D, u8>,
    /// [`Forward::saved`]
    pub saved: ViewMut<'a, D, u8>,
    /// [`Forward::work`]
    pub work: ViewMut<'a, D, u8>,
}

/// Arguments of a backward call, as the engine has them.
pub struct BackwardBytes<'a, D> {
    /// [`Backward::params`]
    pub params: View<'a, D, u8>,
    /// [`Backward::grads`]
    pub grads: Grads<'a, D>,
    /// [`Backward::x`]
    pub x: View<'a, D, u8>,
    /// [`Backward::saved`]
    pub saved: View<'a, D, u8>,
    /// [`Backward::dy`]
    pub dy: View<'a, D, u8>,
    /// [`Backward::losses`]
    pub losses: ViewMut<'a, D, f32>,
    /// [`Backward::dx`]
    pub dx: Option<ViewMut<'a, D, u8>>,
    /// [`Backward::work`]
    pub work: ViewMut<'a, D, u8>,
}

/// The functions that the engine calls for a unit.
pub struct UnitCode<D> {
    /// [`Layer::forward`]
    pub forward: fn(&Context<D>, ForwardBytes<D>),
    /// [`Layer::decode`]
    pub decode: fn(&Context<D>, ForwardBytes<D>, ViewMut<D, u8>),
    /// [`Layer::backward`]
    pub backward: fn(&Context<D>, BackwardBytes<D>),
    /// [`Layer::tensors`]
    of_layer: fn(&mut Tensors),
    /// The field's name, and `{}` for the index of an element.
    own: [&'static str; 2],
    /// `#[weights(...)]` on the field.
    weights: &'static [PublishedPart],
    /// `#[init(...)]` on the field.
    init: Option<InitialScales>,
}

/// The standard deviation of a field's matrices, and that of the last of them if it differs.
pub type InitialScales = fn() -> (f32, Option<f32>);

impl<D> UnitCode<D> {
    /// Names the parameters of a unit, in the order of its flat buffer: by [`Layer::tensors`] and the attributes of the
    /// field.
    pub fn tensors(&self, out: &mut Tensors) {
        let own = if self.own[1].is_empty() { &self.own[..1] } else { &self.own[..] };
        out.unit(own, self.weights, |out| match self.init {
            Some(init) => {
                let (all, last) = init();
                out.initial(all, last, self.of_layer);
            }
            None => (self.of_layer)(out),
        });
    }
}

impl<D> Clone for UnitCode<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for UnitCode<D> {}

/// Computes predictions from parameters and features, both as bytes.
pub type Logits<D> = fn(&D, View<D, u8>, View<D, u8>, ViewMut<D, f32>);

/// The code by which a head predicts.
pub struct HeadCode<D> {
    /// [`Head::CLASSES`]
    pub classes: usize,
    /// [`Head::OUTPUTS`]
    pub outputs: usize,
    /// Bytes of the targets of a micro-batch.
    pub targets_bytes: usize,
    /// [`Entry::VOCABULARY`] of the first field.
    pub vocabulary: Option<usize>,
    /// [`Head::UNIT`]
    pub unit: &'static str,
    /// [`Head::logits`]
    pub logits: Logits<D>,
}

impl<D> Clone for HeadCode<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for HeadCode<D> {}

/// The fields of a model, chained: each must take what the one before it gives. `N` is the number of fields, where each
/// element that alternates counts as one; `Y` is the output of the last field so far.
pub struct Fields<S: Shape, Y, const N: usize> {
    /// Sizes, for the plan.
    pub sizes: [Field; N],
    /// Code, for the engine.
    pub code: [UnitCode<S::Device>; N],
    len: usize,
    vocabulary: Option<usize>,
    output: PhantomData<fn() -> Y>,
}

/// All `N` fields, and the code of the head.
pub struct Whole<S: Shape, const N: usize> {
    /// Sizes and code.
    pub fields: Fields<S, Loss, N>,
    /// The code of the head.
    pub head: HeadCode<S::Device>,
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
    Field { name, count, tied, turns: 1, sizes }
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

/// Stops the build of a program that trains on text if the model has a [`vocabulary_fault`].
#[track_caller]
pub(crate) const fn require_vocabulary<M: Model>() {
    if let Some(fault) = vocabulary_fault::<M>() {
        panic!("{}", fault.as_str());
    }
}

/// Z0213, if the model cannot be trained on text because its head predicts ids that the first field does not take: the
/// targets of a text are its next inputs, and so are sampled tokens.
pub const fn vocabulary_fault<M: Model>() -> Option<Message> {
    let Some(ids) = M::HEAD.vocabulary else { return None };
    if M::HEAD.classes <= ids {
        return None;
    }
    let (first, last) = (M::PLAN.units[0].field, M::PLAN.units[M::PLAN.units.len() - 1].field);
    let message = Message::new().text("[Z0213] `").text(last).text("` predicts ").number(M::HEAD.classes);
    let message = message.text(" classes, but `").text(first).text("` takes only ids below ").number(ids);
    let message = message.text(": in a text, what is predicted is the next input\n  fix: give `").text(first);
    let message = message.text("` a vocabulary of ").number(M::HEAD.classes).text(", or `").text(last);
    Some(message.text("` one of ").number(ids))
}

const fn code<S: Shape, X: Activation, L: Layer<S, X>>(field: &Field) -> UnitCode<S::Device> {
    UnitCode {
        forward: |cx, pass| {
            let ForwardBytes { params, x, y, saved, work } = pass;
            L::forward(cx, Forward { params: params.cast(), x: x.cast(), y: y.cast(), saved, work });
        },
        decode: |cx, pass, cache| {
            let ForwardBytes { params, x, y, saved, work } = pass;
            L::decode(cx, Forward { params: params.cast(), x: x.cast(), y: y.cast(), saved, work }, cache);
        },
        backward: |cx, pass| {
            let BackwardBytes { params, grads, x, saved, dy, losses, dx, work } = pass;
            let (params, x, dy, dx) = (params.cast(), x.cast(), dy.cast(), dx.map(ViewMut::cast));
            L::backward(cx, Backward { params, grads, x, saved, dy, losses, dx, work });
        },
        of_layer: L::tensors,
        own: [field.name, if field.count.is_some() { "{}" } else { "" }],
        weights: &[],
        init: None,
    }
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
        let given = product(&[S::TOKENS, L::Input::WIDTH, size_of::<<L::Input as Activation>::Data>()]);
        first.sizes.given_bytes = if given == first.sizes.input_bytes { 0 } else { given };
        Fields {
            sizes: [first; N],
            code: [code::<S, L::Input, L>(&first); N],
            len: 1,
            vocabulary: L::VOCABULARY,
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
    pub const fn end(self, mut head: HeadCode<S::Device>) -> Whole<S, N> {
        let Fields { mut sizes, code, len, vocabulary, .. } = self;
        let last = &mut sizes[len - 1];
        if activation_bytes::<S, Y>() != activation_bytes::<S, Loss>() {
            let fault = Message::new().text("[Z0204] the head gives ").number(activation_bytes::<S, Y>());
            let fault = fault.text(" bytes for ").number(S::TOKENS).text(" tokens, and losses are ");
            let fault = fault.number(activation_bytes::<S, Loss>()).text(": one f32 for each");
            refuse(fault.text("\n  fix: `type Output = Loss`"), last.name);
        }
        last.sizes.targets_bytes = head.targets_bytes;
        // Predictions lie there until the host has read them.
        last.sizes.workspace_bytes = max(last.sizes.workspace_bytes, bytes::<f32>(head.outputs));
        head.vocabulary = vocabulary;
        Whole { fields: Fields { sizes, code, len, vocabulary, output: PhantomData }, head }
    }

    /// The same fields, with another name for the type that the last of them gives.
    const fn giving<Z>(self) -> Fields<S, Z, N> {
        let Fields { sizes, code, len, vocabulary, .. } = self;
        Fields { sizes, code, len, vocabulary, output: PhantomData }
    }

    const fn push<L: Layer<S, Y>>(mut self, field: Field) -> Fields<S, L::Output, N> {
        self.sizes[self.len] = field;
        self.code[self.len] = code::<S, Y, L>(&field);
        let Fields { sizes, code, len, vocabulary, .. } = self;
        Fields { sizes, code, len: len + 1, vocabulary, output: PhantomData }
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
        while self.sizes[first].turns == 0 {
            first -= 1;
        }
        first
    }
}

impl<D: Device> HeadCode<D> {
    /// The code of a head, without the vocabulary, which the first field gives.
    pub const fn of<S: Shape<Device = D>, L: Head<S> + ?Sized>() -> Self {
        Self {
            classes: L::CLASSES,
            outputs: L::OUTPUTS,
            targets_bytes: product(&[S::TOKENS, L::Target::WIDTH, size_of::<<L::Target as Activation>::Data>()]),
            vocabulary: None,
            unit: L::UNIT,
            logits: |device, params, x, logits| L::logits(device, params.cast(), x.cast(), logits),
        }
    }
}
