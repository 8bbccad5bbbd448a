//! Codes of a CUDA device: why it cannot be used, and failures that end its work.

use super::Code;

/// Z0430 to Z0449, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0430",
        title: "library of CUDA missing",
        explanation: "A plan for CUDA devices needs the driver (libcuda.so.1), the compiler of kernels \
            (libnvrtc.so.13) and the library of matrix products (libcublasLt.so.13); with `transport: Nccl` also NCCL \
            (libnccl.so.2). The search order is the folders in ZERO_CUDA_LIBRARIES, the system's loader, and a PyTorch \
            installation. Install the missing library, or name its folder. The work never falls back to the processor.",
        example: "device: Cuda, on a machine without NVIDIA's driver",
    },
    Code {
        code: "Z0431",
        title: "library of CUDA too old",
        explanation: "A library was found, but it lacks a function that is called: it is older than CUDA 13, or \
            another library of the same name. The message names the file.",
        example: "ZERO_CUDA_LIBRARIES=/opt/another/lib ./zero3",
    },
    Code {
        code: "Z0432",
        title: "driver too old",
        explanation: "The driver is for a version of CUDA before 13.0, and kernels of a newer compiler would not \
            load. Install driver 580 or a later one.",
        example: "device: Cuda, on a machine with driver 550",
    },
    Code {
        code: "Z0433",
        title: "no such CUDA device",
        explanation: "Each rank uses the device whose number is the rank's number on its host, and the driver \
            shows fewer devices. CUDA_VISIBLE_DEVICES hides some, if it is set. ZERO_CUDA_DEVICES assigns devices \
            differently: with 0,0 two ranks share one, to try a plan for two.",
        example: "four ranks on a host with two devices",
    },
    Code {
        code: "Z0434",
        title: "CUDA device too old",
        explanation: "Kernels multiply matrices of bf16 by instructions that came with the Ampere generation, \
            compute capability 8.0. The device is older.",
        example: "device: Cuda, on a V100",
    },
    Code {
        code: "Z0435",
        title: "CUDA device out of memory",
        explanation: "The plan fits the budget of its spec, but the device has less memory free: another process uses \
            some, or the budget of the spec is larger than the device's memory. `nvidia-smi` lists the processes.",
        example: "memory: GiB(80), on a device of 24 GiB",
    },
    Code {
        code: "Z0436",
        title: "call of CUDA's driver failed",
        explanation: "The driver refused a call of a rank at its start. The message has the call and the driver's \
            own words.",
        example: "a device in the mode `Prohibited`",
    },
    Code {
        code: "Z0437",
        title: "kernel that does not compile",
        explanation: "Kernels are compiled before the first step, on the machine that runs them and for the sizes of the \
            model. The compiler refused one, which is a fault of zero, or of a compiler that zero was not tested with.",
        example: "a compiler of CUDA 14 that refuses what 13 took",
    },
    Code {
        code: "Z0438",
        title: "kernel that does not start",
        explanation: "A kernel was compiled, but the driver does not load or launch it: it needs more resources \
            than the device has. Nothing was computed instead.",
        example: "a kernel that needs more shared memory than the device has",
    },
    Code {
        code: "Z0439",
        title: "matrix product that is not available",
        explanation: "The library of matrix products has no algorithm for a product of these shapes and widths, or \
            failed to run it.",
        example: "a workspace that is too short for any way",
    },
    Code {
        code: "Z0440",
        title: "CUDA device stopped",
        explanation: "The device runs asynchronously, so an error is reported late: a fault of the hardware \
            (`dmesg` then has an Xid), or a kernel that accessed memory it must not. The device does nothing more \
            in this process.",
        example: "a device that falls off the bus",
    },
    Code {
        code: "Z0441",
        title: "no device chosen for a rank",
        explanation: "ZERO_CUDA_DEVICES names the device of each rank of a host, in the order of ranks, as numbers \
            with commas between them. Its value is not such a list, or ends before this rank. Without the \
            variable, each rank uses the device of its own number.",
        example: "ZERO_CUDA_DEVICES=0,0, for four ranks",
    },
    Code {
        code: "Z0442",
        title: "host memory that cannot be pinned",
        explanation: "A device copies from and to pinned memory of its host, which the system never moves. Each rank pins some \
            for staging, and all that `offload: (optimizer: Host)` keeps there, at once and before the first step. The \
            driver did not get it: the host or a control group has too little memory free. `cargo zero plan` shows how \
            much a rank keeps there.",
        example: "offload: (optimizer: Host), on a host whose memory other programs use",
    },
    Code {
        code: "Z0445",
        title: "NCCL too old, or another one",
        explanation: "With `transport: Nccl`, libnccl.so.2 carries bytes between devices. It must be version 2.28 or later, \
            and the same on all ranks: two versions need not be compatible. There is no other way to send the bytes.",
        example: "transport: Nccl, with the NCCL of an old installation of PyTorch",
    },
    Code {
        code: "Z0446",
        title: "NCCL failed",
        explanation: "A call of NCCL failed, at the start, where ranks meet, or in a step; the message has the call \
            and NCCL's own words, and in a step the op that the rank was in. NCCL_DEBUG=WARN makes NCCL print more.",
        example: "a network interface that goes down",
    },
    Code {
        code: "Z0447",
        title: "devices of ranks differ",
        explanation: "Before the first step, ranks compare everything that determines the bits of their results: \
            the name and the compute capability of their devices; the versions of the driver, of the compiler and \
            of the library of matrix products; and how that library will compute the products of the model. The \
            message names the rank, what differs there, and how many ranks agree. Run all ranks on the same \
            devices and versions. `cargo zero measure`, too, describes devices of one kind only.",
        example: "a host whose last slot has another GPU",
    },
    Code {
        code: "Z0449",
        title: "step that differs from the captured one",
        explanation: "A step on a GPU is captured as a graph, which is launched again in every later step. So each \
            step must run the same ops on the same places. This one did not, and was not run. `--eager` launches \
            each step op by op, with the same bits.",
        example: "a layer that launches another kernel in every second step",
    },
];
