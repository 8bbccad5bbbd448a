//! Ranks of several hosts train to the bits of ranks that are threads. The program asserts that each rank maps and moves the
//! planned bytes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use zero_core::model::{Model, Program};
use zero_plan::{Config, Width};
use zero_runtime::device::Device;
use zero_tests::layout::changed;
use zero_tests::specs::{NAMES, Wide, program};
use zero_tests::training::{HYPER, STEPS, Start, Told, noise, train};

use crate::net::{Mpi, Net, words};

/// Trains a layout on threads.
struct Train<'a>(&'a [String]);

impl Train<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Told {
        let config = changed(program.plan.config, self.0);
        Told::of(&train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config)))
    }
}

/// Trains a layout on hosts, and compares.
fn trains_alike(net: &Net, mpi: Mpi, name: &str, layout: &[String], hosts: usize, ranks: usize) {
    trains_alike_with(net, mpi, &[], name, layout, hosts, ranks);
}

/// The same with variables for the launcher.
fn trains_alike_with(
    net: &Net,
    mpi: Mpi,
    variables: &[(&str, &str)],
    name: &str,
    layout: &[String],
    hosts: usize,
    ranks: usize,
) {
    let expected = expected(name, layout);
    let layout = layout.join(" ");
    let program = format!("{} {name} {layout} hosts={hosts}", env!("CARGO_BIN_EXE_spec"));
    let library = mpi.library();
    let environment = [&[("ZERO_MPI", &*library)], variables].concat();
    let output = net.launch(mpi, hosts, ranks / hosts, &environment, &program).output().expect("a launcher");
    assert!(output.status.success(), "{mpi:?}, {program}: {}", words(&output));
    let told: Vec<Told> = String::from_utf8_lossy(&output.stdout).lines().map(Told::read).collect();
    assert_eq!(told.len(), ranks, "{mpi:?}, {program}: {}", words(&output));
    for told in told {
        assert!(told.is_part_of(&expected), "{mpi:?}, {program}: a rank has other bits");
    }
}

/// The result of threads. Each layout is trained once, because many launches are compared with it.
fn expected(name: &str, layout: &[String]) -> Told {
    static TOLD: Mutex<BTreeMap<(String, Vec<String>), Told>> = Mutex::new(BTreeMap::new());
    let key = (name.to_owned(), layout.to_vec());
    if let Some(told) = TOLD.lock().unwrap().get(&key) {
        return told.clone();
    }
    let told = match name {
        WIDE => Train(layout).on(Wide::PROGRAM),
        _ => Train(layout).on(program(name)),
    };
    TOLD.lock().unwrap().insert(key, told.clone());
    told
}

/// The program's name for [`Wide`].
const WIDE: &str = "wide";

/// A layout of a spec on four ranks. Directions of matrices stay on a host, and so do their shards.
fn on_four(name: &str) -> Vec<String> {
    let Config { mesh, optimizer, .. } = program(name).plan.config;
    if optimizer.orthogonalizes() {
        return vec!["mesh=1x4x1".to_owned()];
    }
    vec![format!("mesh={}x{}x{}", mesh.pipeline, mesh.replica, 4 / (mesh.pipeline * mesh.replica))]
}

/// Each spec, on each number of hosts over one MPI, in turn. If there are three MPIs, each spec is trained over each of
/// them, and each MPI carries each number of hosts for a third of the specs.
#[test]
fn every_spec_trains_to_the_bits_of_one_host() {
    let Some(net) = Net::of(4) else { return };
    for (number, &name) in NAMES.iter().enumerate() {
        on_all_numbers_of_hosts(&net, number, name, &on_four(name));
    }
}

/// The same in the other width than the spec's, each over the next MPI.
#[test]
fn every_spec_trains_to_the_bits_of_one_host_in_its_other_width() {
    let Some(net) = Net::of(4) else { return };
    for (number, name) in NAMES.iter().enumerate() {
        let is_wide = program(name).plan.config.precision.compute == Width::F32;
        let layout = [vec![format!("as={name}")], on_four(name)].concat();
        on_all_numbers_of_hosts(&net, number + 1, if is_wide { "bf16" } else { "zero3" }, &layout);
    }
}

fn on_all_numbers_of_hosts(net: &Net, first_mpi: usize, name: &str, layout: &[String]) {
    let there = Mpi::all();
    for (turn, hosts) in [1, 2, 4].into_iter().enumerate() {
        trains_alike(net, there[(first_mpi + turn) % there.len()], name, layout, hosts, 4);
    }
}

#[test]
fn layouts_that_cross_hosts_in_every_way_train_to_the_bits_of_one() {
    let Some(net) = Net::of(3) else { return };
    let layout = |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
    let there = Mpi::all();
    for (number, (words, hosts, ranks)) in [
        // A replica spans parts of hosts: two of its ranks are on one host, and one is on another.
        (&["mesh=1x2x3", "stage=3", "prefetch=1"][..], 3, 6),
        (&["mesh=1x1x6", "stage=2", "bucket=1"], 3, 6),
        // Three ranks of a host are two subtrees of a sum; another host completes one of them.
        (&["mesh=1x1x6", "stage=2", "bucket=1", "micro_batches=2"], 2, 6),
        (&["mesh=1x1x6", "stage=3", "prefetch=1"], 2, 6),
        (&["mesh=1x1x3", "stage=1", "bucket=40000"], 3, 3),
        // Ranks of a host convert from one another's inboxes.
        (&["mesh=1x1x6", "stage=3", "prefetch=1", "bucket=1"], 2, 6),
        (&["mesh=1x3x1", "stage=0", "bucket=1"], 3, 3),
        // Ranks of a host copy sums from one another. The sums are beside the gradients or replace them.
        (&["mesh=1x1x6", "stage=0", "bucket=1", "micro_batches=2"], 3, 6),
        (&["mesh=1x1x6", "stage=0", "bucket=40000", "micro_batches=1"], 2, 6),
        (&["mesh=3x1x1", "micro_batches=3"], 3, 3),
        (&["mesh=2x1x3", "stage=3", "micro_batches=2"], 2, 6),
        // Matrices are whole on each host.
        (&["as=muon", "mesh=1x2x3", "stage=2", "bucket=1"], 2, 6),
        (&["as=muon", "mesh=1x3x1", "stage=0", "bucket=40000"], 3, 3),
    ]
    .into_iter()
    .enumerate()
    {
        for (turn, name) in ["zero3", "bf16", "mixed"].into_iter().enumerate() {
            let mpi = there[(number + turn) % there.len()];
            trains_alike(&net, mpi, name, &layout(words), hosts, ranks);
        }
    }
}

#[test]
fn replicas_that_share_hosts_train_to_the_bits_of_one() {
    let Some(net) = Net::of(2) else { return };
    let (there, mut turn) = (Mpi::all(), 0);
    // Three replicas of a host are two subtrees of a sum. Their terms are summed there unless the sums are more bytes.
    for (mesh, ranks) in [("mesh=1x4x1", 4), ("mesh=1x6x1", 6), ("mesh=1x4x2", 8)] {
        for (stage, more) in [("stage=0", "micro_batches=1"), ("stage=2", "bucket=1"), ("stage=3", "micro_batches=2")] {
            for name in ["zero3", "bf16", "mixed"] {
                trains_alike(&net, there[turn % there.len()], name, &[mesh, stage, more].map(str::to_owned), 2, ranks);
                turn += 1;
            }
        }
    }
}

/// What a rank keeps in a tier stays with it, whichever hosts its peers are on.
#[test]
fn states_in_tiers_of_several_hosts_train_to_the_bits_of_one() {
    let Some(net) = Net::of(2) else { return };
    let there = Mpi::all();
    let layouts = [
        (WIDE, "mesh=1x1x4", "stage=3", "offload=sums"),
        ("mixed", "mesh=1x1x4", "stage=3", "offload=optimizer"),
        ("zero3", "mesh=1x4x1", "stage=1", "offload=optimizer"),
        (WIDE, "mesh=2x1x2", "stage=2", "offload=sums"),
        (WIDE, "mesh=2x1x2", "stage=3", "offload=shards"),
    ];
    for (turn, (name, mesh, stage, tier)) in layouts.into_iter().enumerate() {
        let layout = [mesh, stage, "micro_batches=2", "bucket=1", tier].map(str::to_owned);
        trains_alike(&net, there[turn % there.len()], name, &layout, 2, 4);
    }
}

/// Sums in f32 arrive in the same place as parameters in bf16.
#[test]
fn sums_that_are_wider_than_parameters_train_to_the_bits_of_one_host() {
    let Some(net) = Net::of(3) else { return };
    let there = Mpi::all();
    for (turn, (mesh, hosts)) in
        [("mesh=1x1x6", 2), ("mesh=1x1x6", 3), ("mesh=1x2x3", 3), ("mesh=1x6x1", 2)].into_iter().enumerate()
    {
        for stage in ["stage=1", "stage=3"] {
            let layout = [mesh, stage, "reduce=f32", "bucket=1"].map(str::to_owned);
            trains_alike(&net, there[turn % there.len()], "mixed", &layout, hosts, 6);
        }
    }
}

/// Of three hosts with five ranks each, the first and the last send two sums of their gradients, and the second sends three.
#[test]
fn hosts_that_send_unlike_numbers_of_sums_train_to_the_bits_of_one() {
    let Some(net) = Net::of(3) else { return };
    let mpi = Mpi::all()[0];
    trains_alike(&net, mpi, "zero3", &["mesh=1x1x15", "stage=2"].map(str::to_owned), 3, 15);
}

/// Along `replica`, a part is sent before its receiver asks for it, and parts that the receiver asks for earlier are sent later.
/// All are too large for MPI to send them without an answer.
#[test]
fn messages_that_nobody_receives_yet_let_later_ones_pass() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        for words in [["mesh=1x2x1", "stage=0", "bucket=16777216"], ["mesh=1x1x2", "stage=3", "bucket=16777216"]] {
            trains_alike(&net, mpi, WIDE, &words.map(str::to_owned), 2, 2);
        }
    }
}

/// MPI may or may not buffer a message. Here it buffers no message longer than its own smallest limit, so a rank that relied on a
/// buffer would wait for ever.
#[test]
fn nothing_rests_on_what_mpi_buffers() {
    let Some(net) = Net::of(2) else { return };
    let unbuffered = [("OMPI_MCA_btl_tcp_eager_limit", "128"), ("OMPI_MCA_btl_tcp_rndv_eager_limit", "128")];
    for mpi in Mpi::all().into_iter().filter(|&mpi| mpi != Mpi::Mpich) {
        for name in ["zero3", "hsdp", "interleaved"] {
            trains_alike_with(&net, mpi, &unbuffered, name, &on_four(name), 2, 4);
        }
        trains_alike_with(&net, mpi, &unbuffered, WIDE, &["mesh=1x2x1", "stage=0"].map(str::to_owned), 2, 2);
    }
}

#[test]
fn two_jobs_at_once_on_the_same_hosts_each_train_to_their_own_bits() {
    let Some(net) = Net::of(2) else { return };
    let net = &net;
    for mpi in Mpi::all() {
        std::thread::scope(|scope| {
            for name in ["zero3", "bf16"] {
                scope.spawn(move || trains_alike(net, mpi, name, &on_four(name), 2, 4));
            }
        });
    }
}
