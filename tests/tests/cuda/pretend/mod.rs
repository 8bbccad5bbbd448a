//! The pretend libraries themselves: they notice mistakes that a GPU would punish only by chance, such as a missing
//! event, a missed barrier, or the end of a process while a thread uses the driver. They are called here as the runtime
//! calls CUDA's, by name.

mod failures;
mod graphs;
mod memory;
mod order;
mod products;
mod raw;
