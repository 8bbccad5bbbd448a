//! Rehearsal: prepares a step's compiled kernels, and the library's ways to multiply, before the first step, when no
//! other rank waits for them. Ops are called as in a step, but nothing is queued. Never computes.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Cuda;
use super::error::CudaError;
use super::handle::launch::Kernel;
use super::handle::module::CompiledKernel;

impl Cuda {
    pub(super) fn begin_rehearsal(&self) {
        *self.rehearsed.borrow_mut() = Some(HashSet::new());
    }

    pub(super) fn rehearses(&self) -> bool {
        self.rehearsed.borrow().is_some()
    }

    /// Records a kernel, if this is a rehearsal; returns whether it is.
    pub(super) fn notes(&self, kernel: Kernel) -> bool {
        let mut rehearsed = self.rehearsed.borrow_mut();
        rehearsed.as_mut().map(|kernels| kernels.insert(kernel)).is_some()
    }

    /// Compiles the recorded kernels on all processors of the host, and loads them.
    pub(super) fn end_rehearsal(&self) {
        let Some(noted) = self.rehearsed.take() else { return };
        let kernels: Vec<Kernel> = noted.into_iter().filter(|&kernel| !self.is_loaded(kernel)).collect();
        self.attempt(|| {
            let codes = self.compiled(&kernels);
            kernels.iter().zip(codes).try_for_each(|(&kernel, code)| self.load(kernel, &code?).map(drop))
        });
    }

    /// The compiled kernels, each made by the next free thread.
    fn compiled(&self, kernels: &[Kernel]) -> Vec<Result<CompiledKernel, CudaError>> {
        let (context, next) = (&*self.context, AtomicUsize::new(0));
        let made = Mutex::new(Vec::new());
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&kernel) = kernels.get(at) else { break };
                let code = CompiledKernel::of(context, kernel);
                made.lock().expect("no thread panics with it").push((at, code));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(kernels.len());
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut made = made.into_inner().expect("no thread has panicked");
        made.sort_by_key(|(at, _)| *at);
        made.into_iter().map(|(_, code)| code).collect()
    }
}
