//! Compare: the memory that a run took and the bytes that it moved, compared with its plan. A difference is an error.
//! Never changes a result.

use super::output::say;
use super::processes;
use crate::error::Error;
use crate::profile::gather;
use zero_core::device::Device;
use zero_core::transport::{Crossed, Transport};
use zero_engine::Engine;
use zero_files::resident;
use zero_plan::footprint::{RunSize, private_mapping_bytes, segment_mapping_bytes};
use zero_plan::{Bytes, Config, Home, Memory, Moved, Plan, TierBytes, TierKind, Traffic, TransportKind};

/// A figure that is compared.
struct ComparedRow {
    name: &'static str,
    /// Whether the figure is counted over all steps and printed for one; otherwise it is a size.
    is_per_step: bool,
    fault: &'static Deviation,
}

/// The meaning of a difference from the plan.
struct Deviation {
    code: &'static str,
    /// Whether the plan gives a bound for it, so that less is as planned.
    is_bound: bool,
    help: &'static str,
}

const MAPPED: Deviation = Deviation {
    code: "Z0410",
    is_bound: false,
    help: "the plan and the memory reserved for it disagree: a fault of zero; please report it with the spec",
};
const MOVED: Deviation = Deviation {
    code: "Z0411",
    is_bound: false,
    help: "the plan and the transport disagree: a fault of zero, or of your own transport",
};
const HELD: Deviation = Deviation {
    code: "Z0412",
    is_bound: true,
    help: "declare the memory of your own layers and datasets in `WORKSPACE` or `SAVED` of a layer, or in \
           `resident_bytes` of a dataset; if you have none, please report this",
};

const RESIDENT: &str = "peak resident of a rank";

const BETWEEN_HOSTS: &str = "bytes between hosts per step";

/// Not in the table, because as many are received as are sent, except between hosts whose ranks make different numbers
/// of sums.
const FROM_HOSTS: &str = "bytes from other hosts";

/// Figures of states that are kept in host memory or on disk; not in the table of a run that keeps none there.
const ON_HOST: &str = "host memory of a rank";
const FROM_HOST: &str = "bytes from host per step";
const TO_HOST: &str = "bytes to host per step";
const FROM_DISK: &str = "bytes from disk per step";
const TO_DISK: &str = "bytes to disk per step";
const OF_TIERS: [&str; 5] = [ON_HOST, FROM_HOST, TO_HOST, FROM_DISK, TO_DISK];

const ROWS: [ComparedRow; 12] = [
    ComparedRow { name: "private memory of a rank", is_per_step: false, fault: &MAPPED },
    ComparedRow { name: "memory shared by all ranks", is_per_step: false, fault: &MAPPED },
    ComparedRow { name: ON_HOST, is_per_step: false, fault: &MAPPED },
    ComparedRow { name: RESIDENT, is_per_step: false, fault: &HELD },
    ComparedRow { name: "bytes copied per step", is_per_step: true, fault: &MOVED },
    ComparedRow { name: "bytes read in place per step", is_per_step: true, fault: &MOVED },
    ComparedRow { name: BETWEEN_HOSTS, is_per_step: true, fault: &MOVED },
    ComparedRow { name: FROM_HOSTS, is_per_step: true, fault: &MOVED },
    ComparedRow { name: FROM_HOST, is_per_step: true, fault: &MOVED },
    ComparedRow { name: TO_HOST, is_per_step: true, fault: &MOVED },
    ComparedRow { name: FROM_DISK, is_per_step: true, fault: &MOVED },
    ComparedRow { name: TO_DISK, is_per_step: true, fault: &MOVED },
];

/// The figures of one rank, in the order of [`ROWS`]: the lengths of its two mappings and of the host memory that keeps
/// its states, the most memory that its process has held, the bytes that it has copied from peers, read in their memory,
/// sent to other hosts, and received from other hosts, and those that it has read and written in each tier.
type RankFigures = [usize; ROWS.len()];

/// The figures that this rank has measured. `moved` and `crossed` are the counts of its transport for the steps.
fn measured<'p, D: Device, T: Transport<'p, D>>(
    engine: &Engine<'p, D, T>,
    moved: &Moved,
    crossed: Crossed,
) -> RankFigures {
    let (plan, arena) = (engine.plan(), engine.arena());
    let [private, segment] = arena.mapped_bytes();
    let resident = of_rank(plan, engine.arena().memory(), resident::peak_bytes(), resident::shared_bytes());
    let [copied, in_place] = [moved.copied, moved.in_place].map(|traffic| traffic.total_bytes());
    let [from_host, to_host, from_disk, to_disk] = by_tier(&plan.config, engine.moved_by_tier());
    let (host, sent, taken) = (arena.host_bytes(), crossed.sent_bytes, crossed.taken_bytes);
    [private, segment, host, resident, copied, in_place, sent, taken, from_host, to_host, from_disk, to_disk]
}

/// What a rank's process has held at most, of which this much is memory that it shares with other processes and has touched. The
/// kernel counts the pages of the program, and all shared memory that the process has touched. Data is read and not mapped, so its
/// pages do not count.
fn of_rank(plan: &Plan, memory: &Memory, peak_bytes: usize, shared_bytes: usize) -> usize {
    // If one process holds all ranks, even a lone one, nothing is shared with another process.
    if processes(plan) == 1 {
        return peak_bytes;
    }
    // Memory that peers own and this rank has only read counts as theirs. The rank's own share counts as its own, touched or not.
    let own = memory.bytes_of(Home::Shared) + memory.bytes_of(Home::Common) / plan.config.in_common();
    peak_bytes.saturating_sub(shared_bytes) + own
}

/// Bytes that were read and written in host memory, and on disk: all in the tier that the plan uses.
fn by_tier(config: &Config, TierBytes { read, written }: TierBytes) -> [usize; 4] {
    match config.offload.uses(TierKind::Host) {
        true => [read, written, 0, 0],
        false => [0, 0, read, written],
    }
}

/// The figures of the plan for `rank`, after `steps` steps.
fn planned(plan: &Plan, rank: usize, steps: usize, size: &RunSize) -> RankFigures {
    let total = |rank: usize| plan.of_rank(rank).memory.bytes_per_rank() + plan.host_bytes(size);
    let resident = match plan.config.transport {
        TransportKind::Shm | TransportKind::Peer | TransportKind::Nccl | TransportKind::Cluster => total(rank),
        TransportKind::Local => (0..plan.config.mesh.ranks()).map(total).sum(),
    };
    let pipeline_stage = plan.of_rank(rank);
    let moved = Moved::taken(plan, rank, pipeline_stage.step);
    let [from_host, to_host, from_disk, to_disk] = by_tier(&plan.config, TierBytes::of(plan, rank));
    let [copied, in_place] = [moved.copied, moved.in_place].map(|traffic| steps * traffic.total_bytes());
    let (sent, taken) = match plan.config.spans_hosts() {
        true => (
            Traffic::between_hosts(plan, rank, pipeline_stage.step),
            Traffic::from_hosts(plan, rank, pipeline_stage.step),
        ),
        false => Default::default(),
    };
    [
        private_mapping_bytes(plan.config.device, &pipeline_stage.memory),
        segment_mapping_bytes(plan, rank),
        pipeline_stage.memory.bytes_of(Home::Host),
        resident,
        copied,
        in_place,
        steps * sent.total_bytes(),
        // The numbers that all ranks exchange are only counted where they are sent.
        steps * (taken.total_bytes() - taken.agree_bytes),
        steps * from_host,
        steps * to_host,
        steps * from_disk,
        steps * to_disk,
    ]
}

/// Prints planned and measured figures, the largest of all ranks: the lengths of mappings, the memory that processes
/// held, and the bytes that were moved in all `steps`; also the memory of devices outside of arenas, which no plan
/// includes. `moved` and `crossed` are the counts of this rank for those steps. Every rank must call it.
///
/// # Errors
/// Z0410 if mappings are not as long as planned, Z0411 if more or fewer bytes were moved, Z0412 if a process held more
/// than the plan allows: the same on all ranks.
pub fn compare<'p, D: Device, T: Transport<'p, D>>(
    engine: &mut Engine<'p, D, T>,
    moved: &Moved,
    crossed: Crossed,
    steps: u64,
    size: &RunSize,
) -> Result<(), Error> {
    let (rank, steps) = (engine.arena().rank(), steps as usize);
    // Each rank also sends its planned figures: where launchers bind ranks to cores, ranks may have different numbers
    // of threads.
    let outside = engine.device().outside();
    let outside_bytes: Vec<usize> = outside.iter().map(|(_, bytes)| *bytes).collect();
    let planned = planned(engine.plan(), rank, steps, size);
    let figures: [&[usize]; 3] = [&planned, &measured(engine, moved, crossed), &outside_bytes];
    let others = others(&engine.plan().config);
    let own = figures.concat();
    // Numbers of bytes are small enough to be exact as f64.
    let own: Vec<f64> = own.into_iter().map(|bytes| bytes as f64).collect();
    let ranks = gather(engine, &own)?;
    let figures = |first: usize| -> Vec<RankFigures> {
        ranks.iter().map(|rank| core::array::from_fn(|row| rank[first + row] as usize)).collect()
    };
    let (planned, measured) = (figures(0), figures(ROWS.len()));
    if rank == 0 {
        let most = |at: usize| ranks.iter().map(|rank| rank[2 * ROWS.len() + at] as usize).max().unwrap_or(0);
        let outside: Vec<_> = outside.iter().enumerate().map(|(at, (what, _))| (*what, most(at))).collect();
        say(&table(&planned, &measured, &outside, steps, others));
    }
    check(&planned, &measured, others)
}

fn table(
    planned: &[RankFigures],
    measured: &[RankFigures],
    outside: &[(&str, usize)],
    steps: usize,
    others: Option<Others>,
) -> String {
    let mut table = format!("\n{:<28} {:>14} {:>14}\n", "", "planned", "measured");
    let is_shown = |i: usize, row: &ComparedRow| {
        let is_known = others == Some(Others::Mpi) || row.name != BETWEEN_HOSTS;
        let is_there = !OF_TIERS.contains(&row.name) || planned.iter().any(|figures| figures[i] > 0);
        (!row.is_per_step || steps > 0) && is_known && is_there && row.name != FROM_HOSTS
    };
    for (i, row) in ROWS.iter().enumerate().filter(|&(i, row)| is_shown(i, row)) {
        let most = |figures: &[RankFigures]| {
            let most = figures.iter().map(|figures| figures[i]).max().unwrap_or(0);
            if row.is_per_step { (most / steps).to_string() } else { Bytes(most).to_string() }
        };
        let bound = if row.fault.is_bound { "<= " } else { "" };
        let (name, planned) = match others.filter(|_| row.name == RESIDENT) {
            Some(others) => (others.row(), "not planned".to_owned()),
            None => (row.name, format!("{bound}{}", most(planned))),
        };
        table += &format!("{name:<28} {planned:>14} {:>14}\n", most(measured));
    }
    for (what, bytes) in outside {
        table += &format!("{what:<28} {:>14} {:>14}\n", "not planned", Bytes(*bytes).to_string());
    }
    table
}

/// Libraries that allocate memory in the process of a rank, in any amount and at any time. Their memory cannot be told
/// apart from the rank's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Mpi,
    Cuda,
}

impl Others {
    /// The name of the row for the memory of a process with them.
    fn row(self) -> &'static str {
        match self {
            Others::Mpi => "peak resident, with MPI",
            Others::Cuda => "peak resident, with CUDA",
        }
    }
}

fn others(config: &Config) -> Option<Others> {
    if config.spans_hosts() { Some(Others::Mpi) } else { (!config.device.is_host()).then_some(Others::Cuda) }
}

/// Compares each figure of each rank with the plan.
fn check(planned: &[RankFigures], measured: &[RankFigures], others: Option<Others>) -> Result<(), Error> {
    for (rank, (planned, measured)) in planned.iter().zip(measured).enumerate() {
        let figures = ROWS.iter().zip(planned.iter().zip(measured));
        for (row, (&planned, &measured)) in figures.filter(|(row, _)| others.is_none() || row.name != RESIDENT) {
            let Deviation { code, is_bound, help } = *row.fault;
            if measured > planned || !is_bound && measured < planned {
                return Err(Error::NotAsPlanned { code, rank, what: row.name, planned, measured, is_bound, help });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zero_plan::{Mesh, PlanBuf, Unit};

    use super::*;

    const PLANNED: RankFigures = [4096, 8192, 0, 1 << 20, 30, 60, 12, 9, 0, 0, 0, 0];

    /// The error if the second rank has another figure in row `row`.
    fn error(row: usize, measured: usize) -> Option<String> {
        let mut other = PLANNED;
        other[row] = measured;
        check(&[PLANNED; 2], &[PLANNED, other], None).err().map(|error| error.to_string())
    }

    #[test]
    fn z0410_a_mapping_of_another_length_names_its_rank() {
        assert_eq!(error(0, 4096), None);
        for bytes in [4095, 4096 + (64 << 20)] {
            let found = error(0, bytes).expect("another length");
            let expected = "error[Z0410]: rank 1, private memory of a rank: planned are 4096 bytes, measured";
            assert!(found.starts_with(&format!("{expected} {bytes}\n")), "{found}");
        }
        assert!(error(1, 8193).is_some_and(|error| error.contains("[Z0410]")));
        assert!(error(2, 4096).is_some_and(|error| error.contains("[Z0410]")));
    }

    #[test]
    fn z0411_a_byte_more_or_less_of_either_kind_is_an_error() {
        let near = [(4, 29), (4, 31), (5, 59), (5, 61), (6, 11), (6, 13), (7, 8), (7, 10)];
        for (row, bytes) in near.into_iter().chain((8..12).map(|row| (row, 1))) {
            assert!(error(row, bytes).is_some_and(|error| error.contains("[Z0411]")), "{bytes}");
        }
    }

    /// A lone rank's shared part lies in memory of its process alone, which the kernel counts with all else.
    #[test]
    fn only_what_processes_share_is_counted_apart() {
        let unit = Unit { params: 4096, takes: 4096, ..Unit::NONE };
        for (ranks, transport) in [(1, TransportKind::Shm), (2, TransportKind::Shm), (2, TransportKind::Local)] {
            let config = Config { mesh: Mesh::of_zero(ranks), stage: 3, transport, ..Config::PLAIN };
            PlanBuf::new("M", config, &[unit]).with(|plan| {
                let memory = plan.of_rank(0).memory;
                let own = memory.bytes_of(Home::Shared) + memory.bytes_of(Home::Common) / plan.config.in_common();
                assert!(own > 0, "parameters are shared, or held in common");
                // Two processes have touched the parameters of both; the kernel counts none of one alone as shared.
                let (held, shared) = if processes(plan) > 1 { (1000 + 2 * own, 2 * own) } else { (1000 + own, 0) };
                assert_eq!(of_rank(plan, &memory, held, shared), 1000 + own, "{ranks} ranks, {transport:?}");
            });
        }
    }

    #[test]
    fn z0412_what_is_held_is_a_bound() {
        assert_eq!(error(3, 1), None);
        let found = error(3, (1 << 20) + 1).expect("a byte too much");
        assert!(found.contains("[Z0412]") && found.contains("at most 1048576 bytes, measured 1048577"), "{found}");
    }

    #[test]
    fn what_others_hold_is_shown_and_not_held_against_the_plan() {
        for (others, name, rows) in [(Others::Mpi, "MPI", 6), (Others::Cuda, "CUDA", 5)] {
            let more = |row: usize| {
                let mut other = PLANNED;
                other[row] += 1;
                check(&[PLANNED], &[other], Some(others))
            };
            assert!((0..ROWS.len()).all(|row| more(row).is_ok() == (row == 3)));
            let text = table(&[PLANNED], &[PLANNED], &[], 3, Some(others));
            let row: Vec<&str> = text.lines().nth(4).expect("a row").split_whitespace().collect();
            assert_eq!(row, ["peak", "resident,", "with", name, "not", "planned", "1.0", "MiB"]);
            assert_eq!(text.lines().count(), 2 + rows, "{text}");
        }
    }

    #[test]
    fn what_goes_between_hosts_is_shown_where_there_are_several() {
        let row = |others| {
            let text = table(&[PLANNED], &[PLANNED], &[], 3, others);
            let row = text.lines().find(|line| line.starts_with(BETWEEN_HOSTS));
            row.map(|row| row[BETWEEN_HOSTS.len()..].split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!((row(Some(Others::Mpi)), row(None)), (Some("4 4".to_owned()), None));
    }

    #[test]
    fn the_table_shows_the_most_of_all_ranks_and_moved_bytes_of_one_step() {
        let text = table(
            &[PLANNED; 2],
            &[PLANNED, [4096, 8192, 0, 1 << 10, 30, 60, 12, 9, 0, 0, 0, 0]],
            &[("pinned", 8 << 20)],
            3,
            None,
        );
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[4], ["peak", "resident", "of", "a", "rank", "<=", "1.0", "MiB", "1.0", "MiB"]);
        assert_eq!(rows[5], ["bytes", "copied", "per", "step", "10", "10"]);
        assert_eq!(rows[7], ["pinned", "not", "planned", "8.0", "MiB"]);
        assert_eq!(table(&[PLANNED], &[PLANNED], &[], 0, None).lines().count(), 5);
        let with_tier = PLANNED.map(|figure| if figure == 0 { 24 } else { figure });
        let text = table(&[with_tier], &[with_tier], &[], 3, None);
        let told: Vec<&str> = text.lines().filter(|line| OF_TIERS.iter().any(|name| line.starts_with(name))).collect();
        let row = |name: &str, figure: &str| format!("{name:<28} {figure:>14} {figure:>14}");
        let rows = [ON_HOST, FROM_HOST, TO_HOST, FROM_DISK, TO_DISK].map(|name| match name {
            ON_HOST => row(name, "24 B"),
            _ => row(name, "8"),
        });
        assert_eq!(told, rows);
    }
}
