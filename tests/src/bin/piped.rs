//! A model of text on a pipeline, with several micro-batches in a step: what is compared with an engine that a test drives.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::Piped>()
}
