//! Build: makes the tables of a plan by the same functions at compile time, in `tables`, and at run time, in `buffer`.
//! Never decides their content.

mod buffer;
#[doc(hidden)]
pub mod tables;

pub use buffer::PlanBuf;

#[cfg(test)]
mod tests;
