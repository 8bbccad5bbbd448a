//! Claims: the figures that say how well this does, each computed within a round. Never says what would be good enough.

use zero_runtime::model::Model;
use zero_runtime::plan::Kind;

use crate::collectives::{BYTES, Collective};
use crate::figures::Round;
use crate::models::{ROWS, Row};
use crate::rounds::{GEMM, collective, op, ours, peak, peers, step};
use crate::schedule::Tiny;

/// Computes a figure of a round, if all that it takes was measured.
pub type Figure = dyn Fn(&Round) -> Option<f64>;

/// A figure that is worth a line.
pub struct Claim {
    /// What it is, and its unit.
    pub what: String,
    /// Its value in a round.
    pub value: Box<Figure>,
    /// Digits behind the point.
    pub digits: usize,
}

/// What a process may hold beside its arena, in bytes: program, stacks, thread-local buffers.
const BESIDE_ARENA_BYTES: f64 = 30e6;

/// All of them.
pub fn all() -> Vec<Claim> {
    let mut claims = vec![
        beside_peer("default size, 2 ranks, stage 3: PyTorch's `fsdp` / ours", "zero3"),
        beside_peer("default size, 2 ranks, stage 0: PyTorch's `ddp` / ours", "ddp"),
        beside_peer("default size, 1 rank: PyTorch's `single` / ours", "single"),
        beside_peer("small size, 2 ranks, stage 3: PyTorch's `fsdp` / ours", "small_zero3"),
        claim("our stage 3 on 2 ranks / our 1 rank, same work a rank", 3, |round| {
            round.ratio(&ours(&step("zero3")), &ours(&step("single")))
        }),
    ];
    claims.extend(BYTES.map(|bytes| {
        let name = collective(Collective::ReduceScatter.name(), bytes);
        let what = format!("reduce-scatter of {}, 2 ranks: gloo's time / ours", size(bytes));
        claim(what, 1, move |round| round.ratio(&peers(&name), &ours(&name)))
    }));
    claims.extend([
        claim("stage-3 gather on shm: room to copy a unit to, bytes", 0, |_| Some(copied_bytes())),
        claim("stage-3 gather on shm: time of 16 MiB / time of 16 KiB", 2, |round| {
            let of = |bytes| ours(&collective(Collective::Gather.name(), bytes));
            round.ratio(&of(BYTES[1]), &of(BYTES[0]))
        }),
        claim("(peak resident memory of a rank - 30 MB) / planned arena, the most of all rows", 3, memory_share),
        per_op(0),
        per_op(3),
        claim("share of gemm's peak in a whole step, 1 rank, by the published count, %", 1, |round| {
            peak_share(round, |row| row.step().published())
        }),
        claim("the same without embedding tables and what the causal mask removes, %", 1, |round| {
            peak_share(round, |row| row.step().strict())
        }),
    ]);
    claims
}

fn claim(what: impl Into<String>, digits: usize, value: impl Fn(&Round) -> Option<f64> + 'static) -> Claim {
    Claim { what: what.into(), value: Box::new(value), digits }
}

fn beside_peer(what: &str, row: &'static str) -> Claim {
    claim(what, 2, move |round| round.ratio(&peers(&step(row)), &ours(&step(row))))
}

fn per_op(stage: u8) -> Claim {
    let what = format!("schedule: an op of empty layers of one parameter, 1 rank, stage {stage}, ns");
    claim(what, 0, move |round| Some(1e9 * round.get(&op(Tiny::PLAN.model, stage))?))
}

/// Bytes of the slots that a rank of stage 3 has to gather units into.
fn copied_bytes() -> f64 {
    let slots = Collective::Gather.plan(BYTES[1]).with(|plan| plan.stages[0].memory.region(Kind::Gathered).bytes);
    slots as f64
}

/// How far the rank that holds most for its arena goes beyond it.
fn memory_share(round: &Round) -> Option<f64> {
    let of = |row: &Row| {
        let peak_bytes = round.get(&ours(&peak(row.ours)))?;
        Some((peak_bytes - BESIDE_ARENA_BYTES) / row.plan.bytes_per_rank_max() as f64)
    };
    ROWS.iter().filter_map(of).max_by(f64::total_cmp)
}

/// Percent of the rate of the matrix product that a step on one rank comes to, if it is `flop` operations.
fn peak_share(round: &Round, flop: impl Fn(&Row) -> f64) -> Option<f64> {
    let row = ROWS.iter().find(|row| row.ours == "single")?;
    Some(100.0 * flop(row) / round.get(&ours(&step(row.ours)))? / round.get(GEMM)?)
}

/// A size that is a whole number of KiB or MiB.
pub fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(part: &str, round: &Round) -> Option<f64> {
        let claim = all().into_iter().find(|claim| claim.what.contains(part)).expect(part);
        (claim.value)(round)
    }

    #[test]
    fn ratios_are_of_peer_over_ours() {
        let mut round = Round::default();
        assert_eq!(value("`fsdp`", &round), None);
        round.put(ours(&step("zero3")), 0.5);
        round.put(peers(&step("zero3")), 0.75);
        round.put(ours(&step("single")), 0.4);
        assert_eq!(value("`fsdp`", &round), Some(1.5));
        assert_eq!(value("same work a rank", &round), Some(1.25));
        assert_eq!(value("`single`", &round), None);
    }

    #[test]
    fn a_step_at_the_rate_of_gemm_has_all_of_it() {
        let single = ROWS.iter().find(|row| row.ours == "single").unwrap();
        let mut round = Round::default();
        round.put(ours(&step("single")), 2.0);
        round.put(GEMM, single.step().published() / 2.0);
        assert_eq!(value("published", &round), Some(100.0));
        // 6 blocks of 12 x 384^2 + 13 x 384, a norm of 768 and a head of 512 x 384: 10 844 160 parameters multiply;
        // 768 x 384 = 294 912 are looked up; 12 x 6 x 384 x 256 = 7 077 888 are attention's, of each of 1024 tokens.
        assert_eq!(single.step().published(), 1024.0 * (6.0 * (10_844_160.0 + 294_912.0) + 7_077_888.0));
        assert_eq!(single.step().strict(), 1024.0 * (6.0 * 10_844_160.0 + 3_538_944.0));
    }

    #[test]
    fn memory_is_that_beyond_the_allowance() {
        let mut round = Round::default();
        for (row, times) in [("single", 1.1), ("zero3", 1.05)] {
            let arena = ROWS.iter().find(|known| known.ours == row).unwrap().plan.bytes_per_rank_max() as f64;
            round.put(ours(&peak(row)), 30e6 + times * arena);
        }
        assert!((value("peak resident", &round).unwrap() - 1.1).abs() < 1e-12);
    }

    #[test]
    fn a_gather_copies_nothing() {
        assert_eq!(value("room to copy", &Round::default()), Some(0.0));
    }
}
