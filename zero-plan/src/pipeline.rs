//! Pipeline: the pipeline stage of each unit, and the order in which a pipeline stage works through chunks and
//! micro-batches. Knows nothing about parameters, gradients or memory.

use serde::Serialize;

use crate::config::{Config, Order, Split};
use crate::message::Message;
use crate::origin::Origin;
use crate::unit::Unit;

/// Operations that an optimizer spends on one parameter, as a rough number to add to those of layers.
const UPDATE_OPERATIONS: usize = 16;

/// Consecutive units that lie on one pipeline stage and run one after another. With p pipeline stages, chunk c lies on
/// pipeline stage c mod p.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Chunk {
    /// Its first unit.
    pub first: usize,
    /// The unit after its last.
    pub end: usize,
}

impl Chunk {
    /// An empty chunk, which tables hold before they are filled.
    pub(crate) const NONE: Self = Self { first: 0, end: 0 };
}

/// Operations that a step spends on a unit: for each micro-batch a forward pass, and a backward pass with twice the
/// operations; and one update of its parameters.
pub const fn cost(config: &Config, unit: &Unit) -> usize {
    3 * unit.operations * config.micro_batches + UPDATE_OPERATIONS * unit.params
}

/// Fills in the chunks, in the order of forward. `out` has [`Config::chunks`] entries, and `require_placeable` has
/// passed.
pub const fn fill_chunks(config: &Config, units: &[Unit], out: &mut [Chunk]) {
    let bottleneck = if let Split::Balanced = config.split { bottleneck(config, units) } else { 0 };
    let (mut chunk, mut first) = (0, 0);
    while chunk < out.len() {
        let end = match config.split {
            Split::Even => first + units.len() / out.len(),
            Split::Units(counts) => first + counts[chunk],
            Split::Balanced => balanced_end(config, units, first, out.len() - chunk - 1, bottleneck),
        };
        out[chunk] = Chunk { first, end };
        first = end;
        chunk += 1;
    }
}

/// Stops the build if the units cannot be placed on the pipeline as the configuration says.
///
/// # Panics
/// Z0206.
#[track_caller]
pub const fn require_placeable(config: &Config, units: &[Unit], origin: &Origin) {
    let chunks = config.chunks();
    let (is_even, split) = match config.split {
        Split::Even => (units.len().is_multiple_of(chunks), None),
        Split::Units(counts) => (true, Some(counts)),
        Split::Balanced => (true, None),
    };
    let is_split = match split {
        Some(counts) => counts.len() == chunks && sum(counts) == units.len(),
        None => true,
    };
    if units.len() >= chunks && is_even && is_split {
        return;
    }
    let message = Message::new().text("[Z0206] ").number(units.len()).text(" units cannot be placed on ");
    let message = message.number(config.mesh.pipeline).text(" pipeline stages");
    let message = match config.chunks_per_rank() {
        1 => message.text(": "),
        chunks => message.text(" with ").number(chunks).text(" chunks each: "),
    };
    let (message, path, default) = match split {
        _ if units.len() < chunks => {
            let path = if config.chunks_per_rank() > 1 { "pipeline.schedule" } else { "mesh.pipeline" };
            (message.text("a chunk would be empty"), path, "")
        }
        None => (message.text("they do not divide evenly by ").number(chunks), "pipeline.units", ""),
        Some(counts) => {
            let message = message.text("`Split` has ").number(counts.len()).text(" entries that add up to ");
            (message.number(sum(counts)), "pipeline.units", "")
        }
    };
    let message = origin.tell(message, path, default).text("\n  fix: ");
    let message = match split {
        _ if units.len() < chunks => {
            message.text("use at most ").number(units.len()).text(" chunks, on all pipeline stages together")
        }
        None => {
            let message = origin.end(origin.key(origin.section(message, "pipeline"), "units").text("Balanced"));
            let message = origin.section(message.text(" places them by cost, "), "pipeline");
            origin.end(origin.key(message, "units").text("Split([...])")).text(" says how many each chunk has")
        }
        Some(_) => message.text("give ").number(chunks).text(" entries that add up to ").number(units.len()),
    };
    panic!("{}", message.as_str());
}

const fn sum(counts: &[usize]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < counts.len() {
        sum += counts[i];
        i += 1;
    }
    sum
}

/// The smallest cost that the most expensive chunk can have, by binary search.
const fn bottleneck(config: &Config, units: &[Unit]) -> usize {
    let (mut low, mut high, mut i) = (0, 0, 0);
    while i < units.len() {
        let cost = cost(config, &units[i]);
        low = if cost > low { cost } else { low };
        high += cost;
        i += 1;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if chunks_needed(config, units, middle) <= config.chunks() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The least number of chunks of which none costs more than `most`.
const fn chunks_needed(config: &Config, units: &[Unit], most: usize) -> usize {
    let (mut chunks, mut first) = (0, 0);
    while first < units.len() {
        first = balanced_end(config, units, first, 0, most);
        chunks += 1;
    }
    chunks
}

/// The end of a chunk that begins at `first`, costs at most `most`, and leaves at least one unit to each chunk after
/// it.
const fn balanced_end(config: &Config, units: &[Unit], first: usize, chunks_after: usize, most: usize) -> usize {
    let (mut end, mut spent) = (first + 1, cost(config, &units[first]));
    while end + chunks_after < units.len() && spent + cost(config, &units[end]) <= most {
        spent += cost(config, &units[end]);
        end += 1;
    }
    end
}

/// The purpose of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Pass {
    /// A training step.
    Train,
    /// One forward pass over one micro-batch, for held-out loss and for sampling.
    Evaluate,
    /// A copy of all parameters for readers outside of the run, between two steps.
    Publish,
}

impl Pass {
    /// All of them. A plan that publishes nothing has no ops for the last.
    pub const ALL: [Pass; 3] = [Pass::Train, Pass::Evaluate, Pass::Publish];

    /// A name for reports, after an article.
    pub const fn name(self) -> &'static str {
        match self {
            Pass::Train => "training step",
            Pass::Evaluate => "evaluation",
            Pass::Publish => "publication",
        }
    }
}

impl Config {
    /// Whether a pass does the updates of the step before it.
    pub const fn updates_in(&self, pass: Pass) -> bool {
        matches!(pass, Pass::Train | Pass::Publish) && self.updates_at_use()
    }

    /// Whether the shards that a pass fetches are those after the last step: it does that step's updates itself, or comes after them.
    pub const fn fetches_updated(&self, pass: Pass) -> bool {
        matches!(pass, Pass::Publish) || self.updates_in(pass)
    }
}

/// One chunk of one micro-batch, forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The chunk, of all chunks of the model.
    pub chunk: usize,
    /// The micro-batch.
    pub micro_batch: usize,
    /// Whether it is backward.
    pub backward: bool,
}

/// The turns of one pipeline stage, in order.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The purpose of the schedule.
    pub pass: Pass,
    /// The pipeline stage.
    pub pipeline: usize,
}

impl Turns<'_> {
    /// Forward turns of a pass. A training pass has as many backward turns.
    const fn forwards(&self) -> usize {
        match self.pass {
            Pass::Train => self.config.micro_batches * self.config.chunks_per_rank(),
            Pass::Evaluate => self.config.chunks_per_rank(),
            Pass::Publish => 0,
        }
    }

    /// Number of turns.
    pub const fn count(&self) -> usize {
        match self.pass {
            Pass::Train => 2 * self.forwards(),
            Pass::Evaluate | Pass::Publish => self.forwards(),
        }
    }

    /// Forward turns before forward and backward turns alternate: as many as fit before gradients return to this
    /// pipeline stage. For interleaved chunks the number is that of Megatron-LM (Narayanan et al., 2021, section 2.2).
    const fn warm_up(&self) -> usize {
        let pipeline_stages = self.config.mesh.pipeline;
        let after = pipeline_stages - 1 - self.pipeline;
        let turns = match self.config.order {
            Order::GPipe => self.forwards(),
            Order::OneFOneB => after,
            Order::Interleaved { chunks } => 2 * after + (chunks - 1) * pipeline_stages,
        };
        if turns < self.forwards() { turns } else { self.forwards() }
    }

    /// The largest number of forward turns whose backward turn has not run yet. This pipeline stage needs that many
    /// slots for activations.
    pub const fn in_flight(&self) -> usize {
        match self.pass {
            Pass::Evaluate => 1,
            Pass::Publish => 0,
            Pass::Train if self.warm_up() < self.forwards() => self.warm_up() + 1,
            Pass::Train => self.forwards(),
        }
    }

    /// The turn at `position`: forward turns until the pipeline is full, then forward and backward turns in
    /// alternation, then the remaining backward turns. Each chunk works on micro-batches in their order, so that
    /// gradients are summed in that order.
    pub const fn at(&self, position: usize) -> Turn {
        let (warm_up, forwards) = (self.warm_up(), self.forwards());
        if let Pass::Evaluate = self.pass {
            return Turn {
                chunk: position * self.config.mesh.pipeline + self.pipeline,
                micro_batch: 0,
                backward: false,
            };
        }
        if position < warm_up {
            self.nth(position, false)
        } else if position < 2 * forwards - warm_up {
            let nth = (position - warm_up) / 2;
            if (position - warm_up).is_multiple_of(2) { self.nth(warm_up + nth, false) } else { self.nth(nth, true) }
        } else {
            self.nth(position - forwards, true)
        }
    }

    /// The `nth` forward or backward turn. A chunk works on as many micro-batches as there are pipeline stages, before
    /// the next chunk follows.
    const fn nth(&self, nth: usize, backward: bool) -> Turn {
        let pipeline_stages = self.config.mesh.pipeline;
        let chunks = self.config.chunks_per_rank();
        let (chunk, micro_batch) = if chunks == 1 {
            (0, nth)
        } else {
            (
                nth % (pipeline_stages * chunks) / pipeline_stages,
                nth / (pipeline_stages * chunks) * pipeline_stages + nth % pipeline_stages,
            )
        };
        let chunk = if backward { chunks - 1 - chunk } else { chunk };
        Turn { chunk: chunk * pipeline_stages + self.pipeline, micro_batch, backward }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Mesh;

    fn placed(config: &Config, units: &[Unit]) -> Vec<Chunk> {
        require_placeable(config, units, &Origin::UNKNOWN);
        let mut chunks = vec![Chunk::NONE; config.chunks()];
        fill_chunks(config, units, &mut chunks);
        chunks
    }

    fn units(operations: &[usize]) -> Vec<Unit> {
        operations.iter().map(|&operations| Unit { operations, ..Unit::NONE }).collect()
    }

    fn on(pipeline: usize, split: Split) -> Config {
        Config { mesh: Mesh { pipeline, ..Mesh::of_zero(1) }, split, ..Config::PLAIN }
    }

    /// The cost of the most expensive chunk.
    fn bottleneck_of(config: &Config, units: &[Unit], chunks: &[Chunk]) -> usize {
        let of_chunk =
            |chunk: &Chunk| units[chunk.first..chunk.end].iter().map(|unit| cost(config, unit)).sum::<usize>();
        chunks.iter().map(of_chunk).max().unwrap()
    }

    /// Every way to cut `units` into `chunks` that are not empty.
    fn all_cuts(first: usize, units: usize, chunks: usize) -> Vec<Vec<Chunk>> {
        if chunks == 1 {
            return vec![vec![Chunk { first, end: units }]];
        }
        let ends = first + 1..=units - (chunks - 1);
        let with_rest = |end: usize| {
            let rest = all_cuts(end, units, chunks - 1).into_iter();
            rest.map(move |rest| [vec![Chunk { first, end }], rest].concat())
        };
        ends.flat_map(with_rest).collect()
    }

    #[test]
    fn a_balanced_split_has_the_cheapest_bottleneck_there_is() {
        let mut random = 1usize;
        for count in 1..=8 {
            for _ in 0..20 {
                let mut next = || {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    random >> 60
                };
                let units: Vec<Unit> =
                    (0..count).map(|_| Unit { operations: next(), params: next(), ..Unit::NONE }).collect();
                for pipeline_stages in 1..=count {
                    let config = Config { micro_batches: 3, ..on(pipeline_stages, Split::Balanced) };
                    let chunks = placed(&config, &units);
                    assert_eq!((chunks[0].first, chunks[pipeline_stages - 1].end), (0, count));
                    assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].first));
                    assert!(chunks.iter().all(|chunk| chunk.first < chunk.end));
                    let cuts = all_cuts(0, count, pipeline_stages).into_iter();
                    let best = cuts.map(|cut| bottleneck_of(&config, &units, &cut)).min().unwrap();
                    assert_eq!(bottleneck_of(&config, &units, &chunks), best, "{units:?}");
                }
            }
        }
    }

    #[test]
    fn units_lie_as_asked_for() {
        let units = units(&[1, 1, 1, 9, 1, 1]);
        let ends = |config: &Config| placed(config, &units).iter().map(|chunk| chunk.end).collect::<Vec<_>>();
        assert_eq!(ends(&on(2, Split::Even)), [3, 6]);
        assert_eq!(ends(&on(3, Split::Units(&[1, 4, 1]))), [1, 5, 6]);
        assert_eq!(ends(&on(3, Split::Balanced)), [3, 4, 6]);
        let interleaved = Config { order: Order::Interleaved { chunks: 3 }, ..on(2, Split::Even) };
        assert_eq!(ends(&interleaved), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    #[should_panic(expected = "[Z0206] 3 units cannot be placed on 2 pipeline stages: they do not divide evenly by 2")]
    fn z0206_units_do_not_divide() {
        placed(&on(2, Split::Even), &units(&[1, 1, 1]));
    }

    #[test]
    #[should_panic(expected = "[Z0206] 1 units cannot be placed on 2 pipeline stages: a chunk would be empty")]
    fn z0206_fewer_units_than_chunks() {
        placed(&on(2, Split::Balanced), &units(&[1]));
    }

    /// Narayanan et al. (2021), figure 4: the first of two pipeline stages with two chunks each and four micro-batches.
    #[test]
    fn turns_of_an_interleaved_pipeline_stage() {
        let config = Config { order: Order::Interleaved { chunks: 2 }, micro_batches: 4, ..on(2, Split::Balanced) };
        let turns = Turns { config: &config, pass: Pass::Train, pipeline: 0 };
        let told = (0..turns.count()).map(|position| {
            let Turn { chunk, micro_batch, backward } = turns.at(position);
            format!("{}{chunk}.{micro_batch}", if backward { 'B' } else { 'F' })
        });
        let expected = "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3";
        assert_eq!(told.collect::<Vec<_>>().join(" "), expected);
        assert_eq!(turns.in_flight(), 5);
    }

    #[test]
    fn a_unit_costs_its_passes_and_its_update() {
        let unit = Unit { operations: 7, params: 2, ..Unit::NONE };
        assert_eq!(cost(&Config { micro_batches: 5, ..Config::PLAIN }, &unit), 3 * 7 * 5 + 16 * 2);
    }

    fn split_on_two_pipeline_stages(split: &'static [usize]) {
        let mesh = Mesh { pipeline: 2, ..Mesh::of_zero(1) };
        let config = Config { mesh, split: Split::Units(split), ..Config::PLAIN };
        require_placeable(&config, &[Unit::NONE; 3], &Origin::UNKNOWN);
    }

    #[test]
    #[should_panic(
        expected = "[Z0206] 3 units cannot be placed on 2 pipeline stages: `Split` has 1 entries that add up to 3"
    )]
    fn z0206_a_split_into_too_few_chunks() {
        split_on_two_pipeline_stages(&[3]);
    }

    #[test]
    #[should_panic(
        expected = "[Z0206] 3 units cannot be placed on 2 pipeline stages: `Split` has 2 entries that add up to 4"
    )]
    fn z0206_a_split_of_more_units_than_there_are() {
        split_on_two_pipeline_stages(&[1, 3]);
    }
}
