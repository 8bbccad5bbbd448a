//! Alternating: a field whose elements alternate, `#[alternating] blocks: [(A, B); 8]`: each is a unit with sizes and code of
//! its own. Holds constants only.

use core::marker::PhantomData;

use super::{Fields, elements, field};
use crate::layer::{Activation, Entry, Layer, SameAs, Shape};

/// A field while its elements are added: the first element takes `X`, so the output of the last must be `X`.
pub struct AlternatingFields<S: Shape, X, Y, const N: usize> {
    fields: Fields<S, Y, N>,
    input: PhantomData<fn() -> X>,
}

impl<S: Shape, const N: usize> Fields<S, (), N> {
    /// The first field, an array in which `period` layers alternate; `L` is the first of them.
    #[track_caller]
    pub const fn first_alternating<L: Entry + Layer<S, L::Input>>(
        name: &'static str,
        count: usize,
        period: usize,
    ) -> AlternatingFields<S, L::Input, L::Output, N> {
        AlternatingFields::begun(Self::first_of::<L>(name, Some(elements(name, count))), period)
    }
}

impl<S: Shape, Y: Activation, const N: usize> Fields<S, Y, N> {
    /// The next field, an array in which `period` layers alternate; `L` is the first of them.
    #[track_caller]
    pub const fn alternating<L: Layer<S, Y>>(
        self,
        name: &'static str,
        count: usize,
        period: usize,
    ) -> AlternatingFields<S, Y, L::Output, N> {
        AlternatingFields::begun(self.push::<L>(field::<S, Y, L>(name, Some(elements(name, count)), None)), period)
    }
}

impl<S: Shape, X, Y, const N: usize> AlternatingFields<S, X, Y, N> {
    const fn begun(mut fields: Fields<S, Y, N>, period: usize) -> Self {
        fields.sizes[fields.len - 1].period = period;
        Self { fields, input: PhantomData }
    }
}

impl<S: Shape, X, Y: Activation, const N: usize> AlternatingFields<S, X, Y, N> {
    /// The next layer in turn.
    #[track_caller]
    pub const fn then<L: Layer<S, Y>>(self) -> AlternatingFields<S, X, L::Output, N> {
        let Self { fields, .. } = self;
        let before = fields.sizes[fields.len - 1];
        let mut next = field::<S, Y, L>(before.name, before.count, None);
        next.period = 0;
        AlternatingFields { fields: fields.push::<L>(next), input: PhantomData }
    }

    /// The last layer in turn: its output is the input of the first.
    #[track_caller]
    pub const fn last<L: Layer<S, Y>>(self) -> Fields<S, X, N>
    where
        L::Output: SameAs<X>,
    {
        let AlternatingFields { fields, .. } = self.then::<L>();
        fields.giving()
    }
}
