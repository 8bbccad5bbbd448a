//! Tests of the planner: layout, schedule, proofs, memory, traffic. Never runs a model.
//!
//! `properties` plans random models, `layout` and `simulator` say what must be true of a plan, in words of their own;
//! `mutants` and `tables` break plans and expect the provers to object, `equivalence` excuses mutants that break nothing;
//! `rules` expects as much of each rule of the check, and `places` of the proof where an op looks at the wrong bytes.
//! `reshard` cuts tensors at random, `relayout` moves the states of a plan to those of another and back. `orders` has schedules written out by hand and what pipelines are published to cost; `traffic` and `prefetch` hold the
//! schedule against formulas, `constants` and `budget` what the compiler is given.

mod bounds;
mod budget;
mod constants;
mod equivalence;
mod layout;
mod model;
mod mutants;
mod orders;
mod places;
mod prefetch;
mod properties;
mod relayout;
mod reshard;
mod rules;
mod simulator;
mod spans;
mod tables;
mod traffic;
