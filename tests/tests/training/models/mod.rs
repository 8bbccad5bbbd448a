//! Models: tiny versions of the architectures of `examples/`, against `transformers` (`golden/models/make.py`), and against
//! themselves on every kind of layout; published sizes by their numbers of parameters, and by the layouts in which they fit.
//! `build.rs` has a row for each architecture.

// Types of a private module in public aliases; the sources are the examples', in other sizes.
#[allow(missing_docs, non_snake_case, private_interfaces)]
mod sized {
    include!(concat!(env!("OUT_DIR"), "/models.rs"));
}

mod agreement;
mod folders;
mod parity;
mod published;
