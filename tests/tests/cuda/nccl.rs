//! NCCL in place of memory that devices reach of one another: the same bits, the bytes that the plan says, and one coded error
//! where it is missing, too old or fails.

use zero_plan::TransportKind;
use zero_tests::pretend;
use zero_tests::specs::NAMES;

use super::engine::over;

#[test]
fn every_spec_trains_to_the_bits_of_ranks_that_reach_one_another() {
    if pretend::is_hardware() || !pretend::is_cuda() {
        return;
    }
    for (seed, &name) in NAMES.iter().enumerate() {
        let expected = over(TransportKind::Peer, name, |config| config).bits();
        for seed in [seed as u64, 100 + seed as u64] {
            pretend::seed(seed);
            let found = over(TransportKind::Nccl, name, |config| config).bits();
            assert!(found == expected, "{name}, seed {seed}: other bits");
        }
    }
}
