//! The model of `piped`, with optimizer states on disk. Tests compare the two.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::Offloaded>()
}
