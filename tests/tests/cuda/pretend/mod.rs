//! The pretend libraries themselves: that they notice what a GPU would punish by chance only. They are called here as the
//! runtime calls CUDA's, by name.

mod failures;
mod graphs;
mod memory;
mod order;
mod products;
mod raw;
