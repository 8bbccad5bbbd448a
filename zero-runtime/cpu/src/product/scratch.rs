//! Scratch: memory of a fixed size in which a thread packs operands and sums products. Never freed before the
//! thread ends.

use std::cell::RefCell;

use bytemuck::Zeroable;
use zero_plan::footprint::PRODUCT_BYTES;

use super::pack::{Cell, SIDE};
use super::tile::STRIDE;
use super::{COLS, DEPTH_CELLS, ROWS};
use crate::packing::making_room;

/// The scratch of one thread.
#[derive(Default)]
pub struct ProductScratch {
    /// Strips of the left operand.
    left: Box<[Cell]>,
    /// Strips of the right operand.
    right: Box<[Cell]>,
    sums: Box<[Cell]>,
}

const LEFT_CELLS: usize = ROWS / SIDE * DEPTH_CELLS;
const RIGHT_CELLS: usize = COLS / SIDE * DEPTH_CELLS;
const SUM_CELLS: usize = ROWS * STRIDE / (SIDE * SIDE);
const _: () =
    assert!((LEFT_CELLS + RIGHT_CELLS + SUM_CELLS) * size_of::<Cell>() == PRODUCT_BYTES, "plans count another size");

thread_local! {
    static SCRATCH: RefCell<ProductScratch> = RefCell::default();
}

/// Calls `work` with the scratch of this thread, which has arbitrary content.
pub fn with_scratch(work: impl FnOnce(&mut ProductScratch)) {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.left.is_empty() {
            let cells = |count| vec![Cell::zeroed(); count].into_boxed_slice();
            *scratch = making_room(|| ProductScratch {
                left: cells(LEFT_CELLS),
                right: cells(RIGHT_CELLS),
                sums: cells(SUM_CELLS),
            });
        }
        work(scratch);
    });
}

impl ProductScratch {
    /// Room for the strips of both operands, and for sums.
    pub fn parts(&mut self) -> (&mut [Cell], &mut [Cell], &mut [f32]) {
        (&mut self.left, &mut self.right, bytemuck::cast_slice_mut(&mut self.sums))
    }
}
