//! A small model of text whose ranks are on two hosts, or, if its first argument is `lone`, on three hosts with one rank each.
//! SIGALRM ends a rank at once, with code 3.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGALRM;
use signal_hook::flag::register_conditional_shutdown;
use zero_runtime::prelude::*;
use zero_tests::small::main_of;
use zero_tests::small_model;

small_model! { #[zero(spec = "specs/hosts.ron")] Hosts }
small_model! { #[zero(spec = "specs/lone.ron")] Lone }

fn main() -> ExitCode {
    register_conditional_shutdown(SIGALRM, 3, Arc::new(AtomicBool::new(true))).expect("a handler");
    main_of::<Hosts, Lone>("lone")
}
