//! The figures of `cargo zero measure --hosts` for a network: no more than its cards carry, and none if there is no network.

use crate::net::{Mpi, Net, words};

const PROGRAM: &str = env!("CARGO_BIN_EXE_network");

/// Bytes a second of a card of 1 Gbit/s, and its allowance for bursts.
const CARD: f64 = 125e6 * 1.1;

/// The messages consist of many pieces, and are compared with the sent bytes.
#[test]
fn a_network_carries_what_its_cards_do() {
    let Some(net) = Net::limited(2, "1gbit") else { return };
    for mpi in Mpi::all() {
        let output = net.launch(mpi, 2, 1, &[("ZERO_MPI", &mpi.library())], PROGRAM).output().expect("a launcher");
        let all = words(&output);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let seen: Vec<f64> = said.split_whitespace().map(|figure| figure.parse().expect("a number")).collect();
        let [bytes_per_s, latency_s] = seen[..] else { panic!("{all}") };
        assert!(bytes_per_s > 0.0 && bytes_per_s <= CARD, "{mpi:?}: {all}");
        assert!(latency_s > 0.0, "{mpi:?}: {all}");
    }
}

#[test]
fn two_hosts_of_one_rank_are_a_network_and_nothing_else() {
    let Some(net) = Net::of(2) else { return };
    for (hosts, each, code) in [(1, 2, "Z0453"), (2, 2, "Z0452")] {
        for mpi in Mpi::all() {
            let output =
                net.launch(mpi, hosts, each, &[("ZERO_MPI", &mpi.library())], PROGRAM).output().expect("a launcher");
            let all = words(&output);
            assert!(!output.status.success() && all.contains(&format!("error[{code}]: ")), "{mpi:?}: {all}");
        }
    }
}
