//! Codes of ranks on several hosts: the library that carries bytes between them, and how they meet.

use super::Code;

/// Z0450 to Z0459, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0450",
        title: "no MPI library",
        explanation: "With `transport: Cluster` MPI carries bytes between hosts, and ranks of several hosts with \
            `Nccl` use it to meet. Its library is opened when ranks start, by the name in ZERO_MPI or by the usual \
            names of Open MPI, MPICH and the standard's interface, but no such file could be opened. Install the \
            MPI whose mpirun or mpiexec starts the ranks on every host. There is no other way to send the bytes.",
        example: "mpirun --host a:2,b:2 ./zero3, where b has no libmpi.so.40",
    },
    Code {
        code: "Z0451",
        title: "MPI failed",
        explanation: "The library lacks a function, or a call of it failed, at the start or in a step. The message \
            has the call and MPI's own words, and in a step the op that the rank was in. A broken connection looks \
            like this, too.",
        example: "a network interface that goes down",
    },
    Code {
        code: "Z0452",
        title: "MPI of another launcher",
        explanation: "MPI reports another rank or another number of ranks than the launcher has started. This happens \
            if the library belongs to another MPI than the launcher: each rank is then silently alone in a world of \
            its own. Start the ranks by the launcher of that library, or name the right library in ZERO_MPI.",
        example: "mpiexec.mpich -n 4 ./zero3, with ZERO_MPI=libmpi.so.40 of Open MPI",
    },
    Code {
        code: "Z0453",
        title: "rank on an unexpected host",
        explanation: "The mesh of a plan says how many ranks lie on each node, and numbers them node by node: \
            which bytes go between hosts and which stay within one is compiled in. The launcher has placed the \
            ranks in another way. Make it fill one host after another.",
        example: "mpirun --map-by node, which deals ranks out like cards",
    },
    Code {
        code: "Z0454",
        title: "hosts that would run something else",
        explanation: "Before the first step all ranks compare a hash of their binary, plan, arguments, data and \
            MPI, and of the processor instructions by which kernels are chosen. Ranks that disagree would hang or \
            train something else. The message names the ranks that differ from most, with their hosts.",
        example: "a new binary that was copied to one host only",
    },
    Code {
        code: "Z0455",
        title: "several hosts without a launcher",
        explanation: "The plan is for ranks on several hosts, but the binary was started alone, and then it starts \
            ranks on one host only. Start it by `cargo zero launch`, or by mpirun, mpiexec or srun.",
        example: "./zero3, whose spec has `transport: Cluster` and `nodes: 2`",
    },
    Code {
        code: "Z0457",
        title: "hosts that never met",
        explanation: "MPI joins ranks of all hosts at the start, and some have not joined in time. See the launcher's own \
            output; a firewall between hosts looks like this, too. ZERO_JOIN_TIMEOUT_S is the number of seconds to wait.",
        example: "mpirun over two networks of which only one reaches all hosts",
    },
    Code {
        code: "Z0458",
        title: "hosts that do not fit the mesh",
        explanation: "`cargo zero launch` starts the ranks of each node of the mesh on a host. There are more or fewer hosts \
            than nodes, or the ranks of the spec are all on one host, because its `transport` is neither `Cluster` nor `Nccl`.",
        example: "cargo zero launch specs/cluster.ron --hosts a, where `mesh` has 2 nodes",
    },
    Code {
        code: "Z0459",
        title: "launch that does not begin",
        explanation: "`cargo zero launch` copies the binary to all hosts by ssh and then runs mpirun or mpiexec. A \
            host cannot be reached, the file of hosts does not exist, or there is no launcher.",
        example: "cargo zero launch specs/cluster.ron --hosts a,b, where b asks for a password",
    },
];
