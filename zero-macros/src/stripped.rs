//! Stripped: a struct without the attributes that only `#[zero]` reads. Never checks them.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput};

use crate::attr::is_zero;
use crate::valid::{is_for_others, is_of_struct};

/// The struct for the compiler: without the attributes that only `#[zero]` reads, or that nothing reads. Its fields are
/// declarations only: no code reads them.
pub fn stripped(item: &DeriveInput) -> TokenStream {
    let mut stripped = item.clone();
    stripped.attrs.retain(|attribute| !is_zero(attribute) && !is_of_struct(attribute, item));
    if let Data::Struct(data) = &mut stripped.data {
        for field in &mut data.fields {
            field.attrs.retain(|attribute| is_for_others(attribute, item));
        }
    }
    let item = stripped;
    let item = item.into_token_stream();
    quote!(#[allow(dead_code, clippy::type_complexity)] #item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_helper_attributes_are_taken() {
        let item = syn::parse_quote!(
            struct A {
                #[doc = "x"]
                a: B,
                #[tied(a)]
                b: C,
            }
        );
        let expected = quote!(
            #[allow(dead_code, clippy::type_complexity)]
            struct A {
                #[doc = "x"]
                a: B,
                b: C,
            }
        );
        assert_eq!(stripped(&item).to_string(), expected.to_string());
    }
}
