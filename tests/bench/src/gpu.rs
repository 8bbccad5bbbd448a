//! GPU: training steps on one CUDA device, in rounds, beside PyTorch's compiled ones. Never measures processors.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use zero_core::model::Model;
use zero_core::random::mix;
use zero_runtime::plan::Plan;

use crate::Outcome;
use crate::figures::{Round, Spread};
use crate::flop::Step;
use crate::models::Mode;
use crate::processes::{self, Peer};

/// Tokens in the file that batches are drawn from. They may repeat, because the loss is not measured.
const TOKENS: u64 = 1 << 21;

/// Operations a second of an H200's products in bf16, without sparsity, by NVIDIA's data sheet.
const H200_BF16_PER_S: f64 = 989e12;

macro_rules! gpt {
    ($module:ident: dim $dim:literal, heads $heads:literal, layers $layers:literal, vocab $vocab:literal,
     batch $sequences:literal x $length:literal) => {
        /// A size, on one device.
        pub mod $module {
            use zero_runtime::prelude::*;

            /// Blocks.
            pub const LAYERS: usize = $layers;
            /// Width of the residual stream.
            pub const WIDTH: usize = $dim;

            #[derive(Layer)]
            struct Block {
                #[residual]
                attention: (LayerNorm<$dim>, CausalSelfAttention<$dim, $heads>),
                #[residual]
                mlp: (LayerNorm<$dim>, Linear<$dim, { 4 * $dim }>, Gelu, Linear<{ 4 * $dim }, $dim>),
            }

            // One line, because the formatter would move a second one each time.
            #[zero(device = Cuda, ranks = 1, stage = 0, compute = BF16, sequences = $sequences, length = $length, params = BF16, master = F32)]
            #[doc = "The model."]
            pub struct Gpt {
                embed: Embedding<$vocab, $length, $dim>,
                blocks: [Block; $layers],
                norm: LayerNorm<$dim>,
                #[tied(embed)]
                head: LmHead<$dim, $vocab>,
            }
        }
    };
}

gpt!(gpt2_124m: dim 768, heads 12, layers 12, vocab 50304, batch 32 x 1024);
gpt!(gpt2_1558m: dim 1600, heads 25, layers 48, vocab 50304, batch 16 x 1024);
gpt!(gpt2_1558m_8: dim 1600, heads 25, layers 48, vocab 50304, batch 8 x 1024);
gpt!(launches: dim 256, heads 4, layers 12, vocab 512, batch 4 x 256);

/// A model, its size for the peer, and the required figures.
struct Row {
    name: &'static str,
    what: &'static str,
    plan: &'static Plan<'static>,
    shape: (usize, usize),
    train: fn(Vec<OsString>) -> ExitCode,
    /// Heads. A plan contains neither these nor the number of ids.
    heads: usize,
    vocab: usize,
    /// Required tokens a second, as a minimum and a target; `ratio` is the same for the speed relative to the peer.
    tokens_per_s: Option<[f64; 2]>,
    ratio: [f64; 2],
}

macro_rules! row {
    ($module:ident, $what:literal, heads $heads:literal, vocab $vocab:literal, $tokens_per_s:expr, $ratio:expr) => {
        Row {
            name: stringify!($module),
            what: $what,
            plan: $module::Gpt::PLAN,
            shape: ($module::LAYERS, $module::WIDTH),
            train: zero_runtime::main_from::<$module::Gpt>,
            heads: $heads,
            vocab: $vocab,
            tokens_per_s: $tokens_per_s,
            ratio: $ratio,
        }
    };
}

/// The first [`USUAL`] are measured if none are named. The last row has the batch of earlier figures.
const ROWS: [Row; 4] = [
    row!(gpt2_124m, "GPT-2 124M", heads 12, vocab 50304, Some([450e3, 560e3]), [1.0, 1.15]),
    row!(gpt2_1558m, "GPT-2 1.5B", heads 25, vocab 50304, Some([45e3, 55e3]), [1.0, 1.15]),
    row!(launches, "12 layers of 256", heads 4, vocab 512, None, [1.5, 3.0]),
    row!(gpt2_1558m_8, "GPT-2 1.5B, 8 sequences", heads 25, vocab 50304, None, [1.0, 1.15]),
];

/// Rows that are measured if none are named.
const USUAL: usize = 3;

/// The ways in which the peer trains. The required ratio is to the first.
const MODES: [Mode; 2] = [Mode { name: "fsdp", precision: "bf16" }, Mode { name: "single", precision: "bf16" }];

/// The function that trains the model of this name, if it is measured here.
pub fn train(name: &str) -> Option<fn(Vec<OsString>) -> ExitCode> {
    ROWS.iter().find(|row| row.name == name).map(|row| row.train)
}

/// Names of what is measured here.
pub fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// Measures in rounds, each with `steps` timed steps of every model, and prints the table.
///
/// # Errors
/// If something fails to run.
pub fn measure(python: Option<PathBuf>, rounds: u32, steps: u32, names: &[String]) -> Outcome<()> {
    let peer = python.map(|python| Peer { python });
    let rows: Vec<&Row> = match names {
        [] => ROWS[..USUAL].iter().collect(),
        names => ROWS.iter().filter(|row| names.iter().any(|name| name == row.name)).collect(),
    };
    let folder = tempfile::tempdir()?;
    let (mut measured, mut memory) = (Vec::new(), Vec::new());
    for number in 1..=rounds {
        eprintln!("round {number} of {rounds}");
        let mut round = Round::default();
        for row in &rows {
            let data = folder.path().join(format!("{}.bin", row.vocab));
            write_tokens(&data, row.vocab)?;
            let (ours, said) = processes::train_ours_said(row.name, steps, &["--data".as_ref(), data.as_os_str()])?;
            eprintln!("  {}: {:.1} ms a step", row.what, 1e3 * ours.step_s);
            // This value is the same in each round.
            if number == rounds {
                memory.push((row.what, memory_of(&said)));
            }
            round.put(row.name, ours.step_s);
            for (peer, mode) in peer.iter().flat_map(|peer| MODES.iter().map(move |mode| (peer, mode))) {
                let sample = peer.train(mode, [1, 1], &row.options(), row.plan.params(), steps)?;
                round.put(row.of(mode), sample.step_s);
                eprintln!("  {}: {:.1} ms a step", row.of(mode), 1e3 * sample.step_s);
            }
        }
        measured.push(round);
    }
    if let Some(peer) = &peer {
        println!("peer: {}, compiled", peer.version()?);
    }
    println!("rounds: {rounds}; medians, least and most over them\n");
    print(&rows, &measured);
    print_memory(&memory);
    Ok(())
}

/// The planned and the measured memory of a run, by name: the rows in bytes of the table that it prints at its end.
fn memory_of(said: &str) -> Vec<[String; 3]> {
    let is_head = |line: &&str| line.split_whitespace().eq(["planned", "measured"]);
    let rows = said.lines().skip_while(|line| !is_head(line)).skip(1).take_while(|line| !line.trim().is_empty());
    let rows = rows.filter_map(|line| {
        let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned);
        Some([cells.next()?, cells.next()?, cells.next()?])
    });
    rows.filter(|[_, _, measured]| measured.ends_with('B')).collect()
}

fn print_memory(models: &[(&str, Vec<[String; 3]>)]) {
    println!("\n| model, bf16 | memory | planned | measured |\n|{}", "---|".repeat(4));
    for (model, rows) in models {
        rows.iter().for_each(|[what, planned, measured]| println!("| {model} | {what} | {planned} | {measured} |"));
    }
}

impl Row {
    /// The name of the figure for one of the peer's modes.
    fn of(&self, mode: &Mode) -> String {
        format!("{}, {mode}", self.name)
    }

    fn tokens(&self) -> f64 {
        self.plan.config.tokens_per_step() as f64
    }

    /// The options for the peer.
    fn options(&self) -> Vec<String> {
        let ((layers, dim), config) = (self.shape, &self.plan.config);
        let numbers = [
            ("--dim", dim),
            ("--heads", self.heads),
            ("--layers", layers),
            ("--vocab", self.vocab),
            ("--seq", config.length),
            ("--batch", config.sequences),
        ];
        let numbers = numbers.into_iter().flat_map(|(option, number)| [option.to_owned(), number.to_string()]);
        numbers.chain(["--device", "cuda", "--compile", "--tied"].map(str::to_owned)).collect()
    }
}

/// Writes ids that are all equally likely, like the peer's, as little-endian u16.
fn write_tokens(path: &std::path::Path, vocab: usize) -> Outcome<()> {
    if path.exists() {
        return Ok(());
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create_new(path)?);
    for place in 0..TOKENS {
        let id = u16::try_from(mix(0, place) % vocab as u64)?;
        file.write_all(&id.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

fn print(rows: &[&Row], rounds: &[Round]) {
    println!(
        "| model, bf16 | tokens/s | at least | aim | share of an H200's products, % | PyTorch's FSDP2 / ours | at least | aim | its single / ours |"
    );
    println!("|{}", "---|".repeat(9));
    for row in rows {
        let cell = |digits: usize, figure: &dyn Fn(&Round) -> Option<f64>| match Spread::over(rounds, figure) {
            Some(Spread { median, least, most }) => format!("{median:.digits$} ({least:.digits$} to {most:.digits$})"),
            None => String::new(),
        };
        let per_s = cell(0, &|round| Some(row.tokens() / round.get(row.name)?));
        let flop = Step::of(row.plan, row.shape.0, row.shape.1).published();
        let share = cell(1, &|round| Some(100.0 * flop / round.get(row.name)? / H200_BF16_PER_S));
        let [fsdp, single] = MODES.each_ref().map(|mode| cell(2, &|round| round.ratio(&row.of(mode), row.name)));
        let asked =
            row.tokens_per_s.map_or([const { String::new() }; 2], |asked| asked.map(|number| format!("{number:.0}")));
        let [least, aim] = row.ratio;
        println!(
            "| {} | {per_s} | {} | {} | {share} | {fsdp} | {least} | {aim} | {single} |",
            row.what, asked[0], asked[1]
        );
    }
}

#[cfg(test)]
mod tests {
    use zero_study::hardware::Hardware;
    use zero_study::simulate::{LAYER_KERNELS, simulate};

    use super::*;

    /// 12 blocks of 12 x 768^2 + 13 x 768, tables of 50304 and of 1024 rows of 768, and a norm: the published 124 million, with
    /// some rows of padding.
    #[test]
    fn models_are_as_large_as_published() {
        let params = ROWS.map(|row| row.plan.params());
        assert_eq!(params[0], 12 * (12 * 768 * 768 + 13 * 768) + (50304 + 1024) * 768 + 2 * 768);
        assert_eq!(params[1] / 1_000_000, 1557);
    }

    fn row(name: &str) -> &'static Row {
        ROWS.iter().find(|row| row.name == name).unwrap()
    }

    /// Kernels of a layer when steps were measured.
    const KERNELS_THEN: usize = 38;

    /// Compares docs/figures.md with seconds of a step, measured before heads computed their logits once, and with the ratio of the
    /// prediction, for the kernels of that time, to those seconds.
    #[test]
    fn steps_are_predicted_as_the_page_says() {
        let page = include_str!("../../../docs/figures.md");
        let measured = [
            ("H100", include_str!("../../../hardware/h100.ron"), [0.0760, 0.2086, 0.0037]),
            ("H200", include_str!("../../../hardware/h200.ron"), [0.0751, 0.2039, 0.00355]),
        ];
        for (gpu, hardware, steps) in measured {
            let hardware = Hardware::parse(hardware).unwrap();
            let ratios =
                ["gpt2_124m", "gpt2_1558m_8", "launches"].map(row).into_iter().zip(steps).map(|(row, measured_s)| {
                    let kernels = KERNELS_THEN - LAYER_KERNELS.forward - LAYER_KERNELS.backward;
                    let others_s = (row.shape.0 * kernels) as f64 * hardware.device.op;
                    let predicted_s = simulate(row.plan, &hardware).unwrap().step_s + others_s;
                    format!("{:.2}", predicted_s / measured_s)
                });
            let line = format!("| {gpu} | {} |", ratios.collect::<Vec<_>>().join(" | "));
            assert!(page.contains(&line), "docs/figures.md does not say {line}");
        }
    }

    /// The plan of 16 sequences also fits an H100.
    #[test]
    fn more_sequences_gain_as_much_as_the_page_says() {
        let page = include_str!("../../../docs/figures.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let files = [include_str!("../../../hardware/h100.ron"), include_str!("../../../hardware/h200.ron")];
        let gains = files.map(|hardware| {
            let hardware = Hardware::parse(hardware).unwrap();
            assert!(row("gpt2_1558m").plan.bytes_per_rank_max() as u64 <= hardware.budget_bytes(1));
            let per_s = |name| {
                let row = row(name);
                row.tokens() / simulate(row.plan, &hardware).unwrap().step_s
            };
            format!("{:.1}", 100.0 * (per_s("gpt2_1558m") / per_s("gpt2_1558m_8") - 1.0))
        });
        let said = format!("{} % more tokens/s on an H100, and {} % on an H200", gains[0], gains[1]);
        assert!(page.contains(&said), "docs/figures.md does not say: {said}");
    }

    #[test]
    fn memory_is_read_from_what_a_run_says() {
        let said = "step    2/2\n\n                                    planned       measured\n\
            private memory of a rank            1.5 GiB        1.5 GiB\n\
            peak resident of a rank          <= 3.2 GiB        2.9 GiB\n\
            bytes read in place per step              0              0\n\
            on its GPU before it began      not planned      512.0 MiB\n\n";
        let expected = [
            ["private memory of a rank", "1.5 GiB", "1.5 GiB"],
            ["peak resident of a rank", "<= 3.2 GiB", "2.9 GiB"],
            ["on its GPU before it began", "not planned", "512.0 MiB"],
        ];
        assert_eq!(memory_of(said), expected.map(|row| row.map(str::to_owned)));
    }

    #[test]
    fn ids_are_within_the_vocabulary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.bin");
        write_tokens(&path, 512).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len() as u64, 2 * TOKENS);
        let ids: Vec<u16> = bytes.chunks_exact(2).map(|id| u16::from_le_bytes([id[0], id[1]])).collect();
        assert_eq!(ids.iter().max(), Some(&511));
    }
}
