//! Claims: the figures of merit, each computed within a round, and the bounds on some of them. Never measures.

use std::fmt;

use zero_core::model::Model;
use zero_cpu::Bf16Products;
use zero_runtime::plan::{Kind, Width};

use crate::collectives::{BYTES, Collective};
use crate::figures::Round;
use crate::figures::{best, collective, gemm, op, ours, peak, peers, product, product_by, step};
use crate::models::{ROWS, Row};
use crate::schedule::Tiny;

/// Computes a figure of a round, if all of its inputs were measured.
pub type Figure = dyn Fn(&Round) -> Option<f64>;

/// A figure with a line in the table.
pub struct Claim {
    /// What it is, and its unit.
    pub what: String,
    /// Its value in a round.
    pub value: Box<Figure>,
    /// Digits after the decimal point.
    pub digits: usize,
    /// The bound that it should keep.
    pub bound: Option<Bound>,
}

impl Claim {
    fn asked(self, bound: Option<Bound>) -> Self {
        Self { bound, ..self }
    }
}

/// The bound that a figure should keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At least the first; the second is the target.
    AtLeastAndAim(f64, f64),
    /// At most the first; the second is the target.
    AtMostAndAim(f64, f64),
}

impl Bound {
    /// Whether a figure keeps it.
    pub fn is_kept_by(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) | Self::AtLeastAndAim(least, _) => figure >= least,
            Self::AtMostAndAim(most, _) => figure <= most,
        }
    }

    /// The target, which is better than the bound.
    pub fn aim(self) -> Option<f64> {
        match self {
            Self::AtLeast(_) => None,
            Self::AtLeastAndAim(_, aim) | Self::AtMostAndAim(_, aim) => Some(aim),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) | Self::AtLeastAndAim(least, _) => write!(f, "at least {least}"),
            Self::AtMostAndAim(most, _) => write!(f, "at most {most}"),
        }
    }
}

/// Bytes that a process may hold outside its arena: program, stacks, thread-local buffers.
const BESIDE_ARENA_BYTES: f64 = 30e6;

/// All of them.
pub fn all() -> Vec<Claim> {
    let has_matrix_unit = Bf16Products::chosen() == Bf16Products::Amx;
    let mut claims = vec![
        beside_peer("default size, 2 ranks, stage 3: PyTorch's `fsdp` / ours", "zero3"),
        beside_peer("default size, 2 ranks, stage 0: PyTorch's `ddp` / ours", "ddp"),
        beside_peer("default size, 1 rank: PyTorch's `single` / ours", "single"),
        beside_peer("small size, 2 ranks, stage 3: PyTorch's `fsdp` / ours", "small_zero3"),
        beside_peer("a Llama, 2 ranks, stage 3: PyTorch's `fsdp` / ours", "llama")
            .asked(Some(Bound::AtLeastAndAim(1.4, 1.8))),
        beside_peer("a Llama, 2 ranks, stage 3, bf16: PyTorch's `fsdp` / ours", "llama_bf16")
            .asked((has_matrix_unit).then_some(Bound::AtLeastAndAim(1.4, 1.8))),
        beside_peer("default size, 1 rank of 2 threads: PyTorch's `single` / ours", "single_2"),
        beside_peer("default size, 1 rank of 2 threads, bf16: PyTorch's `single` / ours", "single_bf16_2"),
        claim("our stage 3 on 2 ranks / our 1 rank, same work a rank", 3, |round| {
            round.ratio(&ours(&step("zero3")), &ours(&step("single")))
        }),
    ];
    claims.extend(in_bf16(has_matrix_unit));
    for (row, of_two) in [
        ("single", "single_2"),
        ("single_bf16", "single_bf16_2"),
        ("llama_single", "llama_single_2"),
        ("llama_single_bf16", "llama_single_bf16_2"),
    ] {
        claims.push(efficiency("ours", ours, row, of_two).asked(Some(Bound::AtLeast(0.94))));
        claims.push(efficiency("PyTorch's", peers, row, of_two));
    }
    claims.extend(Bf16Products::ALL.into_iter().filter(|one| one.is_there()).map(|one| {
        let what = format!("a product of bf16 matrices of 1024 rows: our time in f32 / by `{}`", one.name());
        claim(what, 2, move |round| round.ratio(&ours(&product(Width::F32.name())), &ours(&product_by(one.name()))))
    }));
    claims.push(choice_of_products(Bf16Products::chosen()));
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
            peak_share(round, "single", |row| row.step().published())
        }),
        claim("the same without embedding tables and what the causal mask removes, %", 1, |round| {
            peak_share(round, "single", |row| row.step().strict())
        }),
        claim("share of bf16 gemm's peak in a whole step in bf16, 1 rank, by the published count, %", 1, |round| {
            peak_share(round, "single_bf16", |row| row.step().published())
        }),
    ]);
    claims
}

/// Falls short of its bound where the table of processors is wrong: other instructions are faster than those that it names.
fn choice_of_products(chosen: Bf16Products) -> Claim {
    let what = format!(
        "bf16: the time of the fastest instructions / of `{}`, which the table of processors names",
        chosen.name()
    );
    let best = |round: &Round| {
        let times = Bf16Products::ALL.into_iter().filter_map(|one| round.get(&ours(&product_by(one.name()))));
        times.min_by(f64::total_cmp)
    };
    claim(what, 2, move |round| Some(best(round)? / round.get(&ours(&product_by(chosen.name())))?))
        .asked(Some(Bound::AtLeast(0.95)))
}

/// The claims about computing in bf16. The bounds are higher where a matrix unit multiplies bf16: elsewhere f32 is about as fast.
fn in_bf16(has_matrix_unit: bool) -> [Claim; 5] {
    let asked = |least: f64, aim: f64, elsewhere: Option<f64>| {
        if has_matrix_unit { Some(Bound::AtLeastAndAim(least, aim)) } else { elsewhere.map(Bound::AtLeast) }
    };
    [
        claim("default size, 1 rank, bf16: the faster of PyTorch's `bf16` and `bf16-pure` / ours", 2, |round| {
            let of = |row| round.get(&peers(&step(row)));
            Some(of("single_bf16")?.min(of("single_bf16_params")?) / round.get(&ours(&step("single_bf16")))?)
        })
        .asked(asked(1.3, 2.0, Some(1.0))),
        beside_peer("default size, 2 ranks, stage 3, bf16: PyTorch's `fsdp` / ours", "zero3_bf16").asked(asked(
            1.5,
            2.2,
            Some(1.0),
        )),
        claim("default size, 1 rank: our f32 / our bf16", 2, |round| {
            round.ratio(&ours(&step("single")), &ours(&step("single_bf16")))
        })
        .asked(asked(2.5, 4.0, Some(0.9))),
        claim("the fastest product of bf16 matrices of 1024 rows: PyTorch's time / ours", 2, |round| {
            let product = product(Width::BF16.name());
            round.ratio(&peers(&product), &ours(&product))
        })
        .asked(asked(0.9, 1.1, None)),
        claim("peak resident memory of a rank, 8 x 512 tokens: in bf16 / in f32", 2, |round| {
            round.ratio(&ours(&peak("long_bf16")), &ours(&peak("long")))
        })
        .asked(Some(Bound::AtMostAndAim(0.65, 0.55))),
    ]
}

fn claim(what: impl Into<String>, digits: usize, value: impl Fn(&Round) -> Option<f64> + 'static) -> Claim {
    Claim { what: what.into(), value: Box::new(value), digits, bound: None }
}

fn beside_peer(what: &str, row: &'static str) -> Claim {
    claim(what, 2, move |round| round.ratio(&peers(&step(row)), &ours(&step(row))))
}

/// The shortest step with one thread over twice that with two.
fn efficiency(whose: &str, side: fn(&str) -> String, row: &'static str, of_two: &'static str) -> Claim {
    claim(format!("efficiency of two threads, `{row}`: {whose}"), 2, move |round| {
        Some(round.ratio(&side(&best(row)), &side(&best(of_two)))? / 2.0)
    })
}

fn per_op(stage: u8) -> Claim {
    let what = format!("schedule: an op of empty layers of one parameter, 1 rank, stage {stage}, ns");
    claim(what, 0, move |round| Some(1e9 * round.get(&op(Tiny::PLAN.model, stage))?))
}

/// Bytes of the slots into which a rank gathers units at stage 3.
fn copied_bytes() -> f64 {
    let slots =
        Collective::Gather.plan(BYTES[1]).with(|plan| plan.pipeline_stages[0].memory.region(Kind::Gathered).bytes);
    slots as f64
}

/// The ratio of peak memory, less the allowance, to the planned arena, for the row where it is highest.
fn memory_share(round: &Round) -> Option<f64> {
    let of = |row: &Row| {
        let peak_bytes = round.get(&ours(&peak(row.ours)))?;
        Some((peak_bytes - BESIDE_ARENA_BYTES) / row.plan.bytes_per_rank_max() as f64)
    };
    ROWS.iter().filter_map(of).max_by(f64::total_cmp)
}

/// The rate of a step of a row on one rank, in percent of the matrix product's, if the step is `flop` operations.
fn peak_share(round: &Round, row: &str, flop: impl Fn(&Row) -> f64) -> Option<f64> {
    let row = Row::of(row)?;
    Some(100.0 * flop(row) / round.get(&ours(&step(row.ours)))? / round.get(&gemm(row.width()))?)
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
        let single = Row::of("single").unwrap();
        let mut round = Round::default();
        round.put(ours(&step("single")), 2.0);
        round.put(gemm(Width::F32), single.step().published() / 2.0);
        assert_eq!(value("gemm's peak in a whole step, 1 rank", &round), Some(100.0));
        // 6 blocks of 12 x 384^2 + 13 x 384, a norm of 768 and a head of 512 x 384: 10 844 160 parameters multiply;
        // 768 x 384 = 294 912 are looked up; 12 x 6 x 384 x 256 = 7 077 888 are attention's, of each of 1024 tokens.
        assert_eq!(single.step().published(), 1024.0 * (6.0 * (10_844_160.0 + 294_912.0) + 7_077_888.0));
        assert_eq!(single.step().strict(), 1024.0 * (6.0 * 10_844_160.0 + 3_538_944.0));
    }

    #[test]
    fn memory_is_that_beyond_the_allowance() {
        let mut round = Round::default();
        for (row, times) in [("single", 1.1), ("zero3", 1.05)] {
            let arena = Row::of(row).unwrap().plan.bytes_per_rank_max() as f64;
            round.put(ours(&peak(row)), 30e6 + times * arena);
        }
        assert!((value("planned arena", &round).unwrap() - 1.1).abs() < 1e-12);
    }

    #[test]
    fn the_faster_of_the_peers_two_counts() {
        let mut round = Round::default();
        for (figure, seconds) in [(ours(&step("single_bf16")), 0.2), (peers(&step("single_bf16")), 0.9)] {
            round.put(figure, seconds);
        }
        assert_eq!(value("the faster of", &round), None);
        round.put(peers(&step("single_bf16_params")), 0.5);
        assert_eq!(value("the faster of", &round), Some(2.5));
    }

    #[test]
    fn more_is_asked_of_a_matrix_unit() {
        let bounds = |has_matrix_unit| in_bf16(has_matrix_unit).map(|claim| claim.bound.map(|bound| bound.to_string()));
        let most = "at most 0.65";
        let of_unit = ["at least 1.3", "at least 1.5", "at least 2.5", "at least 0.9", most];
        assert_eq!(bounds(true), of_unit.map(|bound| Some(bound.to_owned())));
        let elsewhere = [Some("at least 1"), Some("at least 1"), Some("at least 0.9"), None, Some(most)];
        assert_eq!(bounds(false), elsewhere.map(|bound| bound.map(str::to_owned)));
    }

    #[test]
    fn two_threads_that_take_half_the_time_are_efficient() {
        let mut round = Round::default();
        round.put(ours(&best("single")), 0.8);
        round.put(ours(&best("single_2")), 0.4);
        round.put(peers(&best("single")), 0.8);
        round.put(peers(&best("single_2")), 0.5);
        assert_eq!(value("`single`: ours", &round), Some(1.0));
        assert_eq!(value("`single`: PyTorch's", &round), Some(0.8));
    }

    #[test]
    fn the_table_of_processors_is_held_against_the_fastest() {
        let mut round = Round::default();
        let claim = choice_of_products(Bf16Products::Avx512);
        round.put(ours(&product_by("avx512")), 2.0);
        assert_eq!((claim.value)(&round), Some(1.0));
        round.put(ours(&product_by("widened")), 1.5);
        assert_eq!((claim.value)(&round), Some(0.75));
        assert!(!claim.bound.expect("a bound").is_kept_by(0.75));
    }

    #[test]
    fn a_gather_copies_nothing() {
        assert_eq!(value("room to copy", &Round::default()), Some(0.0));
    }
}
