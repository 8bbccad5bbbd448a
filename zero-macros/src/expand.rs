//! Expand: writes the `Model` impl of a struct: one chain of its fields, from which the compiler computes the plan and
//! the dispatch. Emission validates nothing.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Expr, Type};
use zero_plan::{Config, DeviceKind, Width};

use crate::ast::{ModelField, ModelStruct, Tied};
use crate::choice::{Choice, ChosenKey};
use crate::constants::{config, number};
use crate::environment::Environment;
use crate::notes;
use crate::stripped::stripped;

/// The struct, then its `Model` impl. Names begin with `__`, because the types of fields are named in the same scope.
pub fn model(item: &DeriveInput, model: &ModelStruct, choice: &Choice, environment: &Environment) -> TokenStream {
    let item = stripped(item);
    let ModelStruct { name, fields, .. } = model;
    let first = &fields[0].layer;
    let input = quote_spanned!(first.span()=> <#first as ::zero_runtime::__private::layer::Entry>::Input);
    let head = &fields[fields.len() - 1].layer;
    // From the layer's first token to its last, so that a layer that is not a head is reported at these tokens, and once.
    let end = head.to_token_stream().into_iter().last().map_or(head.span(), |token| token.span());
    let mut target = quote_spanned!(head.span()=> <#head as ::zero_runtime::__private::layer::Head<#name>>);
    target.extend(quote_spanned!(end=> ::Target));
    let chain = chain(model, name);
    let (title, count) = (name.unraw().to_string(), number(first_entry(fields)));
    let (shape, config) = (shape(name, choice), config(&choice.config));
    let (rebuild, published, size) = (rebuild(&choice.config), published(model), size(model));
    let has_text = environment.has_text.then(|| quote!(has_text: true,));
    let probes = probes(model, choice, environment);
    let spec = choice.file.as_ref().map_or("#[zero]", |file| &file.shown);
    let spec_text = spec_text(choice);
    quote! {
        #item

        const _: () = {
            #rebuild

            #shape

            const __WHOLE: ::zero_runtime::__private::model::Whole<#name, #count> = { #chain };

            static __PLAN: ::zero_runtime::plan::Plan<'static> =
                ::zero_runtime::plan::static_plan!(
                    #title,
                    #config,
                    &__WHOLE.fields.sizes,
                    <#name as ::zero_runtime::__private::layer::Shape>::ORIGIN
                );

            static __PROGRAM: ::zero_runtime::__private::model::Program<::zero_runtime::__private::model::DeviceOf<#name>> =
                ::zero_runtime::__private::model::Program {
                    name: ::core::concat!(::core::module_path!(), "::", #title),
                    directory: ::core::env!("CARGO_MANIFEST_DIR"),
                    spec: #spec,
                    spec_text: #spec_text,
                    #has_text
                    #published
                    #size
                    #probes
                    ..__WHOLE.program(&__PLAN)
                };

            impl ::zero_runtime::__private::model::Model for #name {
                type Input = #input;
                type Target = #target;
                type Shape = Self;
                const PROGRAM: &'static ::zero_runtime::__private::model::Program<::zero_runtime::__private::model::DeviceOf<Self>> = &__PROGRAM;
            }
        };
    }
}

/// Number of entries of these fields in the model's table: one for each field, or one for each layer that alternates in it.
fn first_entry(fields: &[ModelField]) -> usize {
    fields.iter().map(|field| field.alternating.len().max(1)).sum()
}

/// The statements for all fields, in order, under a shape.
fn chain(model: &ModelStruct, shape: &Ident) -> TokenStream {
    (0..model.fields.len()).map(|position| statement(model, shape, position)).collect()
}

/// The sizes of all fields under other shapes. Only sizes are compiled for those shapes.
fn probes(model: &ModelStruct, choice: &Choice, environment: &Environment) -> Option<TokenStream> {
    if environment.shapes.is_empty() {
        return None;
    }
    let (device, count, shape) = (device(choice), number(first_entry(&model.fields)), format_ident!("__Probe"));
    let chain = chain(model, &shape);
    let probes = environment.shapes.iter().map(|&(width, sequences, length)| {
        let (compute, sequences, length) = (compute(width), number(sequences), number(length));
        let width = format_ident!("{width:?}");
        quote!({
            struct #shape;
            impl ::zero_runtime::__private::layer::Shape for #shape {
                type Device = #device;
                type Compute = #compute;
                const SEQUENCES: usize = #sequences;
                const LENGTH: usize = #length;
            }
            const __WHOLE: ::zero_runtime::__private::model::Whole<#shape, #count> = { #chain };
            const __SIZES: [::zero_runtime::plan::Field; #count] = __WHOLE.fields.sizes;
            ::zero_runtime::__private::model::ShapeSizes {
                compute: ::zero_runtime::plan::Width::#width,
                sequences: #sequences,
                length: #length,
                fields: &__SIZES,
            }
        })
    });
    Some(quote!(probes: &[#(#probes),*],))
}

/// The statements for a field.
fn statement(model: &ModelStruct, shape: &Ident, position: usize) -> TokenStream {
    let fields = &model.fields;
    let ModelField { layer, notes, .. } = &fields[position];
    let place = layer.span();
    let added = if position == 0 { first(model, shape) } else { next(model, position) };
    let weights = (!notes.weights.is_empty()).then(|| notes::weights(&notes.weights));
    let weights = weights.map(|weights| quote_spanned!(place=> let __fields = __fields.weights(#weights);));
    let init = notes.init.as_ref().map(notes::init);
    let init = init.map(|init| quote_spanned!(place=> let __fields = __fields.init(|| (#init));));
    let end = (position + 1 == fields.len()).then(|| {
        let code = quote_spanned!(place=> <#layer as ::zero_runtime::__private::layer::Head<#shape>>::CODE);
        // Not a method: the compiler would then report a layer that is not a head twice.
        quote_spanned!(place=> ::zero_runtime::__private::model::Fields::end(__fields, #code))
    });
    quote!(#added #weights #init #end)
}

/// The first field, with the span of its type, so that a width that does not fit is reported there.
fn first(model: &ModelStruct, shape: &Ident) -> TokenStream {
    let (field, entries) = (&model.fields[0], number(first_entry(&model.fields)));
    let (layer, title, place) = (&field.layer, field.name.unraw().to_string(), field.layer.span());
    let first = match (&field.count, &field.alternating[..]) {
        (Some(count), []) => quote_spanned!(place=> first_repeated::<#layer>(#title, #count)),
        (Some(count), layers) => alternating(quote!(first_alternating), &title, count, layers),
        (None, _) => quote_spanned!(place=> first::<#layer>(#title)),
    };
    quote_spanned!(place=> let __fields = ::zero_runtime::__private::model::Fields::<#shape, (), #entries>::#first;)
}

/// A field after the first, with the span of its type.
fn next(model: &ModelStruct, position: usize) -> TokenStream {
    let ModelField { name, layer, count, alternating: layers, .. } = &model.fields[position];
    let (title, place) = (name.unraw().to_string(), layer.span());
    let is_head = position + 1 == model.fields.len();
    let next = match (count, &layers[..], &model.tied) {
        (Some(count), [], _) => quote_spanned!(place=> repeated::<#layer>(#title, #count)),
        (Some(count), layers, _) => alternating(quote!(alternating), &title, count, layers),
        (None, _, Some(Tied { owner, condition })) if is_head => {
            let (shared, owner) = (&model.fields[*owner].layer, number(first_entry(&model.fields[..*owner])));
            let is_tied = condition.as_ref().map_or_else(|| quote!(true), ToTokens::to_token_stream);
            quote_spanned!(place=> tied::<#layer, #shared>(#title, #owner, #is_tied))
        }
        (None, _, _) => quote_spanned!(place=> then::<#layer>(#title)),
    };
    quote_spanned!(place=> let __fields = __fields.#next;)
}

/// The layers that alternate, each with the span of its type.
fn alternating(method: TokenStream, title: &str, count: &Expr, layers: &[Type]) -> TokenStream {
    let (len, last) = (number(layers.len()), layers.len() - 1);
    let calls = layers.iter().enumerate().map(|(i, layer)| match i {
        0 => quote_spanned!(layer.span()=> #method::<#layer>(#title, #count, #len)),
        _ if i < last => quote_spanned!(layer.span()=> .then::<#layer>()),
        _ => quote_spanned!(layer.span()=> .last::<#layer>()),
    });
    quote!(#(#calls)*)
}

/// The content of the published model's `config.json`.
fn published(model: &ModelStruct) -> Option<TokenStream> {
    let config = notes::json(model.config.as_ref()?);
    Some(quote!(config: || #config,))
}

/// The name of the model's size, if nothing names one.
fn size(model: &ModelStruct) -> Option<TokenStream> {
    let sizes = model.sizes.as_ref()?;
    let size =
        quote_spanned!(sizes.span()=> ::zero_runtime::__private::unnamed(#sizes, ::core::option_env!("ZERO_SIZE")));
    Some(quote!(size: #size,))
}

/// The constants that sizes of layers depend on, as constants of the struct, and where they are written.
fn shape(name: &Ident, choice: &Choice) -> TokenStream {
    let (sequences, length) = (number(choice.config.sequences), number(choice.config.length));
    let (device, compute, origin) = (device(choice), compute(choice.config.precision.compute), origin(choice));
    quote! {
        impl ::zero_runtime::__private::layer::Shape for #name {
            type Device = #device;
            type Compute = #compute;
            const SEQUENCES: usize = #sequences;
            const LENGTH: usize = #length;
            const ORIGIN: ::zero_runtime::plan::Origin = #origin;
        }
    }
}

/// The type of the device.
fn device(choice: &Choice) -> TokenStream {
    match (&choice.device, choice.config.device) {
        (Some(own), _) => own.to_token_stream(),
        (None, DeviceKind::Cpu) => quote!(::zero_runtime::device::Cpu),
        (None, DeviceKind::Cuda) => quote!(::zero_runtime::cuda_device!()),
    }
}

/// The type that layers compute in.
fn compute(width: Width) -> TokenStream {
    match width {
        Width::F32 => quote!(f32),
        Width::BF16 => quote!(::zero_runtime::device::bf16),
    }
}

/// The places of the keys that errors of constants name.
fn origin(choice: &Choice) -> TokenStream {
    let source = match &choice.file {
        Some(file) => {
            let shown = &file.shown;
            quote!(File(#shown))
        }
        None => quote!(Attribute),
    };
    let given = choice.given.iter().map(|ChosenKey { path, value, place: (line, column) }| {
        let (line, column) = (number(*line), number(*column));
        quote!(::zero_runtime::plan::Given { path: #path, value: #value, line: #line, column: #column })
    });
    quote! {
        ::zero_runtime::plan::Origin { source: ::zero_runtime::plan::Source::#source, given: &[#(#given),*] }
    }
}

/// Makes cargo build again if another spec or list of shapes is chosen, if a text will lie beside the binary, or if it is a
/// worker. Because the text of the spec is included, cargo also builds again if that text changes.
fn rebuild(config: &Config) -> TokenStream {
    let published = config.publishes().then(|| quote!(::zero_runtime::published!();));
    let served = config.serves().then(|| quote!(::zero_runtime::served!();));
    quote! {
        #published
        #served
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_SPEC");
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_TEXT");
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_PROBE");
        const _: ::core::option::Option<&str> = ::core::option_env!("ZERO_SERVE");
    }
}

/// The text of the spec's file, or of an equivalent file if the spec is in the attribute.
fn spec_text(choice: &Choice) -> TokenStream {
    match &choice.file {
        Some(file) => {
            let file = file.path.display().to_string();
            quote!(::core::include_str!(#file))
        }
        None => {
            let text = choice.spec.to_string();
            quote!(#text)
        }
    }
}

#[cfg(test)]
mod tests;
