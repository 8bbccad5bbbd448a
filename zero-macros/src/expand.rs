//! Expand: writes the `Model` of a struct: one chain of its fields, from which the compiler computes the plan and the
//! dispatch. Emission validates nothing.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{quote, quote_spanned};
use syn::DeriveInput;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use zero_plan::{Config, Transport};

use crate::ast::Model;
use crate::attr::stripped;
use crate::choice::Choice;
use crate::environment::Environment;

/// The struct, and its `Model` beside it. Names begin with `__`, as the types of fields are named in the same scope.
pub fn model(item: &DeriveInput, model: &Model, choice: &Choice, environment: &Environment) -> TokenStream {
    let item = stripped(item);
    let Model { name, fields, .. } = model;
    let first = &fields[0].layer;
    let input = quote_spanned!(first.span()=> <#first as ::zero_runtime::layer::Entry>::Input);
    let (title, count) = (name.unraw().to_string(), number(fields.len()));
    let (chain, shape, config) = (chain(model), shape(name, &choice.config), config(&choice.config));
    let (rebuild, text) = (rebuild(choice), text(environment));
    quote! {
        #item

        const _: () = {
            #rebuild

            #shape

            const __WHOLE: ::zero_runtime::model::Whole<#name, #count> = #chain;

            static __PLAN: ::zero_runtime::plan::Plan<'static> =
                ::zero_runtime::plan::static_plan!(#title, #config, &__WHOLE.fields.sizes);

            impl ::zero_runtime::model::Model for #name {
                type Input = #input;
                type Shape = Self;
                const PLAN: &'static ::zero_runtime::plan::Plan<'static> = &__PLAN;
                const CODE: &'static [::zero_runtime::model::Code<::zero_runtime::device::Cpu>] =
                    &__WHOLE.fields.code;
                const HEAD: ::zero_runtime::model::HeadCode<::zero_runtime::device::Cpu> = __WHOLE.head;
                const DIRECTORY: &'static str = ::core::env!("CARGO_MANIFEST_DIR");
                const TEXT: ::core::option::Option<&'static [u8]> = #text;
            }
        };
    }
}

/// The fields, one call each. The calls carry types as they were written, so a width that does not fit is shown there.
fn chain(model: &Model) -> TokenStream {
    let Model { name, fields, tied } = model;
    let count = number(fields.len());
    let calls = fields.iter().enumerate().map(|(position, field)| {
        let (layer, title) = (&field.layer, field.name.unraw().to_string());
        let at = layer.span();
        let (is_first, is_last) = (position == 0, position + 1 == fields.len());
        match (&field.count, tied) {
            (Some(count), _) if is_first => quote_spanned!(at=> first_repeated::<#layer>(#title, #count)),
            (Some(count), _) => quote_spanned!(at=> repeated::<#layer>(#title, #count)),
            (None, _) if is_first => quote_spanned!(at=> first::<#layer>(#title)),
            (None, Some(owner)) if is_last => {
                let (shared, owner) = (&fields[*owner].layer, number(*owner));
                quote_spanned!(at=> tied_head::<#layer, #shared>(#title, #owner))
            }
            (None, _) if is_last => quote_spanned!(at=> head::<#layer>(#title)),
            (None, _) => quote_spanned!(at=> then::<#layer>(#title)),
        }
    });
    quote!(::zero_runtime::model::Fields::<#name, (), #count>:: #(#calls).*)
}

/// What the sizes of layers depend on, as the struct's own constants.
pub fn shape(name: &Ident, config: &Config) -> TokenStream {
    let (sequences, length) = (number(config.sequences), number(config.length));
    quote! {
        impl ::zero_runtime::layer::Shape for #name {
            type Device = ::zero_runtime::device::Cpu;
            const SEQUENCES: usize = #sequences;
            const LENGTH: usize = #length;
        }
    }
}

/// The spec as constants.
fn config(config: &Config) -> TokenStream {
    let stage = Literal::u8_unsuffixed(config.stage);
    let [ranks, prefetch, bucket_bytes, sequences, length, micro_batches] =
        [config.ranks, config.prefetch, config.bucket_bytes, config.sequences, config.length, config.micro_batches]
            .map(number);
    let transport = match config.transport {
        Transport::Local => quote!(Local),
        Transport::Shm => quote!(Shm),
    };
    let memory_bytes = match config.memory_bytes.map(number) {
        Some(bytes) => quote!(::core::option::Option::Some(#bytes)),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        ::zero_runtime::plan::Config {
            stage: #stage,
            ranks: #ranks,
            prefetch: #prefetch,
            bucket_bytes: #bucket_bytes,
            sequences: #sequences,
            length: #length,
            micro_batches: #micro_batches,
            transport: ::zero_runtime::plan::Transport::#transport,
            memory_bytes: #memory_bytes,
        }
    }
}

/// What makes cargo build again: another choice of spec or text, or a change in the spec.
fn rebuild(choice: &Choice) -> TokenStream {
    let file = choice.file.as_ref().map(|file| {
        let file = file.display().to_string();
        quote!(
            const _: &str = ::core::include_str!(#file);
        )
    });
    quote! {
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_SPEC");
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_TEXT");
        #file
    }
}

/// The text that the binary carries.
fn text(environment: &Environment) -> TokenStream {
    match &environment.text {
        Some(file) => {
            let file = file.display().to_string();
            quote!(::core::option::Option::Some(::core::include_bytes!(#file)))
        }
        None => quote!(::core::option::Option::None),
    }
}

/// A number as people write it, without a suffix.
fn number(number: usize) -> Literal {
    Literal::usize_unsuffixed(number)
}
