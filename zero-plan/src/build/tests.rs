//! A build checks the tables of a plan as it makes them.

use super::tables::{buckets, chunks, memories, placements, schedules};
use crate::config::Config;
use crate::layout::{Bucket, Memory, Placement, Tables};
use crate::pipeline::{Chunk, Pass};
use crate::unit::Unit;

/// Makes arena and step of two units as a build does, with placements that `spoil` has changed.
fn build(spoil: impl Fn(&mut [Placement; 2])) -> bool {
    let config = Config { stage: 3, ..Config::PLAIN };
    let unit = Unit { params: 16, takes: 16, input_bytes: 1, output_bytes: 1, ..Unit::NONE };
    let units = [unit, Unit { source: 1, ..unit }];
    let chunks: [Chunk; 1] = chunks(&config, &units);
    let cut = Tables { config: &config, units: &units, chunks: &chunks, placements: &[], buckets: &[] };
    let buckets: [Bucket; 1] = buckets(&cut);
    let mut placements: [Placement; 2] = placements(&Tables { buckets: &buckets, ..cut });
    spoil(&mut placements);
    let tables = Tables { placements: &placements, buckets: &buckets, ..cut };
    // The last test is about the check of the schedule, which needs no arena.
    if placements[1].holds {
        let _: [Memory; 1] = memories(&tables);
    }
    schedules::<99, 1, 2, 1, 1>(Pass::Train, &tables).of(0).len() > 2
}

#[test]
fn sound_tables_are_made() {
    assert!(build(|_| {}));
}

#[test]
#[should_panic(expected = "[Z0290] unsound layout: flat buffers leave a gap or overlap")]
fn z0290_tables_are_checked_as_they_are_made() {
    build(|placements| placements[1].start = 0);
}

#[test]
#[should_panic(expected = "[Z0291] unsound schedule of pipeline stage 0 at op ")]
fn z0291_schedules_are_checked_as_they_are_made() {
    build(|placements| placements[1].holds = false);
}
