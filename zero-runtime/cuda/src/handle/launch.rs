//! Launch: what a kernel is, and how it is put into a queue. Once a kernel is loaded, a launch allocates nothing and
//! waits for nothing. Never knows what a kernel computes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr::null_mut;

use cudarc::driver::sys as cu;
use zero_plan::Width;

use super::Cuda;
use crate::context::is_late;
use crate::error::CudaError;
use crate::source::KernelSource;
use zero_core::view::{View, ViewMut};

/// The most constants that a kernel is compiled for.
const CONSTANTS_MAX: usize = 10;

/// The most arguments of a kernel.
const ARGUMENTS_MAX: usize = 32;

/// The most threads of a block.
pub(crate) const THREADS_MAX: usize = 1024;

/// A constant that a kernel is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Constant {
    /// No constant: after the last one.
    None,
    Width(Width),
    Number(u32),
    /// The bits of an f32.
    Float(u32),
}

/// A kernel with the constants that it is compiled for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub source: KernelSource,
    name: &'static str,
    constants: [Constant; CONSTANTS_MAX],
    len: usize,
}

impl Kernel {
    /// The kernel of this name in a source.
    pub const fn new(source: KernelSource, name: &'static str) -> Self {
        Self { source, name, constants: [Constant::None; CONSTANTS_MAX], len: 0 }
    }

    const fn and(mut self, constant: Constant) -> Self {
        self.constants[self.len] = constant;
        self.len += 1;
        self
    }

    /// With `float` or `bf16` as its next template argument.
    pub const fn of(self, width: Width) -> Self {
        self.and(Constant::Width(width))
    }

    /// With a number as its next template argument.
    #[track_caller]
    pub fn with(self, number: usize) -> Self {
        self.and(Constant::Number(narrowed(number)))
    }

    /// With this float as its next template argument: its bits, so that no conversion to decimal digits can change it.
    pub const fn with_float(self, number: f32) -> Self {
        self.and(Constant::Float(number.to_bits()))
    }
}

/// Every launch hashes its kernel, so this hashes only the constants that the kernel has.
impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.source, self.name, &self.constants[..self.len]).hash(state);
    }
}

/// As C++ writes it: `layer_norm<bf16, 768>`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (i, constant) in self.constants[..self.len].iter().enumerate() {
            f.write_str(if i == 0 { "<" } else { ", " })?;
            match constant {
                Constant::None => unreachable!("constants have no gaps"),
                Constant::Width(Width::F32) => f.write_str("float")?,
                Constant::Width(Width::BF16) => f.write_str("bf16")?,
                Constant::Number(number) => write!(f, "{number}")?,
                Constant::Float(bits) => write!(f, "{bits:#010x}")?,
            }
        }
        f.write_str(if self.len == 0 { "" } else { ">" })
    }
}

/// A number in 32 bits, the width in which kernels count.
#[track_caller]
pub(crate) fn narrowed(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| panic!("a size of {number}, which kernels count in 32 bits"))
}

/// The number of threads that run a kernel, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grid {
    /// Blocks; 0 if there is nothing to do.
    pub blocks: usize,
    /// Threads of each block.
    pub threads: usize,
}

impl Grid {
    /// Blocks of `threads` threads for `count` items, where each thread has `items` items.
    pub fn over(count: usize, items: usize, threads: usize) -> Self {
        Self { blocks: count.div_ceil(items * threads), threads }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(crate) enum Argument<'a> {
    /// An address on the device.
    Pointer(u64),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    /// A struct, copied by the launch.
    Bytes(&'a [u8]),
}

impl Argument<'_> {
    /// A number as the first bytes of a word: hosts of these devices are little-endian. 0 for an argument that is not a
    /// number.
    fn word(self) -> u64 {
        match self {
            Self::Pointer(address) => address,
            Self::U32(number) => number.into(),
            Self::U64(number) => number,
            Self::F32(number) => number.to_bits().into(),
            Self::F64(number) => number.to_bits(),
            Self::Bytes(_) => 0,
        }
    }
}

impl Hash for Argument<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Bytes(bytes) => bytes.hash(state),
            number => number.word().hash(state),
        }
    }
}

impl<T> From<View<'_, Cuda, T>> for Argument<'_> {
    fn from(view: View<'_, Cuda, T>) -> Self {
        Self::Pointer(if view.is_empty() { 0 } else { view.address().addr() as u64 })
    }
}

impl<T> From<ViewMut<'_, Cuda, T>> for Argument<'_> {
    fn from(view: ViewMut<'_, Cuda, T>) -> Self {
        Self::Pointer(if view.is_empty() { 0 } else { view.address().addr() as u64 })
    }
}

/// Null if there is none.
impl<T> From<Option<View<'_, Cuda, T>>> for Argument<'_> {
    fn from(view: Option<View<'_, Cuda, T>>) -> Self {
        view.map_or(Self::Pointer(0), Self::from)
    }
}

/// Null if there is none.
impl<T> From<Option<ViewMut<'_, Cuda, T>>> for Argument<'_> {
    fn from(view: Option<ViewMut<'_, Cuda, T>>) -> Self {
        view.map_or(Self::Pointer(0), Self::from)
    }
}

/// A count, in the width in which kernels count.
impl From<usize> for Argument<'_> {
    fn from(count: usize) -> Self {
        Self::U64(count as u64)
    }
}

impl Cuda {
    /// Puts a kernel into the entered queue. The first error is kept: see [`zero_core::device::Device::failure`].
    pub(crate) fn launch(&self, kernel: Kernel, grid: Grid, arguments: &[Argument]) {
        if grid.blocks == 0 || self.notes(kernel) || !self.makes((kernel, grid, arguments)) {
            return;
        }
        if let Err(error) = self.try_launch(kernel, grid, arguments) {
            self.fail(error);
        }
    }

    fn try_launch(&self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<(), CudaError> {
        assert!(grid.blocks <= i32::MAX as usize && grid.threads <= THREADS_MAX, "{kernel} on {grid:?}");
        assert!(arguments.len() <= ARGUMENTS_MAX, "{kernel} with {} arguments", arguments.len());
        self.context.enter()?;
        let function = self.function(kernel)?;
        let mut words = [0u64; ARGUMENTS_MAX];
        let mut pointers: [*mut c_void; ARGUMENTS_MAX] = [null_mut(); ARGUMENTS_MAX];
        for ((argument, word), pointer) in arguments.iter().zip(&mut words).zip(&mut pointers) {
            *word = argument.word();
            *pointer = match *argument {
                Argument::Bytes(bytes) => bytes.as_ptr().cast_mut().cast(),
                _ => std::ptr::from_mut(word).cast(),
            };
        }
        let (blocks, threads) = (grid.blocks as u32, grid.threads as u32);
        let stream = self.stream();
        // SAFETY: a kernel of this context, and a pointer to each of its arguments, which the call copies. The caller
        // passes the arguments that the kernel takes, and views of everything that it reads and writes.
        let status = unsafe {
            (self.context.libraries.driver.cuLaunchKernel)(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        self.check_kernel(kernel, status)
    }

    /// Returns an error unless the status of a call about a kernel is 0.
    pub(crate) fn check_kernel(&self, kernel: Kernel, status: u32) -> Result<(), CudaError> {
        let (context, ordinal) = (&self.context, self.context.ordinal);
        match status {
            0 => Ok(()),
            _ if is_late(status) => Err(CudaError::Stopped { ordinal, reason: context.reason(status) }),
            _ => Err(CudaError::Launch { kernel: kernel.to_string(), ordinal, reason: context.reason(status) }),
        }
    }
}

/// A loaded kernel.
pub(crate) type Function = cu::CUfunction;

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    #[test]
    fn a_kernel_is_called_as_in_its_source() {
        let kernel = Kernel::new(KernelSource::Elementwise, "add");
        assert_eq!(kernel.to_string(), "add");
        assert_eq!(kernel.of(Width::BF16).with(768).of(Width::F32).to_string(), "add<bf16, 768, float>");
        assert_eq!(kernel.with_float(1e-5).with_float(0.0).to_string(), "add<0x3727c5ac, 0x00000000>");
    }

    #[test]
    fn kernels_differ_as_their_constants_do() {
        let hash = |kernel: Kernel| BuildHasherDefault::<DefaultHasher>::default().hash_one(kernel);
        let kernel = Kernel::new(KernelSource::Elementwise, "add");
        let others = [kernel.with(1), kernel.with(2), kernel.with_float(f32::from_bits(1)), kernel.with(1).with(0)];
        for (i, one) in others.into_iter().enumerate() {
            assert!(one != kernel && hash(one) != hash(kernel), "{one}");
            for other in &others[..i] {
                assert!(one != *other && hash(one) != hash(*other), "{one} and {other}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a size of 4294967296")]
    fn sizes_beyond_a_word_are_refused() {
        Kernel::new(KernelSource::Elementwise, "add").with(1 << 32);
    }

    #[test]
    fn a_grid_covers_all_items() {
        let blocks = |count| Grid::over(count, 8, 128).blocks;
        assert_eq!([0, 1, 1024, 1025].map(blocks), [0, 1, 1, 2]);
    }
}
