//! Repeats: a device that does its work again gives the same bits.

use zero_tests::pretend;

use super::engine::on_cuda;

/// More often on a GPU, whose order no seed decides.
const REPEATS_ON_GPU: u64 = 100;
const REPEATS: u64 = 3;

#[test]
fn a_run_repeated_gives_the_same_bits() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    for name in ["zero3", "bf16"] {
        let expected = on_cuda(name, |config| config).bits();
        for repeat in 1..if pretend::is_hardware() { REPEATS_ON_GPU } else { REPEATS } {
            pretend::seed(repeat);
            assert!(on_cuda(name, |config| config).bits() == expected, "{name}: repeat {repeat} has other bits");
        }
    }
}
