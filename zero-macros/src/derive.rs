//! Derive: writes the `Layer` impl of a struct: the chain of its fields, under their names. Emission validates nothing.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Generics, parse_quote};

use crate::ast::{LayerPart, Layers, Notes};
use crate::notes;

/// The `Entry` and `Layer` impls of the struct. Each field takes the output of the previous field.
pub fn layers(layers: &Layers) -> TokenStream {
    let Layers { name, generics, parts } = layers;
    let types: Vec<_> = parts.iter().map(layer).collect();
    let inputs = inputs(&types);
    let tensors = parts.iter().zip(&types).zip(&inputs).map(|((part, layer), input)| tensors(part, layer, input));
    let (first, chain) = (&types[0], chain(&types));
    let (entry, bounded) = (entry(generics, first), bounded(generics, &types, &inputs));
    let (_, arguments, entry_bounds) = entry.split_for_impl();
    let (parameters, _, bounds) = bounded.split_for_impl();
    let (entry_parameters, _, _) = generics.split_for_impl();
    let used = used(layers);
    quote! {
        const _: () = {
            #[automatically_derived]
            impl #entry_parameters ::zero_runtime::__private::layer::Entry for #name #arguments #entry_bounds {
                type Input = <#first as ::zero_runtime::__private::layer::Entry>::Input;
                const VOCABULARY: ::core::option::Option<usize> =
                    <#first as ::zero_runtime::__private::layer::Entry>::VOCABULARY;
            }

            #[automatically_derived]
            impl #parameters ::zero_runtime::__private::layer::Layer<S, X> for #name #arguments #bounds {
                ::zero_runtime::__layer_items!(#chain);

                fn tensors(__out: &mut ::zero_runtime::__private::layer::Tensors) {
                    #(#tensors)*
                }
            }

            #used
        };
    }
}

/// The layer of a field, with its residual connection. Has the span of the field's type, where errors are shown.
fn layer(part: &LayerPart) -> TokenStream {
    let layer = &part.layer;
    if part.residual {
        quote_spanned!(layer.span()=> ::zero_runtime::__private::layer::Residual<#layer>)
    } else {
        quote!(#layer)
    }
}

/// A statement for a field, which names its tensors.
fn tensors(part: &LayerPart, layer: &TokenStream, input: &TokenStream) -> TokenStream {
    let Notes { weights, init } = &part.notes;
    let title = part.name.unraw().to_string();
    let tensors = quote!(<#layer as ::zero_runtime::__private::layer::Layer<S, #input>>::tensors);
    let tensors = match init.as_ref().map(notes::init) {
        Some(init) => quote!(|__out| __out.initial(#init, #tensors)),
        None => tensors,
    };
    if weights.is_empty() {
        return quote!(__out.scope(#title, #tensors););
    }
    let weights = notes::weights(weights);
    quote!(__out.field(#title, #weights, #tensors);)
}

/// The fields as nested pairs.
fn chain(types: &[TokenStream]) -> TokenStream {
    let mut types = types.iter().cloned();
    let first = types.next().unwrap_or_default();
    types.fold(first, |before, next| quote!(::zero_runtime::__private::layer::Chain<#before, #next>))
}

/// The type that each field takes.
fn inputs(types: &[TokenStream]) -> Vec<TokenStream> {
    let input = |input: &mut TokenStream, layer: &TokenStream| {
        let output = quote!(<#layer as ::zero_runtime::__private::layer::Layer<S, #input>>::Output);
        Some(std::mem::replace(input, output))
    };
    types.iter().scan(quote!(X), input).collect()
}

/// Generics of the `Entry` impl, which applies if the first field is an `Entry`. Without the `for<'__a>`, a bound
/// without parameters would be an error if it did not hold.
fn entry(generics: &Generics, first: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    generics
        .make_where_clause()
        .predicates
        .push(parse_quote!(for<'__a> #first: ::zero_runtime::__private::layer::Entry));
    generics
}

/// Generics of the `Layer` impl: each field is a layer that takes the output of the previous field.
fn bounded(generics: &Generics, types: &[TokenStream], inputs: &[TokenStream]) -> Generics {
    let mut generics = generics.clone();
    generics.params.push(parse_quote!(S: ::zero_runtime::__private::layer::Shape));
    generics.params.push(parse_quote!(X: ::zero_runtime::__private::layer::Activation));
    let bounds = &mut generics.make_where_clause().predicates;
    for (layer, input) in types.iter().zip(inputs) {
        let bound = quote_spanned!(layer.span()=> ::zero_runtime::__private::layer::Layer<S, #input>);
        bounds.push(parse_quote!(#layer: #bound));
    }
    generics
}

/// A use of the struct and of every field. A layer is a type and never a value, so the compiler would otherwise report
/// the struct and its fields as dead code.
fn used(layers: &Layers) -> TokenStream {
    let Layers { name, generics, parts } = layers;
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let fields: Vec<_> = parts.iter().map(|part| &part.name).collect();
    quote! {
        #[allow(dead_code)]
        fn __used #parameters(#name { #(#fields),* }: #name #arguments) -> #name #arguments #bounds {
            #name { #(#fields),* }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::valid;

    #[test]
    fn a_layer_is_the_chain_of_its_fields() {
        let item = parse_quote! {
            struct Block<const W: usize> { #[residual] mix: (Norm<W>, Mix<W>), act: Act, map: Linear<W, W> }
        };
        let expanded = layers(&valid::layers(&item).ok().unwrap()).to_string();
        let mix = quote!(::zero_runtime::__private::layer::Residual<(Norm<W>, Mix<W>)>);
        let mixed = quote!(<#mix as ::zero_runtime::__private::layer::Layer<S, X>>::Output);
        let acted = quote!(<Act as ::zero_runtime::__private::layer::Layer<S, #mixed>>::Output);
        let expected = quote! {
            const _: () = {
                #[automatically_derived]
                impl<const W: usize> ::zero_runtime::__private::layer::Entry for Block<W>
                where
                    for<'__a> #mix: ::zero_runtime::__private::layer::Entry
                {
                    type Input = <#mix as ::zero_runtime::__private::layer::Entry>::Input;
                    const VOCABULARY: ::core::option::Option<usize> =
                        <#mix as ::zero_runtime::__private::layer::Entry>::VOCABULARY;
                }

                #[automatically_derived]
                impl<
                    const W: usize,
                    S: ::zero_runtime::__private::layer::Shape,
                    X: ::zero_runtime::__private::layer::Activation
                > ::zero_runtime::__private::layer::Layer<S, X> for Block<W>
                where
                    #mix: ::zero_runtime::__private::layer::Layer<S, X>,
                    Act: ::zero_runtime::__private::layer::Layer<S, #mixed>,
                    Linear<W, W>: ::zero_runtime::__private::layer::Layer<S, #acted>
                {
                    ::zero_runtime::__layer_items!(
                        ::zero_runtime::__private::layer::Chain<::zero_runtime::__private::layer::Chain<#mix, Act>, Linear<W, W> >
                    );

                    fn tensors(__out: &mut ::zero_runtime::__private::layer::Tensors) {
                        __out.scope("mix", <#mix as ::zero_runtime::__private::layer::Layer<S, X>>::tensors);
                        __out.scope("act", <Act as ::zero_runtime::__private::layer::Layer<S, #mixed>>::tensors);
                        __out.scope("map", <Linear<W, W> as ::zero_runtime::__private::layer::Layer<S, #acted>>::tensors);
                    }
                }

                #[allow(dead_code)]
                fn __used<const W: usize>(Block { mix, act, map }: Block<W>) -> Block<W> {
                    Block { mix, act, map }
                }
            };
        };
        let packed = |tokens: &str| tokens.split_whitespace().collect::<String>();
        assert_eq!(packed(&expanded), packed(&expected.to_string()));
    }

    #[test]
    fn what_attributes_say_of_tensors_is_written_where_they_are_named() {
        let item = parse_quote! {
            struct Block {
                #[weights("norm", transposed("map"), _)]
                #[init(0.5, last = STD)]
                a: A,
                #[init(2.0 * STD)]
                b: B,
                #[weights("c.{}")]
                c: C,
            }
        };
        let expanded = layers(&valid::layers(&item).ok().unwrap()).to_string();
        let second = quote!(<A as ::zero_runtime::__private::layer::Layer<S, X>>::Output);
        let third = quote!(<B as ::zero_runtime::__private::layer::Layer<S, #second>>::Output);
        let expected = quote! {
            fn tensors(__out: &mut ::zero_runtime::__private::layer::Tensors) {
                __out.field(
                    "a",
                    &[
                        ::zero_runtime::__private::layer::PublishedPart::Named("norm"),
                        ::zero_runtime::__private::layer::PublishedPart::Transposed("map"),
                        ::zero_runtime::__private::layer::PublishedPart::Unnamed
                    ],
                    |__out| __out.initial(
                        0.5,
                        ::core::option::Option::Some(STD),
                        <A as ::zero_runtime::__private::layer::Layer<S, X>>::tensors
                    )
                );
                __out.scope(
                    "b",
                    |__out| __out.initial(
                        2.0 * STD,
                        ::core::option::Option::None,
                        <B as ::zero_runtime::__private::layer::Layer<S, #second>>::tensors
                    )
                );
                __out.field(
                    "c",
                    &[::zero_runtime::__private::layer::PublishedPart::Named("c.{}")],
                    <C as ::zero_runtime::__private::layer::Layer<S, #third>>::tensors
                );
            }
        };
        let packed = |tokens: &str| tokens.split_whitespace().collect::<String>();
        assert!(packed(&expanded).contains(&packed(&expected.to_string())), "{expanded}");
    }
}
