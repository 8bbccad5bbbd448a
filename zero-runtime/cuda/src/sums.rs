//! Sums: sums over ranks, of losses and of squares, each in the processor's fixed order, so that both have the same
//! bits. Never waits for the device.

use zero_plan::Width;

use super::Cuda;
use super::elementwise::{aligned, over, stored, stored_mut};
use super::grid::words;
use super::handle::launch::{Argument, Grid, Kernel};
use super::lengths::check_len;
use super::source::KernelSource;
use zero_core::device::{Agreement, HyperBlock, MEAN_LANES, ReportBlock, Stored, StoredMut, Write};
use zero_core::view::{View, ViewMut};

const REDUCE: Kernel = Kernel::new(KernelSource::Sums, "reduce");
const ADD_MEAN: Kernel = Kernel::new(KernelSource::Sums, "add_mean");
const SQUARES: Kernel = Kernel::new(KernelSource::Sums, "squares");
const SUM_OF_SQUARES: Kernel = Kernel::new(KernelSource::Sums, "sum_of_squares");
const AGREE: Kernel = Kernel::new(KernelSource::Sums, "agree");

/// The most summands of a sum over ranks: their addresses are an argument of a kernel, which has 32 KB for all
/// arguments.
const SUMMANDS_MAX: usize = 2048;

/// Squares are summed in blocks of `BLOCK` elements, with `LANES` threads for each block.
const BLOCK: usize = 4096;
const LANES: usize = 16;

/// The grid of a kernel with one block.
const ONE_BLOCK: Grid = Grid { blocks: 1, threads: 256 };

/// The most numbers that describe the order in which words are summed; they are also an argument of a kernel.
const ORDER_MAX: usize = 7680;

/// The most units whose squares are summed.
const UNITS_MAX: usize = 4096;

pub(super) fn reduce<'a>(
    cuda: &Cuda,
    to: StoredMut<Cuda>,
    count: usize,
    own: Option<usize>,
    source: &dyn Fn(usize) -> Stored<'a, Cuda>,
    write: Write,
) {
    assert!((1..=SUMMANDS_MAX).contains(&count), "a tree of {count} summands, expected 1 to {SUMMANDS_MAX}");
    let len = to.len();
    let (to, width) = stored_mut(to);
    let Argument::Pointer(held) = to else { unreachable!("numbers have an address") };
    let mut addresses = [0u64; SUMMANDS_MAX];
    let mut is_aligned = aligned([to]);
    for (i, address) in addresses[..count].iter_mut().enumerate() {
        *address = held;
        if own != Some(i) {
            let summand = source(i);
            check_len("source", summand.len(), len);
            let (at, found) = stored(summand);
            assert!(found == width, "summand {i} is stored as {}, but the sum as {}", name(found), name(width));
            is_aligned = is_aligned.min(aligned([at]));
            if let Argument::Pointer(at) = at {
                *address = at;
            }
        }
    }
    let kernel = REDUCE.of(width).with(count).with((write == Write::Add).into()).with(is_aligned);
    cuda.launch(kernel, over(len), &[to, words(&addresses[..count]), len.into()]);
}

fn name(width: Width) -> &'static str {
    match width {
        Width::F32 => "f32",
        Width::BF16 => "bf16",
    }
}

pub(super) fn add_mean(cuda: &Cuda, x: View<Cuda, f32>, to: ViewMut<Cuda, f64>) {
    check_len("to", to.len(), 1);
    let grid = Grid { blocks: 1, threads: MEAN_LANES };
    cuda.launch(ADD_MEAN.with(MEAN_LANES), grid, &[x.into(), x.len().into(), to.into()]);
}

pub(super) fn squares(cuda: &Cuda, x: Stored<Cuda>, to: ViewMut<Cuda, f64>) {
    check_len("to", to.len(), 1);
    let (len, (x, width)) = (x.len(), stored(x));
    let blocks = len.div_ceil(BLOCK);
    let (scratch, bytes) = cuda.scratch();
    if cuda.has_failed() {
        return;
    }
    let most = bytes / size_of::<f64>();
    assert!(blocks <= most, "squares of {len} elements, expected {} at most", most * BLOCK);
    let sums = Argument::Pointer(scratch);
    let grid = Grid::over(blocks * LANES, 1, ONE_BLOCK.threads);
    cuda.launch(SQUARES.of(width), grid, &[x, len.into(), sums]);
    cuda.launch(SUM_OF_SQUARES, ONE_BLOCK, &[sums, blocks.into(), to.into()]);
}

pub(super) fn agree(
    cuda: &Cuda,
    agreement: &Agreement,
    all: View<Cuda, f64>,
    hyper: View<Cuda, HyperBlock>,
    report: ViewMut<Cuda, ReportBlock>,
) {
    check_len("hyper", hyper.len(), 1);
    check_len("report", report.len(), 1);
    let ranks_by_part = agreement.ranks_by_part();
    let (units, parts) = (agreement.pipeline_stages().len(), ranks_by_part[0].len());
    assert!(units <= UNITS_MAX, "{units} units, expected {UNITS_MAX} at most");
    check_len("all", all.len(), parts * ranks_by_part.len() * agreement.values());
    let [zero, replicas] = agreement.mesh();
    let by_part = ranks_by_part.iter().flatten();
    let order = agreement.ranks_by_data().iter().chain(by_part).chain(agreement.pipeline_stages());
    let (mut numbers, mut len) = ([0u32; ORDER_MAX], 0);
    for &number in order {
        assert!(len < ORDER_MAX, "more ranks and units than a sum of words supports: {ORDER_MAX} together");
        numbers[len] = number as u32;
        len += 1;
    }
    let kernel = [zero, replicas, parts, ranks_by_part.len(), units].into_iter().fold(AGREE, Kernel::with);
    let summed = Argument::F64(agreement.summed() as f64);
    let arguments = [words(&numbers[..len]), summed, all.into(), hyper.into(), report.into()];
    cuda.launch(kernel, ONE_BLOCK, &arguments);
}
