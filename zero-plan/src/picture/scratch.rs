//! Scratch: types of the simulation, until it is here.
#![allow(missing_docs)]

#[derive(Clone, Debug)]
pub struct Timeline {
    pub lanes: Vec<Lane>,
    pub step_s: f64,
}
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub spans: Vec<Span>,
    pub transfers: Vec<Transfer>,
}
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start_s: f64,
    pub end_s: f64,
    pub waited_s: f64,
}
#[derive(Clone, Copy, Debug)]
pub enum LinkKind {
    Node,
}
impl LinkKind {
    pub fn name(self) -> &'static str {
        "node"
    }
}
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    pub op: usize,
    pub link: LinkKind,
    pub bytes: usize,
    pub start_s: f64,
    pub end_s: f64,
}
