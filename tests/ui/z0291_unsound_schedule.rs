//! A table that `zero` would have got wrong: the second unit is said to hold no parameters, so nothing gathers them.
use zero_runtime::plan::{Config, __tables as t};

const CONFIG: Config = Config { stage: 3, ..Config::PLAIN };
const SIZES: t::Unit = t::Unit { params: 16, takes: 16, input_bytes: 4, output_bytes: 4, ..t::Unit::NONE };
const UNITS: [t::Unit; 2] = [SIZES, t::Unit { source: 1, ..SIZES }];
const CHUNKS: [t::Chunk; 1] = t::chunks(&CONFIG, &UNITS);
const CUT: t::Tables = t::Tables { config: &CONFIG, units: &UNITS, chunks: &CHUNKS, placements: &[], buckets: &[] };
const BUCKETS: [t::Bucket; 1] = t::buckets(&CUT);
const PLACEMENTS: [t::Placement; 2] = {
    let mut placements: [t::Placement; 2] = t::placements(&t::Tables { buckets: &BUCKETS, ..CUT });
    placements[1].holds = false;
    placements
};
const TABLES: t::Tables = t::Tables { placements: &PLACEMENTS, buckets: &BUCKETS, ..CUT };
const STEPS: &t::Schedules<99, 1> = &t::schedules::<99, 1, 2, 1, 1>(t::Pass::Train, &TABLES);

fn main() {
    println!("{:?}", STEPS.of(0));
}
