//! Code that the tests share: tiny models, a way to train them under any plan, an independent reference, and the golden
//! files that both are compared with.

pub mod buffers;
pub mod heads;
pub mod layout;
pub mod long;
pub mod pretend;
pub mod published;
pub mod reference;
pub mod saved;
pub mod small;
pub mod specs;
pub mod tiny;
pub mod training;

pub use zero_naive as naive;
