//! Fallback: the expansion of a struct that has mistakes: the errors, the struct, and a stub, so that the compiler does
//! not also report a missing model or layer. Never used by a build that succeeds.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Generics, parse_quote};

use crate::mistake::Mistake;
use crate::stripped::stripped;
use crate::valid::{can_begin, can_end, elements};

/// The struct, and a stub of its model. The mistakes replace the program, so that the compiler regards an error in any
/// use of the plan as already reported.
pub fn model(item: &DeriveInput, mistakes: &[Mistake]) -> TokenStream {
    let (name, stripped, (input, target)) = (&item.ident, stripped(item), ends(item));
    // Without this bound, a generic struct that contains a reference could not be a model.
    let generics = with(&item.generics, |generics| {
        generics.make_where_clause().predicates.push(parse_quote!(Self: 'static));
    });
    let (parameters, arguments, bounds) = generics.split_for_impl();
    quote! {
        #stripped

        const _: () = {
            impl #parameters ::zero_runtime::__private::layer::Shape for #name #arguments #bounds {
                type Device = ::zero_runtime::device::Cpu;
                type Compute = f32;
                const SEQUENCES: usize = 1;
                const LENGTH: usize = 1;
            }

            impl #parameters ::zero_runtime::__private::model::Model for #name #arguments #bounds {
                type Input = #input;
                type Target = #target;
                type Shape = Self;
                const PROGRAM: &'static ::zero_runtime::__private::model::Program<::zero_runtime::__private::model::DeviceOf<Self>> =
                    { #(#mistakes)* };
            }
        };
    }
}

/// The types of the model's input and target, as far as its first and last field decide them.
fn ends(item: &DeriveInput) -> (TokenStream, TokenStream) {
    let fields = match &item.data {
        Data::Struct(data) => data.fields.iter().map(|field| &field.ty).collect(),
        _ => Vec::new(),
    };
    let (first, last) = match fields[..] {
        [first, .., last] => (Some(first).filter(|ty| can_begin(ty)), Some(last).filter(|ty| can_end(ty))),
        _ => (None, None),
    };
    let or_tokens = |of: Option<TokenStream>| of.unwrap_or_else(|| quote!(::zero_runtime::__private::layer::Tokens));
    let input =
        first.map(|ty| elements(ty).0).map(|layer| quote!(<#layer as ::zero_runtime::__private::layer::Entry>::Input));
    let target = last.map(|layer| quote!(<#layer as ::zero_runtime::__private::layer::Head<Self>>::Target));
    (or_tokens(input), or_tokens(target))
}

/// The mistakes, and a layer whose output is its input.
pub fn layers(item: &DeriveInput, mistakes: &[Mistake]) -> TokenStream {
    let name = &item.ident;
    let (_, arguments, bounds) = item.generics.split_for_impl();
    let generics = with(&item.generics, |generics| {
        generics.params.push(parse_quote!(__S: ::zero_runtime::__private::layer::Shape));
        generics.params.push(parse_quote!(__X: ::zero_runtime::__private::layer::Activation));
    });
    let (parameters, _, _) = generics.split_for_impl();
    quote! {
        #(#mistakes)*

        const _: () = {
            impl #parameters ::zero_runtime::__private::layer::Layer<__S, __X> for #name #arguments #bounds {
                type Output = __X;
                const PARAMS: usize = 0;
                const SAVED: usize = 0;
                const WORKSPACE: usize = 0;
                fn tensors(_: &mut ::zero_runtime::__private::layer::Tensors) {}
                fn forward(
                    _: &::zero_runtime::__private::layer::Context<__S::Device>,
                    _: ::zero_runtime::__private::layer::Forward<__S, __X>,
                ) {}
                fn backward(
                    _: &::zero_runtime::__private::layer::Context<__S::Device>,
                    _: ::zero_runtime::__private::layer::Backward<__S, __X>,
                ) {}
            }
        };
    }
}

fn with(generics: &Generics, change: impl FnOnce(&mut Generics)) -> Generics {
    let mut generics = generics.clone();
    change(&mut generics);
    generics
}
