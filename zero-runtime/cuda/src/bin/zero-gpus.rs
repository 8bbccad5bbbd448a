//! Measures the GPUs of this machine, and prints the figures as JSON. `cargo zero measure` builds and runs it.

fn main() -> std::process::ExitCode {
    zero_cuda::figures::main()
}
