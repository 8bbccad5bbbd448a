//! Fallback: what a struct becomes when something is wrong with it: the errors, the struct, and a stub that keeps the
//! compiler from missing what the struct would have been. Never reached by a build that succeeds.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Generics, parse_quote};

use crate::attr::stripped;
use crate::mistake::Mistake;
use crate::valid::elements;

/// The struct, and a model in its name. The mistakes take the place of the plan: the compiler then takes whatever is
/// made of the plan for a mistake that has been told.
pub fn model(item: &DeriveInput, mistakes: &[Mistake]) -> TokenStream {
    let (name, stripped, input) = (&item.ident, stripped(item), input(item));
    // Else a generic struct that holds a reference could not be a model.
    let generics = with(&item.generics, |generics| {
        generics.make_where_clause().predicates.push(parse_quote!(Self: 'static));
    });
    let (parameters, arguments, bounds) = generics.split_for_impl();
    quote! {
        #stripped

        const _: () = {
            impl #parameters ::zero_runtime::layer::Shape for #name #arguments #bounds {
                type Device = ::zero_runtime::device::Cpu;
                const SEQUENCES: usize = 1;
                const LENGTH: usize = 1;
            }

            impl #parameters ::zero_runtime::model::Model for #name #arguments #bounds {
                type Input = #input;
                type Shape = Self;
                const PLAN: &'static ::zero_runtime::plan::Plan<'static> = { #(#mistakes)* };
                const CODE: &'static [::zero_runtime::model::Code<::zero_runtime::device::Cpu>] = &[];
                const HEAD: ::zero_runtime::model::HeadCode<::zero_runtime::device::Cpu> =
                    ::zero_runtime::model::HeadCode { classes: 0, logits: |_, _, _, _| {} };
                const DIRECTORY: &'static str = "";
                const TEXT: ::core::option::Option<&'static [u8]> = ::core::option::Option::None;
            }
        };
    }
}

/// What the model takes, as far as a first field says so.
fn input(item: &DeriveInput) -> TokenStream {
    let Data::Struct(data) = &item.data else { return quote!(::zero_runtime::layer::Tokens) };
    match data.fields.iter().collect::<Vec<_>>()[..] {
        [first, _, ..] => {
            let layer = elements(&first.ty).0;
            quote!(<#layer as ::zero_runtime::layer::Entry>::Input)
        }
        _ => quote!(::zero_runtime::layer::Tokens),
    }
}

/// Mistakes, and a layer that gives what it takes.
pub fn layers(item: &DeriveInput, mistakes: &[Mistake]) -> TokenStream {
    let name = &item.ident;
    let (_, arguments, bounds) = item.generics.split_for_impl();
    let generics = with(&item.generics, |generics| {
        generics.params.push(parse_quote!(__S: ::zero_runtime::layer::Shape));
        generics.params.push(parse_quote!(__X: ::zero_runtime::layer::Activation));
    });
    let (parameters, _, _) = generics.split_for_impl();
    quote! {
        #(#mistakes)*

        const _: () = {
            impl #parameters ::zero_runtime::layer::Layer<__S, __X> for #name #arguments #bounds {
                type Output = __X;
                const PARAMS: usize = 0;
                const SAVED: usize = 0;
                const WORKSPACE: usize = 0;
                fn tensors(_: &mut ::zero_runtime::layer::Tensors) {}
                fn forward(
                    _: &::zero_runtime::layer::Context<__S::Device>,
                    _: ::zero_runtime::layer::Forward<__S::Device>,
                ) {}
                fn backward(
                    _: &::zero_runtime::layer::Context<__S::Device>,
                    _: ::zero_runtime::layer::Backward<__S::Device>,
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
