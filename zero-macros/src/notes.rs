//! Notes: writes the published names and deviations of a field, and the JSON of a model. Emission validates nothing.

use proc_macro2::TokenStream;
use quote::quote;

use crate::ast::{Deviations, Json, PublishedName};

/// A list of published names.
pub fn weights(names: &[PublishedName]) -> TokenStream {
    let parts = names.iter().map(|name| match name {
        PublishedName::Named(name) => quote!(Named(#name)),
        PublishedName::Transposed(name) => quote!(Transposed(#name)),
        PublishedName::Unnamed => quote!(Unnamed),
    });
    quote!(&[#(::zero_runtime::__private::layer::PublishedPart::#parts),*])
}

/// The deviation of all matrices, and the deviation of the last matrix.
pub fn init(Deviations { all, last }: &Deviations) -> TokenStream {
    let last = match last {
        Some(last) => quote!(::core::option::Option::Some(#last)),
        None => quote!(::core::option::Option::None),
    };
    quote!(#all, #last)
}

/// A value of JSON. Arrays and objects can have any length, so they are written without `json!`, which uses some levels
/// of recursion for each entry.
pub fn json(json: &Json) -> TokenStream {
    match json {
        Json::Null => quote!(::zero_runtime::__private::serde_json::Value::Null),
        Json::Value(value) => quote!(::zero_runtime::__private::serde_json::json!(#value)),
        Json::Array(values) => {
            let values = values.iter().map(self::json);
            quote!(::zero_runtime::__private::serde_json::Value::Array([#(#values),*].into()))
        }
        Json::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let value = self::json(value);
                quote!((::std::string::String::from(#key), #value))
            });
            quote!(::zero_runtime::__private::serde_json::Value::Object([#(#entries),*].into_iter().collect()))
        }
    }
}
