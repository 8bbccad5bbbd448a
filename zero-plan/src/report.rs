//! Report: a plan as a person reads it. Formats, never computes.

use core::fmt;

use crate::config::Gather;
use crate::layout::Kind;
use crate::message::Bytes;
use crate::plan::Plan;
use crate::traffic::Traffic;

/// Prints what a plan takes and moves: memory per rank by part, bytes on the wire per step.
pub struct Report<'a>(pub &'a Plan<'a>);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report(plan) = self;
        let config = &plan.config;
        writeln!(
            f,
            "{}: {} parameters in {} units, ZeRO stage {} over {} rank{}",
            plan.model,
            plan.params(),
            plan.units.len(),
            config.stage,
            config.ranks,
            if config.ranks == 1 { "" } else { "s" },
        )?;
        writeln!(
            f,
            "batch: {} sequences x {} tokens, {} micro-batch{} a rank; {} tokens a step",
            config.sequences,
            config.length,
            config.micro_batches,
            if config.micro_batches == 1 { "" } else { "es" },
            config.tokens() * config.micro_batches * config.ranks,
        )?;
        writeln!(f, "\nmemory per rank")?;
        for kind in Kind::ALL {
            let bytes = plan.memory.region(kind).elements * crate::unit::ELEMENT_BYTES;
            if bytes > 0 {
                writeln!(f, "  {:<22} {:>12}", kind.name(), Bytes(bytes))?;
            }
        }
        writeln!(f, "  {:<22} {:>12}", "arena", Bytes(plan.memory.bytes_per_rank()))?;
        if let Some(budget) = config.memory_bytes {
            writeln!(f, "  {:<22} {:>12}", "budget", Bytes(budget))?;
        }
        let padding = (plan.padded() - plan.params()) * crate::unit::ELEMENT_BYTES;
        writeln!(f, "  padding of all flat buffers: {}", Bytes(padding))?;
        if config.shards_parameters() && config.transport.gather() == Gather::Mapped {
            writeln!(f, "  gathered parameters: views of the shared mapping, no copies")?;
        }
        let traffic = Traffic::of(plan, plan.step);
        writeln!(f, "\nsent per rank and step ({} ops, {} buckets)", plan.step.len(), plan.buckets.len())?;
        for (name, bytes) in [
            ("parameter all-gather", traffic.gather_bytes),
            ("gradient reduce-scatter", traffic.reduce_bytes),
            ("gradient all-gather", traffic.spread_bytes),
            ("loss and norm", traffic.agree_bytes),
        ] {
            if bytes > 0 {
                writeln!(f, "  {:<24} {:>10}", name, Bytes(bytes))?;
            }
        }
        write!(f, "  {:<24} {:>10}", "all", Bytes(traffic.payload_bytes() + traffic.agree_bytes))
    }
}
