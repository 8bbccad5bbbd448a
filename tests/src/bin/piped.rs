//! A model of text on a pipeline, with several micro-batches in a step. A test compares it with its own engine.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::Piped>()
}
