//! Prints what the GPUs of this machine can do, as JSON. `cargo zero measure` builds and runs it.

fn main() -> std::process::ExitCode {
    zero_cuda::figures::main()
}
