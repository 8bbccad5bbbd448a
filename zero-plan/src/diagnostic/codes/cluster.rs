//! Codes of ranks on several hosts: the library that carries bytes between them, and how they meet.

use super::Code;

/// Z0450 to Z0459, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0450",
        title: "no MPI library",
        explanation: "With `transport: Cluster` MPI carries bytes between hosts, and ranks of several hosts with `Nccl` meet by \
            it. Its library is opened when ranks start, by the name in ZERO_MPI or by the usual names of Open MPI, MPICH and the \
            standard's interface, and none could be. Install the MPI whose mpirun or mpiexec starts the ranks on every host. \
            Nothing else carries the bytes instead.",
        example: "mpirun --host a:2,b:2 ./zero3, where b has no libmpi.so.40",
    },
    Code {
        code: "Z0451",
        title: "MPI failed",
        explanation: "The library lacks a function, or a call of it failed, at the start or in a step; the message says which \
            call that was and what MPI said, and in a step which op the rank was in. A connection that breaks looks like \
            this, too.",
        example: "a network interface that goes down",
    },
    Code {
        code: "Z0452",
        title: "MPI of another launcher",
        explanation: "MPI sees another rank or another number of ranks than the launcher has started. That is so where the \
            library belongs to another MPI than the launcher: each rank is then alone in a world of its own, without a \
            word. Start the ranks by the launcher of that library, or name the right library by ZERO_MPI.",
        example: "mpiexec.mpich -n 4 ./zero3, with ZERO_MPI=libmpi.so.40 of Open MPI",
    },
    Code {
        code: "Z0453",
        title: "rank on an unexpected host",
        explanation: "The mesh of a plan says how many ranks lie on each node, and numbers them node by node: what travels \
            between hosts and what stays within one is compiled in. The launcher has spread the ranks in another way. Have it \
            fill one host after another.",
        example: "mpirun --map-by node, which deals ranks out like cards",
    },
    Code {
        code: "Z0454",
        title: "hosts that would run something else",
        explanation: "Before the first step all ranks compare a hash of their binary, their plan, their arguments and data, and \
            their MPI, and by which instructions of their processors kernels are chosen, because ranks that disagree would hang or \
            train something else. Those that differ from most are named, with \
            their hosts.",
        example: "a new binary that was copied to one host only",
    },
    Code {
        code: "Z0455",
        title: "several hosts without a launcher",
        explanation: "The plan is for ranks on several hosts, and the binary was started by itself, which starts ranks on one \
            host only. Start it by `cargo zero launch`, or by mpirun, mpiexec or srun.",
        example: "./zero3, whose spec has `transport: Cluster` and `nodes: 2`",
    },
    Code {
        code: "Z0457",
        title: "hosts that never met",
        explanation: "MPI joins ranks of all hosts at the start, and some have not come in time. The launcher's own output says \
            more; a firewall between hosts looks like this, too. ZERO_JOIN_TIMEOUT_S says for how many seconds to wait.",
        example: "mpirun over two networks of which only one reaches all hosts",
    },
    Code {
        code: "Z0458",
        title: "hosts that do not fit the mesh",
        explanation: "`cargo zero launch` starts the ranks of each node of the mesh on a host, and there are more or fewer hosts \
            than nodes; or the ranks of the spec are all on one host, as its `transport` is neither `Cluster` nor `Nccl`.",
        example: "cargo zero launch specs/cluster.ron --hosts a, where `mesh` has 2 nodes",
    },
    Code {
        code: "Z0459",
        title: "launch that does not begin",
        explanation: "`cargo zero launch` copies the binary to all hosts by ssh and hands over to mpirun or mpiexec. A host is not \
            reached, the file of hosts is not there, or there is no launcher.",
        example: "cargo zero launch specs/cluster.ron --hosts a,b, where b asks for a password",
    },
];
