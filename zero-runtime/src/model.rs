//! Model: what `#[zero]` generates for a struct: its plan, and the code of its fields. Holds constants only.

use core::marker::PhantomData;

use zero_plan::unit::ELEMENT_BYTES;
use zero_plan::{Field, Plan, Unit};

use crate::device::Cpu;
use crate::layer::{
    Activation, Backward, Context, Entry, Forward, Head, Layer, Loss, Shape, SharesWith, Tensors, require,
    size::product,
};
use crate::view::{View, ViewMut};

/// A model under one spec. Implemented by `#[zero]`.
pub trait Model: 'static {
    /// What it takes.
    type Input: Activation;
    /// Shape of a micro-batch. The engine keeps its arena in the host's memory, so the device is this processor.
    type Shape: Shape<Device = Cpu>;
    /// All that is constant about a run.
    const PLAN: &'static Plan<'static>;
    /// Code of each field; [`Unit::position`] is the index.
    const CODE: &'static [Code<Cpu>];
    /// The end of the model.
    const HEAD: HeadCode<Cpu>;
    /// The directory of the package that defines it.
    const DIRECTORY: &'static str;
    /// Text that was put into the binary when it was built.
    const TEXT: Option<&'static [u8]>;
}

/// What the engine calls for a unit.
pub struct Code<D> {
    /// [`Layer::forward`]
    pub forward: fn(&Context<D>, Forward<D>),
    /// [`Layer::backward`]
    pub backward: fn(&Context<D>, Backward<D>),
    /// [`Layer::tensors`]
    pub tensors: fn(&mut Tensors),
}

impl<D> Clone for Code<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Code<D> {}

/// What predictions are made with.
pub struct HeadCode<D> {
    /// [`Head::CLASSES`]
    pub classes: usize,
    /// [`Head::logits`]
    pub logits: fn(&D, View<D>, View<D>, ViewMut<D>),
}

impl<D> Clone for HeadCode<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for HeadCode<D> {}

/// The fields of a model, chained: each must take what the one before it gives. `N` is the number of fields, `Y` what
/// the last of them gives so far.
pub struct Fields<S: Shape, Y, const N: usize> {
    /// Sizes, for the plan.
    pub sizes: [Field; N],
    /// Code, for the engine.
    pub code: [Code<S::Device>; N],
    len: usize,
    output: PhantomData<fn() -> Y>,
}

/// What `N` fields come to: the code of the head beside that of all fields.
pub struct Whole<S: Shape, const N: usize> {
    /// Sizes and code.
    pub fields: Fields<S, Loss, N>,
    /// The end of the model.
    pub head: HeadCode<S::Device>,
}

const fn field<S: Shape, X: Activation, L: Layer<S, X>>(
    name: &'static str,
    count: Option<usize>,
    tied: Option<usize>,
) -> Field {
    // Elements travel through an arena of 4-byte cells.
    require(size_of::<X::Element>() == ELEMENT_BYTES, "[Z0204] an activation's element is not 4 bytes wide");
    let sizes = Unit {
        params: L::PARAMS,
        takes: L::PARAMS,
        saved: L::SAVED,
        workspace: L::WORKSPACE,
        input: product(&[S::TOKENS, X::WIDTH]),
        output: product(&[S::TOKENS, L::Output::WIDTH]),
        operations: L::OPERATIONS,
        ..Unit::NONE
    };
    Field { name, count, tied, sizes }
}

const fn code<S: Shape, X: Activation, L: Layer<S, X>>() -> Code<S::Device> {
    Code { forward: L::forward, backward: L::backward, tensors: L::tensors }
}

impl<S: Shape, const N: usize> Fields<S, (), N> {
    /// The first field.
    pub const fn first<L: Entry + Layer<S, L::Input>>(name: &'static str) -> Fields<S, L::Output, N> {
        Fields {
            sizes: [field::<S, L::Input, L>(name, None, None); N],
            code: [code::<S, L::Input, L>(); N],
            len: 1,
            output: PhantomData,
        }
    }

    /// The first field, an array.
    pub const fn first_repeated<L: Entry + Layer<S, L::Input, Output = L::Input>>(
        name: &'static str,
        count: usize,
    ) -> Fields<S, L::Input, N> {
        let mut fields = Self::first::<L>(name);
        fields.sizes[0].count = Some(count);
        fields
    }
}

impl<S: Shape, Y: Activation, const N: usize> Fields<S, Y, N> {
    /// The next field.
    pub const fn then<L: Layer<S, Y>>(self, name: &'static str) -> Fields<S, L::Output, N> {
        self.push::<L>(field::<S, Y, L>(name, None, None))
    }

    /// The next field, an array: its layer's output is its own next input.
    pub const fn repeated<L: Layer<S, Y, Output = Y>>(self, name: &'static str, count: usize) -> Fields<S, Y, N> {
        self.push::<L>(field::<S, Y, L>(name, Some(count), None))
    }

    /// The last field.
    pub const fn head<L: Head<S, Y>>(self, name: &'static str) -> Whole<S, N> {
        self.end::<L>(field::<S, Y, L>(name, None, None))
    }

    /// The last field, which shares the parameters of field `owner`.
    pub const fn tied_head<L: Head<S, Y> + SharesWith<Owner>, Owner>(
        self,
        name: &'static str,
        owner: usize,
    ) -> Whole<S, N> {
        require(
            L::PARAMS <= self.sizes[owner].sizes.params,
            "[Z0205] a tied layer takes more parameters than the field it shares them with has",
        );
        self.end::<L>(field::<S, Y, L>(name, None, Some(owner)))
    }

    const fn push<L: Layer<S, Y>>(mut self, field: Field) -> Fields<S, L::Output, N> {
        self.sizes[self.len] = field;
        self.code[self.len] = code::<S, Y, L>();
        Fields { sizes: self.sizes, code: self.code, len: self.len + 1, output: PhantomData }
    }

    const fn end<L: Head<S, Y>>(self, field: Field) -> Whole<S, N> {
        let head = HeadCode { classes: L::CLASSES, logits: L::logits };
        Whole { fields: self.push::<L>(field), head }
    }
}
