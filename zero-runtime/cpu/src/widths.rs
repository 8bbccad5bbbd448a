//! Widths: the kernels that are generic in a width, compiled in each. A program that trains is generic in its model and
//! would compile them once more, but a function that is never inlined is linked from the crate that has it.

use super::Cpu;
use zero_core::device::{Element, Kernels, bf16};

/// Addresses of a kernel in each width that it is called in, if it is generic in a width.
macro_rules! addresses {
    ($all:ident, $name:ident, E: Element) => {
        $all.extend([Cpu::$name::<E> as *const ()])
    };
    ($all:ident, $name:ident, O: Element, E: Element) => {
        $all.extend([Cpu::$name::<E, E> as *const (), Cpu::$name::<f32, E> as *const ()])
    };
    ($all:ident, $name:ident, $($others:tt)*) => {};
}

macro_rules! list {
    ($(
        $(#[$about:meta])*
        fn $name:ident $(<$($lifetime:lifetime)? $($generic:ident: $bound:ident $(+ $more:ident)*),*>)?
        (&self, $($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        /// Addresses of the kernels of one width, by which a program can check that it uses the same ones.
        pub fn kernels_of_width<E: Element>() -> Vec<*const ()> {
            let mut all = Vec::new();
            $(addresses!(all, $name, $($($generic: $bound),*)?);)*
            all
        }
    };
}

zero_core::kernels!(list);

/// Addresses for all widths. Naming the kernels makes this crate compile them; no run calls this function.
pub fn kernels_of_widths() -> [Vec<*const ()>; 2] {
    [kernels_of_width::<f32>(), kernels_of_width::<bf16>()]
}
