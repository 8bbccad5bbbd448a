//! Ast: the structs that the macros work on, known to be usable. Holds, never judges.

use proc_macro2::Ident;
use syn::{Expr, Generics, Type};

/// A struct under `#[zero]`.
pub struct Model {
    pub name: Ident,
    /// Two or more; the last is the head, and no array.
    pub fields: Vec<Field>,
    /// Position of the field whose parameters the head shares.
    pub tied: Option<usize>,
}

/// A field of a model.
pub struct Field {
    pub name: Ident,
    /// The type of the field, or of the elements of an array field.
    pub layer: Type,
    /// The length of an array field.
    pub count: Option<Expr>,
}

/// A struct under `#[derive(Layer)]`.
pub struct Layers {
    pub name: Ident,
    pub generics: Generics,
    /// One or more.
    pub parts: Vec<Part>,
}

/// A field of a layer.
pub struct Part {
    pub name: Ident,
    pub layer: Type,
    /// Whether its input is added to what it gives.
    pub residual: bool,
}
