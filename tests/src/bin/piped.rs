//! A model of text on a pipeline, with several micro-batches in a step. A test compares it with an engine of its own.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::Piped>()
}
