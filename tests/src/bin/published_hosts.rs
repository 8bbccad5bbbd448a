//! A model of bytes whose ranks are on two hosts and publish their parameters.

fn main() -> std::process::ExitCode {
    zero_runtime::main::<zero_tests::tiny::PublishedOnHosts>()
}
