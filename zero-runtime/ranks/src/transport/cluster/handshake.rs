//! Handshake: a rank's description of itself, for ranks of other hosts before the first step. Compares handshakes: some
//! entries must be equal on all ranks, and hosts must be those of the mesh. Never sends one.

use std::fmt::Write;

use zero_plan::Mesh;

use crate::launch;
use zero_core::device::{Failure, names_of};

/// The handshake of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub pid: u32,
    /// The name of its host.
    pub host: String,
    /// The entries that must be equal, as hashes except [`INSTRUCTIONS`]: see [`ALIKE`].
    alike: [u64; ALIKE.len()],
}

/// Entries that must be equal on all ranks, and how to make them so.
const ALIKE: [(&str, &str); 5] = [
    ("binary", "copy one binary to all hosts, or start it from a folder that all of them share"),
    ("plan", "build one binary from one spec, and start it everywhere"),
    ("set of arguments or data", "start all ranks with the same arguments, and on the same data"),
    ("version of MPI", "install one version on all hosts, or name a folder that all of them share by `ZERO_MPI`"),
    (
        "set of instructions",
        "take hosts with processors of one kind: kernels are chosen by these instructions, and their sums differ in bits",
    ),
];
/// The entry whose value can be shown in words.
const INSTRUCTIONS: usize = 4;

/// Tells handshakes of this version apart from others.
const MAGIC: u64 = u64::from_le_bytes(*b"zerocrd3");
/// The longest name that a host may have, in bytes.
const HOST_BYTES: usize = 64;
const BYTES: usize = 8 + 8 + 8 * ALIKE.len() + HOST_BYTES;

impl Handshake {
    /// The handshake of this rank. `plan` and `agreement` are hashes of what it is about to run, `mpi` is its version
    /// of MPI, and `instructions` are those of its processor.
    pub fn own(plan: u64, agreement: u64, mpi: &str, instructions: u64) -> Self {
        let alike = [program(), plan, agreement, hash(mpi.as_bytes()), instructions];
        Self { pid: std::process::id(), host: launch::host(), alike }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(u64::from(self.pid).to_le_bytes());
        self.alike.iter().for_each(|hash| bytes.extend(hash.to_le_bytes()));
        bytes.extend(self.host.bytes().take(HOST_BYTES));
        bytes.resize(BYTES, 0);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (numbers, host) = bytes.split_at(BYTES - HOST_BYTES);
        let (numbers, _) = numbers.as_chunks::<8>();
        let [magic, pid, alike @ ..] = numbers else { return None };
        let host = host.split(|&byte| byte == 0).next()?;
        (u64::from_le_bytes(*magic) == MAGIC).then_some(())?;
        Some(Self {
            pid: u64::from_le_bytes(*pid) as u32,
            host: String::from_utf8_lossy(host).into_owned(),
            alike: alike.iter().map(|hash| u64::from_le_bytes(*hash)).collect::<Vec<_>>().try_into().ok()?,
        })
    }
}

/// A hash of the program that this process runs: 0 if it cannot be read, which would be so on all ranks.
fn program() -> u64 {
    std::fs::read("/proc/self/exe").map_or(0, |program| hash(&program))
}

fn hash(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*blake3::hash(bytes).as_bytes().first_chunk().expect("32 bytes"))
}

/// The error if something other than a handshake has arrived.
pub(super) fn another_program(rank: usize) -> Failure {
    Failure {
        code: "Z0454",
        what: format!("rank {rank} has met processes that are not ranks of zero, or are of another version of it"),
        help: ALIKE[0].1.to_owned(),
    }
}

/// Checks that all ranks are about to run the same. `features` names the instructions that kernels are chosen by.
pub(super) fn require_alike(handshakes: &[Handshake], features: &[&str]) -> Result<(), Failure> {
    for (index, (what, help)) in ALIKE.iter().enumerate() {
        let as_many = |handshake: &Handshake| {
            handshakes.iter().filter(|other| other.alike[index] == handshake.alike[index]).count()
        };
        // If two values are equally common, that of the first rank is taken to be right.
        let most = handshakes.iter().rev().max_by_key(|handshake| as_many(handshake)).expect("a rank").alike[index];
        let odd: Vec<usize> = (0..handshakes.len()).filter(|&rank| handshakes[rank].alike[index] != most).collect();
        let Some(&first) = odd.first() else { continue };
        let mut names = String::new();
        for rank in &odd {
            let comma = if names.is_empty() { "" } else { ", " };
            let _ = write!(names, "{comma}rank {rank} on {}", handshakes[*rank].host);
        }
        let verb = if odd.len() == 1 { "has" } else { "have" };
        return Err(Failure {
            code: "Z0454",
            what: format!(
                "{names} {verb} another {what} than most: expected {}, found {}",
                shown(index, most, features),
                shown(index, handshakes[first].alike[index], features)
            ),
            help: (*help).to_owned(),
        });
    }
    Ok(())
}

/// An entry as text for a person.
fn shown(index: usize, value: u64, features: &[&str]) -> String {
    if index != INSTRUCTIONS {
        return format!("{value:016x}");
    }
    let names = names_of(features, value);
    if names.is_empty() { "none of those that kernels are chosen by".to_owned() } else { names.join(" ") }
}

/// Checks that the ranks of each node of the mesh are on one host, and those of different nodes on different hosts.
pub(super) fn require_places(mesh: &Mesh, handshakes: &[Handshake]) -> Result<(), Failure> {
    let first_of = |rank: usize| mesh.node(rank) * mesh.ranks_per_node();
    let odd = (0..handshakes.len()).find_map(|rank| {
        let own_first = first_of(rank);
        if handshakes[rank].host != handshakes[own_first].host {
            return Some((rank, own_first, "the host"));
        }
        let other = (0..own_first).find(|&other| handshakes[other].host == handshakes[rank].host)?;
        Some((rank, other, "another host than that"))
    });
    let Some((rank, other, expected)) = odd else { return Ok(()) };
    Err(Failure {
        code: "Z0453",
        what: format!(
            "rank {rank} is on {}, expected on {expected} of rank {other}, {}: the mesh has {} nodes of {} ranks, which are \
             numbered node by node",
            handshakes[rank].host,
            handshakes[other].host,
            mesh.nodes,
            mesh.ranks_per_node(),
        ),
        help: format!(
            "have the launcher start {each} ranks on each of {} hosts, in blocks: `mpirun --host a:{each},b:{each} --map-by \
             slot`, `mpiexec -ppn {each}`, `srun --ntasks-per-node {each} --distribution block`",
            mesh.nodes,
            each = mesh.ranks_per_node(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: [&str; 3] = ["fma", "avx512f", "x86-64-v3"];

    fn handshake(host: &str, alike: [u64; ALIKE.len()]) -> Handshake {
        Handshake { pid: 7, host: host.to_owned(), alike }
    }

    #[test]
    fn a_handshake_survives_its_way() {
        for host in ["zh0", "", &"x".repeat(HOST_BYTES)] {
            let handshake = handshake(host, [1, u64::MAX, 3, 4, 5]);
            assert_eq!(Handshake::decode(&handshake.encode()), Some(handshake));
        }
        let sent = handshake("zh0", [1, u64::MAX, 3, 4, 5]).encode();
        for (at, value) in (0..BYTES).flat_map(|at| [0, 0x7f, 0x80, 0xff].map(|value| (at, value))) {
            assert_eq!(Handshake::decode(&sent[..at]), None, "cut off at {at}");
            let mut changed = sent.clone();
            changed[at] = value;
            // The name of a host may become any bytes.
            assert_eq!(Handshake::decode(&changed).is_none(), at < 8 && sent[at] != value, "byte {at}");
        }
        let other = [b"zerocrd0".as_slice(), &[0; BYTES - 8]].concat();
        for bytes in [&[][..], &[0; BYTES], &other] {
            assert_eq!(Handshake::decode(bytes), None);
        }
    }

    #[test]
    fn z0454_the_odd_rank_is_named_with_its_host() {
        let same = handshake("a", [1, 2, 3, 4, 5]);
        assert_eq!(require_alike(&[same.clone(), same.clone(), same.clone()], &FEATURES), Ok(()));
        for (index, (what, _)) in ALIKE.into_iter().enumerate() {
            let mut odd = Handshake { host: "b".to_owned(), ..same.clone() };
            odd.alike[index] = 9;
            let failure = require_alike(&[same.clone(), same.clone(), odd], &FEATURES).unwrap_err();
            assert_eq!(failure.code, "Z0454");
            assert!(
                failure.what.starts_with(&format!("rank 2 on b has another {what} than most: expected ")),
                "{}",
                failure.what
            );
        }
    }

    #[test]
    fn z0454_processors_that_multiply_in_another_way_are_told_apart_in_words() {
        let handshake = |host, instructions| handshake(host, [1, 2, 3, 4, instructions]);
        let failure =
            require_alike(&[handshake("a", 0b0111), handshake("a", 0b0111), handshake("b", 0b0001)], &FEATURES)
                .unwrap_err();
        assert_eq!(
            failure.what,
            "rank 2 on b has another set of instructions than most: expected fma avx512f x86-64-v3, found fma"
        );
        assert_eq!(shown(INSTRUCTIONS, 0, &FEATURES), "none of those that kernels are chosen by");
    }

    #[test]
    fn z0453_a_rank_on_an_unexpected_host_is_named() {
        let on = |hosts: &str| -> Vec<Handshake> {
            hosts.chars().map(|host| handshake(&host.to_string(), [0; ALIKE.len()])).collect()
        };
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(4) };
        assert_eq!(require_places(&mesh, &on("aabb")), Ok(()));
        for (hosts, words) in [
            ("abab", "rank 1 is on b, expected on the host of rank 0, a"),
            ("aaaa", "rank 2 is on a, expected on another host than that of rank 0, a"),
            ("aaab", "rank 2 is on a, expected on another"),
            ("aabc", "rank 3 is on c, expected on the host of rank 2, b"),
        ] {
            let failure = require_places(&mesh, &on(hosts)).unwrap_err();
            assert!(failure.code == "Z0453" && failure.what.starts_with(words), "{hosts}: {}", failure.what);
            assert!(failure.help.contains("--host a:2,b:2"), "{}", failure.help);
        }
    }
}
