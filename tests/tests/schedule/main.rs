//! Tests of the planner: layout, schedule, checks, memory, traffic. Never runs a model.
//!
//! `properties` plans random models, `layout` and `simulator` say what must hold of a plan, in words of their own;
//! `mutants` and `tables` break plans and expect the check to object, `equivalence` excuses mutants that break nothing.
//! `traffic` and `prefetch` hold the schedule against formulas, `constants` and `budget` what the compiler is given.

mod budget;
mod constants;
mod equivalence;
mod layout;
mod model;
mod mutants;
mod prefetch;
mod properties;
mod simulator;
mod spans;
mod tables;
mod traffic;
