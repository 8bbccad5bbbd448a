//! Tensor: elements in memory of a device of their own, to try ops on. Never looks at them but through the device.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use zero_runtime::device::{Device, Memory, bf16};
use zero_runtime::view::{View, ViewMut};

/// Elements of one kind.
pub struct Tensor<D: Device, T = f32> {
    memory: D::Memory,
    len: usize,
    elements: PhantomData<T>,
}

impl<D: Device, T> Tensor<D, T> {
    /// The elements, to read.
    pub fn view(&self) -> View<'_, D, T> {
        // SAFETY: the memory begins on a page and has room for them; they were zero at first, which is a `T`, and are
        // written through `view_mut` alone.
        unsafe { View::from_raw(self.memory.start().cast(), self.len) }
    }

    /// The elements, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, D, T> {
        // SAFETY: as for `view`; and the tensor is borrowed for as long.
        unsafe { ViewMut::from_raw(self.memory.start().cast(), self.len) }
    }

    /// # Safety
    /// Zero bytes are a `T`.
    unsafe fn new(device: &D, len: usize) -> Self {
        let memory = device.allocate((len * size_of::<T>()).max(1)).expect("memory for a few elements");
        Self { memory, len, elements: PhantomData }
    }
}

impl<D: Device, T: Zeroable> Tensor<D, T> {
    /// Zeros.
    pub fn zeros(device: &D, len: usize) -> Self {
        // SAFETY: by the bound.
        unsafe { Self::new(device, len) }
    }
}

impl<D: Device, T: Pod> Tensor<D, T> {
    /// These values.
    pub fn of(device: &D, values: &[T]) -> Self {
        let mut tensor = Self::zeros(device, values.len());
        device.stage(tensor.view_mut(), |staging| staging.copy_from_slice(values));
        tensor
    }

    /// What it holds.
    pub fn values(&self, device: &D) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len];
        device.read(self.view(), &mut values);
        values
    }
}

impl<D: Device> Tensor<D, bf16> {
    /// These values, rounded.
    pub fn narrowed(device: &D, values: &[f32]) -> Self {
        // SAFETY: zero bytes are the number 0.
        let mut tensor = unsafe { Self::new(device, values.len()) };
        device.convert(tensor.view_mut().into(), Tensor::of(device, values).view().into());
        tensor
    }

    /// What it holds.
    pub fn widened(&self, device: &D) -> Vec<f32> {
        let mut wide = Tensor::zeros(device, self.len);
        device.convert(wide.view_mut().into(), self.view().into());
        wide.values(device)
    }
}
