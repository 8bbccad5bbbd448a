//! Codes of launching and joining, before the first step; also of ranks that end.

use super::Code;

/// Z0301 to Z0339, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0301",
        title: "incomplete place from a launcher",
        explanation: "A launcher gives each process its rank and the number of ranks, but the environment has only \
            one of them. Set both, or unset both and let the binary start its own ranks. PRRTE's launcher sets \
            both with `prterun --personality ompi`.",
        example: "RANK=1 ./zero3",
    },
    Code {
        code: "Z0302",
        title: "place that is not a number",
        explanation: "A variable of the launcher holds something other than a whole number.",
        example: "RANK=one WORLD_SIZE=2 ./zero3",
    },
    Code {
        code: "Z0303",
        title: "rank out of range",
        explanation: "Ranks count from 0, so the last one is the number of ranks less one.",
        example: "RANK=2 WORLD_SIZE=2 ./zero3",
    },
    Code {
        code: "Z0304",
        title: "launchers that contradict one another",
        explanation: "Variables of two launchers are set with different places, as when torchrun is started inside \
            of a job of srun. Unset those of the launcher that did not start this process.",
        example: "RANK=0 WORLD_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 ./zero3",
    },
    Code {
        code: "Z0305",
        title: "number of ranks differs from the plan",
        explanation: "The number of ranks is compiled into the binary, because layout and schedule depend on it. \
            Start that many ranks, or build from a spec whose mesh has as many ranks as you start. A shell that a \
            launcher started as its only task, or a pod with WORLD_SIZE=1, says that there is one rank: the message \
            names the variables to unset.",
        example: "torchrun --nproc-per-node 4 --no-python ./zero3 # whose mesh has 2 ranks",
    },
    Code {
        code: "Z0306",
        title: "job without a name",
        explanation: "Ranks of one job find one another by its name, which is made from variables that launchers \
            set. None of these is set here. Set ZERO_JOB on all ranks to a word that no other run on this host uses.",
        example: "RANK=0 WORLD_SIZE=2 ./zero3",
    },
    Code {
        code: "Z0307",
        title: "ranks on several hosts",
        explanation: "Shared memory joins the ranks of one host, but the launcher has put them on several.",
        example: "srun --nodes 2 --ntasks 4 ./zero3",
    },
    Code {
        code: "Z0310",
        title: "rank killed",
        explanation: "A signal ended a rank, and its launcher ended the other ranks, which would wait for it \
            forever. If nobody sent the signal, see `dmesg`: the kernel kills processes when memory runs out.",
        example: "kill -9 the process of a rank",
    },
    Code {
        code: "Z0311",
        title: "rank failed",
        explanation: "A rank ended with an exit code that is not 0, and its launcher ended the others. Its own message \
            is above.",
        example: "a layer that panics on one rank",
    },
    Code {
        code: "Z0312",
        title: "rank that cannot be started",
        explanation: "The binary starts its ranks as copies of itself, and the system refused: there are too many \
            processes, or the binary has been removed.",
        example: "ulimit -u 10; ./zero3",
    },
    Code {
        code: "Z0313",
        title: "launcher gone",
        explanation: "The process that started this rank ended before the rank began, so no process would watch \
            the rank. Start the run again.",
        example: "kill -9 the launcher at once",
    },
    Code {
        code: "Z0314",
        title: "rank lost",
        explanation: "Another rank ended in the middle of the run, and this rank noticed because it waited for it. \
            See the output of the other rank, or of its launcher.",
        example: "kill -9 a rank that torchrun has started",
    },
    Code {
        code: "Z0315",
        title: "time to wait out of range",
        explanation: "ZERO_JOIN_TIMEOUT_S is the number of seconds that ranks wait for one another at start: from \
            1 second to a day. The default is a minute.",
        example: "ZERO_JOIN_TIMEOUT_S=0 ./zero3",
    },
    Code {
        code: "Z0316",
        title: "rank that could not start",
        explanation: "Some ranks found an error before they met the others: their data does not exist, for example. \
            Rank 0 prints each such error once, under its own code, and names the ranks that found it unless all did.",
        example: "RANK=1 ... ./zero3 --data only-here.txt # on a rank that does not see that file",
    },
    Code {
        code: "Z0317",
        title: "restart without progress",
        explanation: "With --restarts, all ranks are started anew from the newest checkpoint when one of them dies \
            or stops answering. The restarted ranks have also ended before they wrote a newer checkpoint, so \
            another restart would not help. The errors above are the cause; if it can pass, write checkpoints more \
            often with --every.",
        example: "./zero3 --checkpoint run --restarts 5, where a layer panics in step 7 each time",
    },
    Code {
        code: "Z0318",
        title: "end without a checkpoint",
        explanation: "With --checkpoint, a run that gets SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 finishes its step, \
            writes a checkpoint and ends. It had not ended after the time of --grace, and was killed. All steps since the newest \
            checkpoint are lost.",
        example: "kill the launcher, with --grace 1s and steps that take longer",
    },
    Code {
        code: "Z0319",
        title: "restarts that no program here can do",
        explanation: "--restarts is for the program that starts the ranks and sees them end: the binary itself on one host, \
            `cargo zero launch` with --hosts or --hostfile on several. These ranks were started, or will be, by mpirun, \
            srun, torchrun or Kubernetes. The script of `cargo zero launch` for Slurm resumes from --checkpoint by itself; \
            elsewhere nothing would restart ranks. Leave --restarts out there, and start the job again with --resume.",
        example: "mpirun -n 4 ./zero3 --checkpoint run --restarts 5",
    },
    Code {
        code: "Z0320",
        title: "job taken",
        explanation: "Another rank 0 of the same job is starting on this host, as when a run is started twice. End the \
            other run, or give this one another ZERO_JOB on all its ranks.",
        example: "ZERO_JOB=a for two runs at once",
    },
    Code {
        code: "Z0321",
        title: "ranks that never arrived",
        explanation: "Rank 0 waited for the others, and some never arrived. The message names them. Check whether \
            they were started, on this host and not in containers of their own; ZERO_JOIN_TIMEOUT_S is the number \
            of seconds to wait.",
        example: "RANK=0 WORLD_SIZE=2 ZERO_JOB=a ./zero3 # and no rank 1",
    },
    Code {
        code: "Z0322",
        title: "rank 0 that never arrived",
        explanation: "This rank waited for rank 0, which never arrived. Check whether it was started, on this host \
            and with the same job; ZERO_JOIN_TIMEOUT_S is the number of seconds to wait.",
        example: "RANK=1 WORLD_SIZE=2 ZERO_JOB=a ./zero3 # and no rank 0",
    },
    Code {
        code: "Z0323",
        title: "rank 0 lost at start",
        explanation: "Rank 0 ended before all ranks had joined. Its own message says why.",
        example: "kill -9 rank 0 while it waits for the others",
    },
    Code {
        code: "Z0324",
        title: "rank 0 silent",
        explanation: "Rank 0 accepted this rank but did not answer: it may be stopped, or swapping.",
        example: "kill -STOP rank 0 while ranks join",
    },
    Code {
        code: "Z0325",
        title: "plan, arguments or data differ",
        explanation: "Before the first collective all ranks compare a hash of their plan, their arguments and their \
            data, because ranks that disagree would hang or train something else. Start the same binary with the same \
            arguments and data on all ranks.",
        example: "RANK=1 ... ./zero3 --lr 0.1 # and rank 0 without --lr",
    },
    Code {
        code: "Z0326",
        title: "number of ranks differs",
        explanation: "Two ranks were started with different numbers of ranks. Start all ranks with the same number.",
        example: "RANK=1 WORLD_SIZE=3 ... # and WORLD_SIZE=2 on rank 0",
    },
    Code {
        code: "Z0327",
        title: "duplicate rank",
        explanation: "Two processes say that they are the same rank. Give each its own number; two runs with the same \
            ZERO_JOB would look like this too.",
        example: "RANK=1 twice",
    },
    Code {
        code: "Z0328",
        title: "job of another user",
        explanation: "The socket on which the ranks of this job meet belongs to another user. Give this run another \
            ZERO_JOB on all its ranks.",
        example: "ZERO_JOB=a, which another user of this host uses",
    },
    Code {
        code: "Z0329",
        title: "rank lost at start",
        explanation: "A rank ended before all ranks had joined. Its own message, if it had one, says why.",
        example: "kill -9 rank 1 while rank 0 waits for rank 2",
    },
    Code {
        code: "Z0330",
        title: "start ended by another rank",
        explanation: "Another rank, most often rank 0, found why the ranks cannot start together, and prints it \
            for all of them. Correct that error.",
        example: "any of Z0321 to Z0329, as the other ranks see it",
    },
    Code {
        code: "Z0331",
        title: "more memory than there is",
        explanation: "The arenas of all ranks are reserved before the first step. The host has less memory than \
            the ranks need in them and outside of them, or a control group (a container, a batch job) allows less; \
            the message says which. Free memory, raise the limit, or build from a spec that needs less: a higher \
            stage, or a smaller batch. With ranks on several hosts, /dev/shm may be full on one of them, where \
            MPICH keeps its ranks' shared memory; the message names the host.",
        example: "./ddp # on a host with 1 GiB available",
    },
    Code {
        code: "Z0332",
        title: "system that refused",
        explanation: "The operating system refused a resource that every run needs: shared memory, a socket, a \
            file descriptor. Check the limits of this user and container.",
        example: "ulimit -n 5; ./zero3",
    },
    Code {
        code: "Z0333",
        title: "run that exceeds the budget",
        explanation: "The build has compared the smallest run with `memory` in the spec: one thread for each rank, \
            no profile, no data in memory. This run needs more: each thread has scratch of its own, a profile \
            records and measures, and a dataset may keep data in memory. Use fewer `--threads`, leave `--profile` \
            out, or raise `memory` and build again.",
        example: "./zero3 --threads 64 # with `memory: MiB(256)`",
    },
    Code {
        code: "Z0334",
        title: "too much data in memory",
        explanation: "A text that is in the binary, or the sources of a workspace, are held in memory by every \
            rank, and the plan has room for 16 MiB of them. Pass larger ones as a file, with `--data`: files are \
            not copied to memory.",
        example: "cargo zero build # in a workspace with 20 MiB of sources",
    },
    Code {
        code: "Z0336",
        title: "launcher that reports success too early",
        explanation: "The launcher of the ranks, such as mpirun, has ended with exit code 0, but there is no \
            checkpoint of the last step. Open MPI 5 does so when it has lost a host, or its own helper there. See \
            its output; with `--restarts` this counts as a loss.",
        example: "cargo zero launch SPEC --hosts a,b -- --checkpoint runs/a --restarts 1 # and b loses its power",
    },
    Code {
        code: "Z0337",
        title: "ranks that cannot watch one another",
        explanation: "The ranks of a host met, but the kernel has no process id of one for the other, because each \
            container or pod has process ids of its own. Ranks need these to notice at once when another one ends. \
            Start them in one container, or let their containers share process ids.",
        example: "two containers on one host, each with a rank and without `--pid=host`",
    },
    Code {
        code: "Z0338",
        title: "address of --publish that cannot be used",
        explanation: "Every rank serves what it owns of published parameters: rank 0 at the address of --publish, the other ranks of \
            its host at the ports after that one, and ranks of other hosts at the same ports on the interface that reaches rank 0. \
            An address is not of this host, a port is taken, most often by another run, or the file with the token cannot be read.",
        example: "cargo zero run publish.ron -- --publish 127.0.0.1:7000 # while another run serves there",
    },
    Code {
        code: "Z0339",
        title: "worker that cannot serve",
        explanation: "A worker of `cargo zero serve` has no address to answer at, because another program has the port or the \
            address is not of this host; its file with a token cannot be read; or the run that it is to follow has published \
            nothing that it can use: another model, tensors of other shapes, or nothing for as long as --patience says.",
        example: "cargo zero serve SPEC --from http://127.0.0.1:7000 # where a run of another model publishes",
    },
];
