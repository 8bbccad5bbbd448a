//! A model of bytes whose ranks publish their parameters.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::Published>()
}
