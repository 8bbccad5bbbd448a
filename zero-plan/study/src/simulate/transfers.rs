//! Transfers: times in which others bring new weights to their engines, beside the time that the bytes need on the links. Writes
//! `docs/transfers.md`; no row is left out because it misses.

use core::fmt::Write;

use super::publication::over;
use super::text::ShownTime;
use crate::hardware::{Hardware, Network};
use crate::repository::text;

/// What carries the bytes.
#[derive(Clone, Copy)]
enum Carrier {
    /// The adapters of hosts: so many hosts send, and so many take, which have this many engines together.
    Hosts { from: usize, to: usize, engines: usize },
    /// The links of this many GPUs of a host to its memory, each of which takes its part.
    HostLinks(usize),
}

/// A transfer elsewhere.
struct Elsewhere {
    who: &'static str,
    what: &'static str,
    /// Parameters, in billions, and bytes of each.
    billions: f64,
    width: f64,
    /// A file of `hardware/`.
    hardware: &'static str,
    carrier: Carrier,
    /// Whether the source does not say the hosts or the links, so that they are assumed.
    is_assumed: bool,
    published_s: f64,
}

use Carrier::{HostLinks, Hosts};

const TRANSFERS: [Elsewhere; 10] = [
    Elsewhere {
        who: "Perplexity, research.perplexity.ai, 24 Sep 2025",
        what: "Kimi-K2, 256 to 128 GPUs, static plan, RDMA from all ranks",
        billions: 1040.0,
        width: 1.0,
        hardware: "h200",
        carrier: Hosts { from: 32, to: 16, engines: 1 },
        is_assumed: false,
        published_s: 1.3,
    },
    Elsewhere {
        who: "MoonshotAI/checkpoint-engine, README",
        what: "Kimi-K2 on 256 H20, 16 GPUs an engine, broadcast",
        billions: 1040.0,
        width: 1.0,
        hardware: "h200",
        carrier: Hosts { from: 32, to: 32, engines: 16 },
        is_assumed: true,
        published_s: 16.0,
    },
    Elsewhere {
        who: "MoonshotAI/checkpoint-engine, README",
        what: "GLM-4.5-Air on 8 H800, from host memory",
        billions: 106.9,
        width: 2.0,
        hardware: "h100",
        carrier: HostLinks(8),
        is_assumed: true,
        published_s: 3.5,
    },
    Elsewhere {
        who: "lmsys.org, 29 Apr 2026",
        what: "Kimi-K2, peer to peer",
        billions: 1040.0,
        width: 1.0,
        hardware: "h200",
        carrier: Hosts { from: 32, to: 2, engines: 1 },
        is_assumed: true,
        published_s: 7.2,
    },
    Elsewhere {
        who: "vllm-project.github.io, 22 Aug 2026",
        what: "Qwen3-235B, pipelined by block",
        billions: 235.1,
        width: 2.0,
        hardware: "h200",
        carrier: Hosts { from: 1, to: 1, engines: 1 },
        is_assumed: true,
        published_s: 3.5,
    },
    Elsewhere {
        who: "NVIDIA-NeMo/RL #2971",
        what: "30B, reshard by NCCL",
        billions: 30.5,
        width: 2.0,
        hardware: "h100",
        carrier: Hosts { from: 1, to: 1, engines: 1 },
        is_assumed: true,
        published_s: 0.74,
    },
    Elsewhere {
        who: "verl/checkpoint_engine/README.md",
        what: "30B, 2 trainers to 30 rollouts, 8.25 GB/s",
        billions: 30.5,
        width: 2.0,
        hardware: "h100",
        carrier: Hosts { from: 1, to: 4, engines: 4 },
        is_assumed: true,
        published_s: 7.0,
    },
    Elsewhere {
        who: "trl #7131",
        what: "32B, NCCL after a gather on one rank",
        billions: 32.8,
        width: 2.0,
        hardware: "h100",
        carrier: Hosts { from: 1, to: 1, engines: 1 },
        is_assumed: true,
        published_s: 2.3,
    },
    Elsewhere {
        who: "trl #5892",
        what: "0.6B, vLLM's native routes",
        billions: 0.6,
        width: 2.0,
        hardware: "h100",
        carrier: Hosts { from: 1, to: 1, engines: 1 },
        is_assumed: true,
        published_s: 0.18,
    },
    Elsewhere {
        who: "arXiv 2602.03839; huggingface/blog #3386",
        what: "7B, 108 MB of changes in place of 14 GB; engine paused for 1.1 s of it",
        billions: 7.6,
        width: 2.0,
        hardware: "h100",
        carrier: Hosts { from: 1, to: 1, engines: 1 },
        is_assumed: true,
        published_s: 9.4,
    },
];

impl Elsewhere {
    fn hardware(&self) -> Hardware {
        Hardware::parse(&text(&format!("hardware/{}.ron", self.hardware))).expect("a file that is checked")
    }

    /// Bytes over the slowest of the links that carry them, and the latency.
    fn predicted_s(&self) -> f64 {
        let (hardware, bytes) = (self.hardware(), self.billions * 1e9 * self.width);
        match self.carrier {
            Hosts { from, to, engines } => {
                let network: Network = hardware.network.expect("a network between hosts");
                // Each engine takes a whole version, spread over its hosts.
                over(&network, bytes * engines as f64 / to as f64, bytes * engines as f64 / from as f64)
            }
            HostLinks(gpus) => {
                let link = hardware.node.host_link.expect("links to the host");
                bytes / gpus as f64 / link.read + link.latency
            }
        }
    }
}

const HEAD: &str = "\
# Published times of weight transfers

Times in which others bring new weights to their engines, beside the time that the bytes need: bytes / links, as `cargo zero simulate`
predicts a publication, at the rates of the hardware file. A whole version goes to each engine, spread over its hosts; the slower of the
sending and the taking side decides. Where the source does not say how many hosts there are or what links they have, the row is marked
and has our assumption. A test writes this page (`UPDATE_EXPECT=1 cargo test -p zero-study --lib transfers`) and fails if it is out of
date. [publish.md](publish.md) says what publishing is here, and what was measured of it.

| who | what | bytes | over | predicted | published | predicted / published |
|---|---|---|---|---|---|---|
";

const TAIL: &str = "
**Nobody reaches the links.** A published time has more in it than the transfer: gathers on the learners, conversions, copies to and
from host memory, calls to engines, and their loading of weights; the sources do not divide it. The nearest is the one that goes
block by block, so that some of these overlap. The last row moves 0.7 % of the bytes, which are in the table as a whole version, and
takes 9.4 s to find, move and apply them.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for it in &TRANSFERS {
        let over = match it.carrier {
            Hosts { from, to, engines } => {
                let engines = zero_plan::counted(engines, "engine", "engines");
                format!("{} to {}, {engines}", hosts(from), hosts(to))
            }
            HostLinks(gpus) => format!("links of {gpus} GPUs to their host"),
        };
        let (mark, predicted, published) =
            (if it.is_assumed { " (assumed)" } else { "" }, it.predicted_s(), it.published_s);
        let gb = it.billions * it.width;
        let _ = writeln!(
            page,
            "| {} | {} | {gb:.1} GB | {over}, {}{mark} | {} | {} | {:.2} |",
            it.who,
            it.what,
            it.hardware,
            ShownTime(predicted),
            ShownTime(published),
            predicted / published
        );
    }
    page + TAIL
}

fn hosts(count: usize) -> String {
    zero_plan::counted(count, "host", "hosts")
}

#[test]
fn the_page_of_transfers_is_up_to_date() {
    expect_test::expect_file!["../../../../docs/transfers.md"].assert_eq(&page());
}

/// What the page says below its table.
#[test]
fn nobody_reaches_the_links() {
    let share = |it: &Elsewhere| it.predicted_s() / it.published_s;
    assert!(TRANSFERS.iter().all(|it| share(it) < 0.5), "{:?}", TRANSFERS.each_ref().map(share));
    let most = TRANSFERS.iter().max_by(|a, b| share(a).total_cmp(&share(b))).expect("rows");
    assert_eq!(most.what, "Qwen3-235B, pipelined by block");
}
