//! Activation: nonlinearities, elementwise, with the processor's bits. Never waits for the device.

use super::Cuda;
use super::elementwise::{aligned, over};
use super::handle::launch::Kernel;
use super::lengths::check_len;
use super::source::KernelSource;
use zero_core::device::{Element, Nonlinearity};
use zero_core::view::{View, ViewMut};

const ACTIVATE: Kernel = Kernel::new(KernelSource::Nonlinear, "activate");
const ACTIVATE_BACKWARD: Kernel = Kernel::new(KernelSource::Nonlinear, "activate_backward");

/// The number of a nonlinearity in kernels, as in `nonlinear.cu`.
pub(super) fn number(kind: Nonlinearity) -> usize {
    match kind {
        Nonlinearity::Gelu => 0,
        Nonlinearity::Relu => 1,
        Nonlinearity::Silu => 2,
    }
}

pub(super) fn activate<E: Element>(cuda: &Cuda, kind: Nonlinearity, x: View<Cuda, E>, y: ViewMut<Cuda, E>) {
    let len = x.len();
    check_len("y", y.len(), len);
    let (x, y) = (x.into(), y.into());
    cuda.launch(ACTIVATE.of(E::WIDTH).with(number(kind)).with(aligned([x, y])), over(len), &[x, y, len.into()]);
}

pub(super) fn activate_backward<E: Element>(
    cuda: &Cuda,
    kind: Nonlinearity,
    x: View<Cuda, E>,
    dy: View<Cuda, E>,
    dx: ViewMut<Cuda, E>,
) {
    let len = x.len();
    check_len("dy", dy.len(), len);
    check_len("dx", dx.len(), len);
    let (x, dy, dx) = (x.into(), dy.into(), dx.into());
    let kernel = ACTIVATE_BACKWARD.of(E::WIDTH).with(number(kind)).with(aligned([x, dy, dx]));
    cuda.launch(kernel, over(len), &[x, dy, dx, len.into()]);
}
