//! Chain: layers one after another, as pairs, tuples or derived structs; and the residual connection. Never has a
//! kernel of its own: additions and activations are left to the layer that has the values in the cache.

use zero_plan::Message;

use super::{
    Activation, Backward, Context, ElementOf, Entry, Forward, Layer, OrthogonalCost, SameAs, Shape, Tensors, misplaced,
};
use crate::checked::{bytes, either, max, product, sum};
use crate::device::{Kernels, Then};
use crate::view::{View, ViewMut};

/// `B` after `A`. The activation between them is saved, because it is the input that `B`'s backward needs.
pub struct Chain<A, B>(A, B);

impl<S: Shape, X: Activation, A: Layer<S, X>, B: Layer<S, A::Output>> Layer<S, X> for Chain<A, B> {
    type Output = B::Output;
    const PARAMS: usize = sum(&[A::PARAMS, B::PARAMS]);
    const SAVED: usize = sum(&[A::SAVED, between::<S, A::Output>(), B::SAVED]);
    // Backward keeps the gradient of the activation between them while it runs either layer, and the losses of a head.
    const WORKSPACE: usize = sum(&[
        between::<S, A::Output>(),
        bytes::<f32>(losses::<S, A::Output, B>(S::TOKENS)),
        max(A::WORKSPACE, B::WORKSPACE),
    ]);
    const OPERATIONS: usize = sum(&[A::OPERATIONS, B::OPERATIONS]);
    const ATTENDING: usize = sum(&[A::ATTENDING, B::ATTENDING]);
    const CACHE: usize = sum(&[A::CACHE, B::CACHE]);
    const MATRICES: OrthogonalCost = A::MATRICES.and(B::MATRICES);
    const FAULT: Option<Message> =
        either(either(A::FAULT, B::FAULT), either(misplaced::<S, X, A>(), misplaced::<S, A::Output, B>()));

    fn tensors(out: &mut Tensors) {
        A::tensors(out);
        B::tensors(out);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, X, B::Output>) {
        Self::forward_then(cx, pass, Then::Nothing);
    }

    fn forward_then(cx: &Context<S::Device>, mut pass: Forward<S, X, B::Output>, then: Then<S::Device, S::Compute>) {
        let (params_a, params_b) = pass.params.split_at(A::PARAMS);
        let (saved_a, rest) = pass.saved.split_at(A::SAVED);
        let (mut between, saved_b) = rest.take::<ElementOf<S, A::Output>>(cx.tokens() * A::Output::WIDTH);
        let work = pass.work.reborrow();
        let pass_a = Forward { params: params_a, x: pass.x, y: between.reborrow(), saved: saved_a, work };
        if let Some(kind) = B::ACTIVATION {
            A::forward_then(cx, pass_a, Then::Activate(kind, pass.y.reborrow().cast()));
            return then.apply(cx.device, pass.y.cast());
        }
        A::forward(cx, pass_a);
        let pass_b = Forward { params: params_b, x: between.as_view(), y: pass.y, saved: saved_b, work: pass.work };
        B::forward_then(cx, pass_b, then);
    }

    fn decode(cx: &Context<S::Device>, mut pass: Forward<S, X, B::Output>, cache: ViewMut<S::Device, u8>) {
        let (params_a, params_b) = pass.params.split_at(A::PARAMS);
        let (saved_a, rest) = pass.saved.split_at(A::SAVED);
        let (cache_a, cache_b) = cache.split_at(cx.slots * A::CACHE);
        let (mut between, saved_b) = rest.take::<ElementOf<S, A::Output>>(cx.tokens() * A::Output::WIDTH);
        let work = pass.work.reborrow();
        A::decode(cx, Forward { params: params_a, x: pass.x, y: between.reborrow(), saved: saved_a, work }, cache_a);
        let pass_b = Forward { params: params_b, x: between.as_view(), y: pass.y, saved: saved_b, work: pass.work };
        B::decode(cx, pass_b, cache_b);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, X, B::Output>) {
        Self::backward_with(cx, pass, A::backward);
    }

    fn backward_plus(cx: &Context<S::Device>, pass: Backward<S, X, B::Output>, plus: View<S::Device, S::Compute>) {
        Self::backward_with(cx, pass, |cx, pass| A::backward_plus(cx, pass, plus));
    }
}

impl<A, B> Chain<A, B> {
    /// The backward pass, with `backward_a` as that of `A`.
    fn backward_with<S: Shape, X: Activation>(
        cx: &Context<S::Device>,
        pass: Backward<S, X, B::Output>,
        backward_a: impl FnOnce(&Context<S::Device>, Backward<S, X, A::Output>),
    ) where
        A: Layer<S, X>,
        B: Layer<S, A::Output>,
    {
        let (params_a, params_b) = pass.params.split_at(A::PARAMS);
        let (grads_a, grads_b) = pass.grads.split_at(A::PARAMS);
        let (saved_a, rest) = pass.saved.split_at(A::SAVED);
        let len = cx.tokens() * A::Output::WIDTH;
        let (between, saved_b) = rest.take::<ElementOf<S, A::Output>>(len);
        let (mut dbetween, work) = pass.work.take::<ElementOf<S, A::Output>>(len);
        let (mut losses, mut work) = work.take::<f32>(losses::<S, A::Output, B>(cx.tokens()));
        let dy = if B::LOSSES_IN_BACKWARD { View::empty() } else { pass.dy };
        if B::LOSSES_IN_BACKWARD {
            cx.device.copy(losses.reborrow(), pass.dy.cast());
        }
        B::backward(
            cx,
            Backward {
                params: params_b,
                grads: grads_b,
                x: between,
                saved: saved_b,
                dy,
                losses: losses.reborrow(),
                dx: Some(dbetween.reborrow()),
                work: work.reborrow(),
            },
        );
        let pass_a = Backward {
            params: params_a,
            grads: grads_a,
            x: pass.x,
            saved: saved_a,
            dy: dbetween.as_view(),
            losses: ViewMut::empty(),
            dx: pass.dx,
            work,
        };
        backward_a(cx, pass_a);
    }
}

/// The number of losses that the backward of a chain's last layer leaves. The chain itself leaves none: training runs
/// its forward, because the backward of the first layer needs what the forward saves.
const fn losses<S: Shape, X: Activation, B: Layer<S, X>>(tokens: usize) -> usize {
    if B::LOSSES_IN_BACKWARD { tokens } else { 0 }
}

/// Bytes of the activation between two layers.
const fn between<S: Shape, X: Activation>() -> usize {
    bytes::<ElementOf<S, X>>(product(&[S::TOKENS, X::WIDTH]))
}

/// y = x + L(x).
pub struct Residual<L>(L);

impl<S: Shape, X: Activation, L: Layer<S, X>> Layer<S, X> for Residual<L>
where
    L::Output: SameAs<X>,
{
    type Output = X;
    const PARAMS: usize = L::PARAMS;
    const SAVED: usize = L::SAVED;
    const WORKSPACE: usize = L::WORKSPACE;
    const CACHE: usize = L::CACHE;
    const MATRICES: OrthogonalCost = L::MATRICES;
    const FAULT: Option<Message> = either(L::FAULT, misplaced::<S, X, L>());
    // It adds the input, element by element.
    const OPERATIONS: usize = sum(&[L::OPERATIONS, product(&[S::TOKENS, X::WIDTH])]);
    const ATTENDING: usize = L::ATTENDING;

    fn tensors(out: &mut Tensors) {
        L::tensors(out);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, X>) {
        let Forward { params, x, y, saved, work } = pass;
        L::forward_then(cx, Forward { params, x, y: y.cast(), saved, work }, Then::Add(x.cast()));
    }

    fn decode(cx: &Context<S::Device>, pass: Forward<S, X>, cache: ViewMut<S::Device, u8>) {
        let Forward { params, x, mut y, saved, work } = pass;
        L::decode(cx, Forward { params, x, y: y.reborrow().cast(), saved, work }, cache);
        cx.device.add::<S::Compute>(y.cast(), x.cast());
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, X>) {
        let Backward { params, grads, x, saved, dy, losses, dx, work } = pass;
        L::backward_plus(cx, Backward { params, grads, x, saved, dy: dy.cast(), losses, dx, work }, dy.cast());
    }
}

impl<L: Entry> Entry for Residual<L> {
    type Input = L::Input;
    const VOCABULARY: Option<usize> = L::VOCABULARY;
}

/// The items of a `Layer<S, X>` impl that delegates everything but names to `$body`.
#[doc(hidden)]
#[macro_export]
macro_rules! __layer_items {
    ($body:ty) => {
        type Output = <$body as $crate::layer::Layer<S, X>>::Output;
        const PARAMS: usize = <$body as $crate::layer::Layer<S, X>>::PARAMS;
        const SAVED: usize = <$body as $crate::layer::Layer<S, X>>::SAVED;
        const WORKSPACE: usize = <$body as $crate::layer::Layer<S, X>>::WORKSPACE;
        const OPERATIONS: usize = <$body as $crate::layer::Layer<S, X>>::OPERATIONS;
        const ATTENDING: usize = <$body as $crate::layer::Layer<S, X>>::ATTENDING;
        const CACHE: usize = <$body as $crate::layer::Layer<S, X>>::CACHE;
        const MATRICES: $crate::layer::OrthogonalCost = <$body as $crate::layer::Layer<S, X>>::MATRICES;
        const FAULT: Option<$crate::plan::Message> = <$body as $crate::layer::Layer<S, X>>::FAULT;
        const ACTIVATION: Option<$crate::device::Nonlinearity> = <$body as $crate::layer::Layer<S, X>>::ACTIVATION;
        const LOSSES_IN_BACKWARD: bool = <$body as $crate::layer::Layer<S, X>>::LOSSES_IN_BACKWARD;

        fn forward(cx: &$crate::layer::Context<S::Device>, pass: $crate::layer::Forward<S, X, Self::Output>) {
            <$body as $crate::layer::Layer<S, X>>::forward(cx, pass)
        }

        fn backward(cx: &$crate::layer::Context<S::Device>, pass: $crate::layer::Backward<S, X, Self::Output>) {
            <$body as $crate::layer::Layer<S, X>>::backward(cx, pass)
        }

        fn decode(
            cx: &$crate::layer::Context<S::Device>,
            pass: $crate::layer::Forward<S, X, Self::Output>,
            cache: $crate::view::ViewMut<S::Device, u8>,
        ) {
            <$body as $crate::layer::Layer<S, X>>::decode(cx, pass, cache)
        }

        fn forward_then(
            cx: &$crate::layer::Context<S::Device>,
            pass: $crate::layer::Forward<S, X, Self::Output>,
            then: $crate::device::Then<S::Device, S::Compute>,
        ) {
            <$body as $crate::layer::Layer<S, X>>::forward_then(cx, pass, then)
        }

        fn backward_plus(
            cx: &$crate::layer::Context<S::Device>,
            pass: $crate::layer::Backward<S, X, Self::Output>,
            plus: $crate::view::View<S::Device, S::Compute>,
        ) {
            <$body as $crate::layer::Layer<S, X>>::backward_plus(cx, pass, plus)
        }
    };
}

/// A tuple is the chain of its elements, named by their places.
macro_rules! tuple {
    ($body:ty; $first:ident $(, $layer:ident $place:literal on $input:ty)*) => {
        impl<$first: Entry $(, $layer)*> Entry for ($first, $($layer,)*) {
            type Input = $first::Input;
            const VOCABULARY: Option<usize> = $first::VOCABULARY;
        }

        impl<S: Shape, X: Activation, $first: Layer<S, X> $(, $layer)*> Layer<S, X> for ($first, $($layer,)*)
        where
            $($layer: Layer<S, $input>,)*
        {
            __layer_items!($body);

            fn tensors(out: &mut Tensors) {
                out.scope("0", <$first as Layer<S, X>>::tensors);
                $(out.scope($place, <$layer as Layer<S, $input>>::tensors);)*
            }
        }
    };
}

/// The output of `L` when it takes `X`. Bounds name outputs only by this alias: through the impl of `Chain`, the
/// compiler would need the bounds to prove the bounds.
type Out<S, X, L> = <L as Layer<S, X>>::Output;
type Out2<S, X, A, B> = Out<S, Out<S, X, A>, B>;
type Out3<S, X, A, B, C> = Out<S, Out2<S, X, A, B>, C>;
type Out4<S, X, A, B, C, D> = Out<S, Out3<S, X, A, B, C>, D>;
type Out5<S, X, A, B, C, D, E> = Out<S, Out4<S, X, A, B, C, D>, E>;
type Out6<S, X, A, B, C, D, E, F> = Out<S, Out5<S, X, A, B, C, D, E>, F>;
type Out7<S, X, A, B, C, D, E, F, G> = Out<S, Out6<S, X, A, B, C, D, E, F>, G>;
type Out8<S, X, A, B, C, D, E, F, G, H> = Out<S, Out7<S, X, A, B, C, D, E, F, G>, H>;
type Out9<S, X, A, B, C, D, E, F, G, H, I> = Out<S, Out8<S, X, A, B, C, D, E, F, G, H>, I>;
type Out10<S, X, A, B, C, D, E, F, G, H, I, J> = Out<S, Out9<S, X, A, B, C, D, E, F, G, H, I>, J>;
type Out11<S, X, A, B, C, D, E, F, G, H, I, J, K> = Out<S, Out10<S, X, A, B, C, D, E, F, G, H, I, J>, K>;

tuple!(A; A);
tuple!(Chain<A, B>;
    A, B "1" on Out<S, X, A>);
tuple!(Chain<Chain<A, B>, C>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>);
tuple!(Chain<Chain<Chain<A, B>, C>, D>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>);
tuple!(Chain<Chain<Chain<Chain<A, B>, C>, D>, E>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>);
tuple!(Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>, H>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>,
    H "7" on Out7<S, X, A, B, C, D, E, F, G>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>, H>, I>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>,
    H "7" on Out7<S, X, A, B, C, D, E, F, G>, I "8" on Out8<S, X, A, B, C, D, E, F, G, H>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>, H>, I>, J>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>,
    H "7" on Out7<S, X, A, B, C, D, E, F, G>, I "8" on Out8<S, X, A, B, C, D, E, F, G, H>,
    J "9" on Out9<S, X, A, B, C, D, E, F, G, H, I>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>, H>, I>, J>, K>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>,
    H "7" on Out7<S, X, A, B, C, D, E, F, G>, I "8" on Out8<S, X, A, B, C, D, E, F, G, H>,
    J "9" on Out9<S, X, A, B, C, D, E, F, G, H, I>, K "10" on Out10<S, X, A, B, C, D, E, F, G, H, I, J>);
tuple!(Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<Chain<A, B>, C>, D>, E>, F>, G>, H>, I>, J>, K>, L>;
    A, B "1" on Out<S, X, A>, C "2" on Out2<S, X, A, B>, D "3" on Out3<S, X, A, B, C>,
    E "4" on Out4<S, X, A, B, C, D>, F "5" on Out5<S, X, A, B, C, D, E>, G "6" on Out6<S, X, A, B, C, D, E, F>,
    H "7" on Out7<S, X, A, B, C, D, E, F, G>, I "8" on Out8<S, X, A, B, C, D, E, F, G, H>,
    J "9" on Out9<S, X, A, B, C, D, E, F, G, H, I>, K "10" on Out10<S, X, A, B, C, D, E, F, G, H, I, J>,
    L "11" on Out11<S, X, A, B, C, D, E, F, G, H, I, J, K>);
