//! GPUs of several hosts, connected by NCCL after an exchange over MPI: the same bits as on one host, the planned bytes, and faults
//! that are reported as on processors.

use rustix::process::Signal;
use zero_core::model::Program;
use zero_runtime::device::Device;
use zero_tests::layout::{CUDA, changed};
use zero_tests::pretend;
use zero_tests::specs::cuda_program;
use zero_tests::training::{HYPER, STEPS, Start, Told, noise, train};

use crate::bytes::reported;
use crate::faults::{Job, LONE, Layout, PAIRS, cut_off, end_rank, stop};
use crate::net::{Mpi, Net, words};
use crate::profile::recorded_on_one_axis;
use crate::start::{assert_refused, chosen};

/// Variables by which ranks find the pretend devices; none if there are no such devices.
fn variables() -> Option<Vec<(&'static str, String)>> {
    pretend::libraries()?;
    let text = |(name, value): (_, std::ffi::OsString)| (name, value.into_string().expect("text"));
    Some(pretend::variables()?.into_iter().map(text).collect())
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// Trains a layout on threads whose devices reach one another.
struct Train<'a>(&'a [&'a str]);

impl Train<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Told {
        let config = changed(program.plan.config, self.0);
        Told::of(&train(program, config, HYPER, STEPS, Start::Seed(7), &noise(config)))
    }
}

/// Each rank maps, moves and sends to other hosts the planned bytes, as the program asserts.
#[test]
fn gpus_of_several_hosts_train_to_the_bits_of_threads() {
    let (Some(net), Some(own)) = (Net::of(3), variables()) else { return };
    assert!(pretend::is_cuda());
    let there = Mpi::all();
    for (turn, (name, layout, hosts, ranks)) in [
        ("zero3", &["mesh=1x2x1", "stage=0", "bucket=1"][..], 2, 2),
        ("bf16", &["mesh=1x1x2", "stage=1", "bucket=1"], 2, 2),
        ("zero3", &["mesh=1x1x3", "stage=2", "bucket=40000"], 3, 3),
        ("mixed", &["mesh=1x1x4", "stage=3", "prefetch=2"], 2, 4),
        ("bf16", &["mesh=1x2x2", "stage=3", "prefetch=1"], 2, 4),
        ("zero3", &["mesh=2x1x2", "stage=3", "micro_batches=3"], 2, 4),
    ]
    .into_iter()
    .enumerate()
    {
        let words = [&[CUDA], layout].concat();
        let expected = Train(&words).on(cuda_program(name));
        let program = format!("{} {name} {} hosts={hosts}", env!("CARGO_BIN_EXE_spec"), words.join(" "));
        let (mpi, seed) = (there[turn % there.len()], turn.to_string());
        let library = mpi.library();
        let environment = [&borrowed(&own)[..], &[("ZERO_MPI", &*library), ("PRETEND_SEED", &seed)]].concat();
        let output = net.launch(mpi, hosts, ranks / hosts, &environment, &program).output().expect("a launcher");
        let all = self::words(&output);
        assert!(output.status.success(), "{mpi:?}, {program}: {all}");
        let told: Vec<Told> = String::from_utf8_lossy(&output.stdout).lines().map(Told::read).collect();
        assert_eq!(told.len(), ranks, "{mpi:?}, {program}: {all}");
        assert!(told.iter().all(|told| told.is_part_of(&expected)), "{mpi:?}, {program}: a rank has other bits");
    }
}

/// A job on GPUs, which trains until something ends it.
fn job(net: &Net, mpi: Mpi, layout: Layout, variables: &[(&'static str, String)]) -> Job {
    Job::start_with(net, mpi, layout, &borrowed(variables))
}

#[test]
fn z0402_a_rank_with_a_gpu_that_is_stopped_is_named_with_its_host() {
    let (Some(net), Some(own)) = (Net::of(3), variables()) else { return };
    let there = Mpi::all();
    for (turn, (layout, rank)) in [(PAIRS, 3), (PAIRS, 0), (LONE, 2), (LONE, 0)].into_iter().enumerate() {
        let layout = layout.on_gpus();
        stop(&net, job(&net, there[turn % there.len()], layout, &own), layout, rank);
    }
}

#[test]
fn a_rank_with_a_gpu_that_is_killed_ends_all_hosts() {
    let (Some(net), Some(own)) = (Net::of(3), variables()) else { return };
    for (mpi, layout) in Mpi::all().into_iter().zip([PAIRS, LONE].into_iter().cycle()) {
        let layout = layout.on_gpus();
        end_rank(&net, job(&net, mpi, layout, &own), mpi, layout, Signal::KILL);
    }
}

/// The pretend NCCL needs no network, but the exchange of numbers between ranks does.
#[test]
fn a_link_between_gpus_that_goes_down_is_told_and_ends_both_hosts() {
    let Some(own) = variables() else { return };
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        let layout = PAIRS.on_gpus();
        cut_off(&net, job(&net, mpi, layout, &own), layout);
    }
}

#[test]
fn what_gpus_of_several_hosts_did_is_in_metrics_and_on_one_axis_of_time() {
    let (Some(net), Some(own)) = (Net::of(2), variables()) else { return };
    let (mpi, program) = (Mpi::all()[0], env!("CARGO_BIN_EXE_gpu_hosts"));
    let (between, within) = reported(&net, mpi, program, &borrowed(&own));
    // Of the three other ranks, two are on the other host.
    assert!(between > within && within > 0, "{between}, {within}");
    recorded_on_one_axis(&net, mpi, program, &borrowed(&own));
}

#[test]
fn z0445_a_host_with_another_nccl_is_told() {
    let (Some(net), Some(own)) = (Net::of(2), variables()) else { return };
    let (folder, mpi) = (tempfile::tempdir().expect("a folder"), Mpi::all()[0]);
    let usual = PAIRS.on_gpus().endless();
    let program = chosen(&net, folder.path(), &usual, &format!("env PRETEND_FAIL=nccl:22900 {usual}"));
    let library = mpi.library();
    let environment = [&borrowed(&own)[..], &[("ZERO_MPI", &*library)]].concat();
    let output = net.launch(mpi, 2, 2, &environment, &program).output().expect("a launcher");
    assert_refused(&output, "Z0445", "is NCCL 2.29.0, expected 2.28.9, as on rank 0");
}
