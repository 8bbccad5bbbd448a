//! Micro-benchmark: two ranks of a GPT publish in bf16 and serve six readers on their own host. Prints how fast training
//! copies a version, beside plain copies of memory by the same threads, and how many bytes a second readers take and verify together.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use bench::schedule::HYPER;
use zero_core::device::Kernels;
use zero_core::model::Model;
use zero_core::view::{View, ViewMut};
use zero_cpu::Cpu;
use zero_engine::Engine;
use zero_publish::client::{Reader, block_on};
use zero_publish::wire::{Layout, RankAddress, Version};
use zero_publish::{Readers, Served, Server, bind, run_name};
use zero_ranks::transport::local;
use zero_runtime::prelude::*;
use zero_study::hardware::median;

const ROUNDS: u64 = 7;
const READERS: usize = 6;
const SECRET: [u8; 32] = [7; 32];

#[derive(Layer)]
struct Block {
    #[residual]
    attention: (LayerNorm<768>, CausalSelfAttention<768, 12>),
    #[residual]
    mlp: (LayerNorm<768>, Linear<768, 3072>, Gelu, Linear<3072, 768>),
}

#[zero(spec = "benches/publish.ron")]
struct Gpt {
    embed: Embedding<512, 64, 768>,
    blocks: [Block; 12],
    norm: LayerNorm<768>,
    head: LmHead<768, 512>,
}

/// Seconds of one round.
struct Round {
    /// Of a publication, and of as many bytes that are copied.
    published_s: f64,
    copied_s: f64,
    /// Until all ranks have hashed the version, and from then on until all readers have it.
    shown_s: f64,
    read_s: f64,
}

async fn read(url: &str, version: &Version) -> usize {
    let mut bytes = 0;
    for mut rank in Reader::new(url, None, "bench").fetch(version).await.expect("a version").ranks {
        while let Some(piece) = rank.next().await.expect("whole pieces") {
            bytes += black_box(piece).len();
        }
    }
    bytes
}

/// Has all readers take a version at once.
fn read_by_all(url: &str, version: &Version) -> usize {
    std::thread::scope(|scope| {
        let reader = || scope.spawn(|| block_on(read(url, version)).expect("a runtime"));
        let all: Vec<_> = (0..READERS).map(|_| reader()).collect();
        all.into_iter().map(|reader| reader.join().expect("a reader that reads")).sum()
    })
}

fn seconds(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64()
}

fn main() {
    let program = Gpt::PROGRAM;
    let plan = &program.plan;
    let ranks = plan.config.mesh.ranks();
    let listeners: Vec<_> = (0..ranks).map(|rank| bind("127.0.0.1:0", rank).expect("a port")).collect();
    let port = |rank: usize| listeners[rank].local_addr().expect("an address").port();
    let bytes = plan.places(plan.config.mesh.coordinates(0)).copy(0).len_bytes;
    let url = format!("http://127.0.0.1:{}", port(0));
    let layout = Layout {
        model: plan.model.to_owned(),
        dtype: "bf16".to_owned(),
        ranks: (0..ranks).map(|rank| RankAddress { url: None, port: port(rank), bytes }).collect(),
        tensors: Vec::new(),
        files: Vec::new(),
    };
    let (readers, barrier) = (Arc::new(Readers::default()), Barrier::new(ranks));
    let (rounds, listeners) = (Mutex::new(Vec::new()), Mutex::new(listeners.into_iter().map(Some).collect::<Vec<_>>()));
    let rank = |transport| {
        let mut engine = Engine::new(program, transport);
        engine.initialize(7);
        let (rank, run) = (engine.arena().rank(), run_name(&SECRET));
        let listener = listeners.lock().expect("listeners")[rank].take().expect("one rank takes it");
        let (layout, files, first) = (layout.clone(), Vec::new(), url.clone());
        let served = Served { rank, run: run.clone(), secret: SECRET, token: None, layout, files, first };
        let (server, steps) = Server::new(listener, served, Arc::clone(&readers));
        let copies = engine.copies().expect("a plan that publishes");
        std::thread::scope(|scope| {
            scope.spawn(|| server.run(copies, |note| eprintln!("{note}")).expect("a server"));
            // A publication reads 4 bytes and writes 2 for each number; a copy as many as it writes.
            let copied = bytes / 2 * 6 / 2 / size_of::<f32>();
            let (from, mut to) = (vec![1.0f32; copied], vec![0.0f32; copied]);
            for step in 1..=ROUNDS {
                engine.step(&HYPER, |_, ids, targets| (ids.fill(1), targets.fill(1)).1).expect("a step");
                barrier.wait();
                let copied_s = seconds(|| Cpu::ONE_THREAD.copy(ViewMut::from(&mut to[..]), View::from(&from[..])));
                barrier.wait();
                let published_s = seconds(|| engine.publish().expect("a publication"));
                barrier.wait();
                let shown_s = seconds(|| {
                    steps.offer(step);
                    if rank == 0 {
                        assert!(readers.wait_until_shown(step, Duration::from_secs(60)));
                    }
                });
                if rank == 0 {
                    let version = Version::of(step, &run);
                    let read_s = seconds(|| assert_eq!(read_by_all(&url, &version), READERS * ranks * bytes));
                    rounds.lock().expect("rounds").push(Round { published_s, copied_s, shown_s, read_s });
                }
                barrier.wait();
            }
            drop(steps);
        });
    };
    local::run(plan, |_| false, rank).expect("the memory of two ranks");
    let rounds = rounds.into_inner().expect("rounds");
    let of = |each: fn(&Round) -> f64| median(rounds.iter().map(each).collect());
    let all = (ranks * bytes) as f64;
    let [published_s, copied_s, read_s] = [of(|it| it.published_s), of(|it| it.copied_s), of(|it| it.read_s)];
    println!("a version: {:.1} MB of {ranks} ranks", all / 1e6);
    println!(
        "training stands still: {:.1} ms, {:.1} GB/s read and written",
        published_s * 1e3,
        3.0 * all / published_s / 1e9
    );
    println!(
        "copies of as many bytes: {:.1} ms; a publication / a copy: {:.2}",
        copied_s * 1e3,
        published_s / copied_s
    );
    println!("hashed by all ranks: {:.1} ms later", of(|it| it.shown_s) * 1e3);
    println!("{READERS} readers: {:.1} ms, together {:.2} GB/s", read_s * 1e3, READERS as f64 * all / read_s / 1e9);
}
