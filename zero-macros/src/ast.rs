//! Ast: the validated structs that the macros work on. Never checks them.

use proc_macro2::Ident;
use syn::{Expr, Generics, LitStr, Type};

/// A struct under `#[zero]`.
pub struct ModelStruct {
    pub name: Ident,
    /// Two or more fields; the last is the head, which is never an array.
    pub fields: Vec<ModelField>,
    pub tied: Option<Tied>,
    /// The JSON in `#[config({...})]`.
    pub config: Option<Json>,
    /// The list in `#[sizes(...)]`.
    pub sizes: Option<Expr>,
}

/// `#[tied(...)]` on the head.
pub struct Tied {
    /// Position of the field whose parameters the head shares.
    pub owner: usize,
    /// The constant that decides whether the head shares; without a constant, it always does.
    pub condition: Option<Expr>,
}

/// A field of a model.
pub struct ModelField {
    pub name: Ident,
    /// The type of the field, or of the elements of an array field.
    pub layer: Type,
    /// The length of an array field.
    pub count: Option<Expr>,
    /// The layers that alternate in an array field; empty if its elements are alike.
    pub alternating: Vec<Type>,
    pub notes: Notes,
}

/// A struct under `#[derive(Layer)]`.
pub struct Layers {
    pub name: Ident,
    pub generics: Generics,
    /// One or more fields.
    pub parts: Vec<LayerPart>,
}

/// A field of a layer.
pub struct LayerPart {
    pub name: Ident,
    pub layer: Type,
    /// Whether its input is added to its output.
    pub residual: bool,
    pub notes: Notes,
}

/// The names and initial values of a field's tensors, from the field's attributes.
#[derive(Default)]
pub struct Notes {
    /// `#[weights(...)]`
    pub weights: Vec<PublishedName>,
    /// `#[init(...)]`
    pub init: Option<Deviations>,
}

/// The name of a part of a field in the published model.
#[derive(Debug, PartialEq)]
pub enum PublishedName {
    Named(String),
    Transposed(String),
    Unnamed,
}

/// Standard deviations of the initial values of matrices.
pub struct Deviations {
    pub all: Expr,
    /// The deviation of the last matrix, if it has its own.
    pub last: Option<Expr>,
}

/// JSON with expressions as values.
pub enum Json {
    Null,
    Object(Vec<(LitStr, Json)>),
    Array(Vec<Json>),
    Value(Expr),
}
