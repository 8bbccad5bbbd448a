//! Products of bf16 by AMX: 16 x 16 sums of 32 products each in one instruction. Never runs on a processor without AMX,
//! or on a system that does not permit this process to use it.
#![allow(unsafe_code)]

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::LazyLock;

use super::pack::{Cell, Order, Pairs, SIDE};
use super::tile::{BLOCK, STRIDE, Tile, clear};

/// Whether this process may use the instructions: the processor has them, and the system permits the memory in which it
/// saves their registers. Asks the system once.
pub fn is_there() -> bool {
    static IS_THERE: LazyLock<bool> = LazyLock::new(|| processor_has_it() && asked_for());
    *IS_THERE
}

/// Whether the processor has AMX-TILE and AMX-BF16, and the system saves their registers: configuration and data of tiles.
fn processor_has_it() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AMX: u32 = 1 << 24 | 1 << 22;
    const SAVED: u64 = 1 << 18 | 1 << 17;
    __cpuid(0).eax >= 7
        && __cpuid(1).ecx & OSXSAVE != 0
        && __cpuid_count(7, 0).edx & AMX == AMX
        // SAFETY: OSXSAVE says that the instruction may be used.
        && unsafe { saved_registers() } & SAVED == SAVED
}

#[target_feature(enable = "xsave")]
fn saved_registers() -> u64 {
    // SAFETY: register 0 exists on every processor with the instruction.
    unsafe { _xgetbv(0) }
}

/// Whether Linux permits it, for all present and future threads of the process.
#[cfg(target_os = "linux")]
fn asked_for() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the call reads and writes no memory of this process; a system call overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn asked_for() -> bool {
    false
}

/// The operand of `ldtilecfg`: the shapes of tiles.
#[repr(C, align(64))]
struct TileShapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles at their largest size: 16 rows of 64 bytes, a cell.
static SHAPES: TileShapes = {
    let mut shapes = TileShapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut tile = 0;
    while tile < 8 {
        shapes.row_bytes[tile] = 64;
        shapes.rows[tile] = 16;
        tile += 1;
    }
    shapes
};

/// Only for processes where [`is_there`] is true.
///
/// Each instruction sums the first products of all 16 pairs, and separately the second products, with one rounding for
/// each term, and adds both sums to the previous value. Subnormal operands and results count as 0.
pub enum Amx {}

impl Tile for Amx {
    type Packing = Pairs;
    const LEFT: Order = Order::Rows;
    /// Tiles are read so fast that tiles of the right operand have to lie in a first-level cache.
    const NEAR_CELLS: usize = 16;

    /// Sets the shapes of this thread's tiles while `work` runs.
    fn during(work: impl FnOnce()) {
        assert!(is_there(), "a processor without AMX");
        // SAFETY: the instruction is there, and reads the 64 bytes of a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, readonly)) };
        work();
        // SAFETY: the instruction is there, and leaves no tile in use.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    #[inline(always)]
    unsafe fn multiply(
        [left, lower_left]: [&[Cell]; 2],
        [right, next_right]: [&[Cell]; 2],
        is_first: bool,
        sums: &mut [f32],
    ) {
        if is_first {
            clear(sums);
        }
        let cells = left.len();
        assert!([lower_left, right, next_right].map(<[Cell]>::len) == [cells; 3], "strips differ in length");
        let sums = &mut sums[..(BLOCK - 1) * STRIDE + BLOCK];
        if cells > 0 {
            // SAFETY: all strips have `cells` cells, at least one; `sums` has all rows of a block; and by the caller's
            // promise the instructions are there, and tiles have their shapes.
            unsafe { multiply([left, lower_left, right, next_right].map(<[Cell]>::as_ptr), cells, sums.as_mut_ptr()) }
        }
    }
}

/// Four tiles of sums stay in registers while two tiles of each operand pass through.
///
/// # Safety
/// The instructions are there, and tiles have their shapes. Two strips of the left operand and two of the right can
/// each be read for `cells` cells, at least one; a block of `sums`, with rows of [`STRIDE`], can be read and written.
unsafe fn multiply([left, lower_left, right, next_right]: [*const Cell; 4], cells: usize, sums: *mut f32) {
    const CELL_BYTES: usize = size_of::<Cell>();
    // SAFETY: tile n of an operand is 16 rows of 64 bytes, one after another: a cell. A tile of sums is 16 rows of as
    // many bytes, a stride of `sums` apart. So the code touches only memory that the caller lets us read and write.
    unsafe {
        asm!(
            "tileloadd tmm0, [{sums} + {stride}*1]",
            "tileloadd tmm1, [{sums} + {stride}*1 + 64]",
            "tileloadd tmm2, [{lower_sums} + {stride}*1]",
            "tileloadd tmm3, [{lower_sums} + {stride}*1 + 64]",
            "2:",
            "tileloadd tmm4, [{left} + {row}*1]",
            "tileloadd tmm6, [{right} + {row}*1]",
            "tileloadd tmm7, [{next_right} + {row}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{lower_left} + {row}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {left}, {cell}",
            "add {lower_left}, {cell}",
            "add {right}, {cell}",
            "add {next_right}, {cell}",
            "dec {cells}",
            "jnz 2b",
            "tilestored [{sums} + {stride}*1], tmm0",
            "tilestored [{sums} + {stride}*1 + 64], tmm1",
            "tilestored [{lower_sums} + {stride}*1], tmm2",
            "tilestored [{lower_sums} + {stride}*1 + 64], tmm3",
            sums = in(reg) sums,
            lower_sums = in(reg) sums.wrapping_add(SIDE * STRIDE),
            stride = in(reg) STRIDE * size_of::<f32>(),
            row = in(reg) SIDE * size_of::<u32>(),
            left = inout(reg) left => _,
            lower_left = inout(reg) lower_left => _,
            right = inout(reg) right => _,
            next_right = inout(reg) next_right => _,
            cells = inout(reg) cells => _,
            cell = const CELL_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
