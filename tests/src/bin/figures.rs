//! The program that `cargo zero measure` runs on a machine with GPUs.

fn main() -> std::process::ExitCode {
    zero_cuda::figures::main()
}
