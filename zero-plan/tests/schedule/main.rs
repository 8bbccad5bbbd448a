//! Tests of the planner: layout, schedule, proofs, memory, traffic. Never runs a model.
//!
//! `properties` plans random models; `layout` and `simulator` state independently what must be true of a plan.
//! `mutants` and `tables` break plans and expect the provers to object, and `equivalence` excuses mutants that break
//! nothing. `rules` expects each rule of the check to object to something, and `places` expects the proof to object if
//! an op looks at the wrong bytes. `reshard` cuts tensors at random; `relayout` moves the states of a plan to those of
//! another and back. `orders` has schedules written out by hand and the published costs of pipelines. `traffic`,
//! `traffic_by_op` and `prefetch` compare the schedule with formulas; `constants`, `bounds` and `budget` test constants
//! and build errors, `tiers` is about states that are kept outside the device, `on_host` about
//! those that the host updates, `publish` about copies for readers, and `fingerprints` pins those of the plans of
//! all specs.

mod activations;
mod bounds;
mod budget;
mod constants;
mod equivalence;
mod fingerprints;
mod layout;
mod model;
mod mutants;
mod on_host;
mod orders;
mod places;
mod prefetch;
mod properties;
mod publish;
mod relay;
mod relayout;
mod reshard;
mod rules;
mod serve;
mod shards;
mod simulator;
mod spans;
mod tables;
mod tiers;
mod traffic;
mod traffic_by_op;
mod updates;
