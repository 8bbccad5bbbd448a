//! Codes of a CUDA device: why it cannot be used, and failures that end its work.

use super::Code;

/// Z0430 to Z0449, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0430",
        title: "library of CUDA missing",
        explanation: "A plan for CUDA devices needs the driver (libcuda.so.1), the compiler of kernels (libnvrtc.so.13) and \
            the library of matrix products (libcublasLt.so.13); with `transport: Nccl` also NCCL (libnccl.so.2). They are \
            looked for in the folders that ZERO_CUDA_LIBRARIES names, then where the system's loader looks, then in a PyTorch \
            installation. Install what is missing, or name its folder. The processor never does the work instead.",
        example: "device: Cuda, on a machine without NVIDIA's driver",
    },
    Code {
        code: "Z0431",
        title: "library of CUDA too old",
        explanation: "A library was found, but it lacks a function that is called: it is older than CUDA 13, or another \
            library under the same name. The message says which file that is.",
        example: "ZERO_CUDA_LIBRARIES=/opt/another/lib ./zero3",
    },
    Code {
        code: "Z0432",
        title: "driver too old",
        explanation: "The driver is for a version of CUDA before 13.0, and kernels that are compiled by a newer compiler \
            would not load. Install driver 580 or a later one.",
        example: "device: Cuda, on a machine with driver 550",
    },
    Code {
        code: "Z0433",
        title: "no such CUDA device",
        explanation: "Each rank of a host takes the device with its number among the ranks there, and the driver shows \
            fewer devices. CUDA_VISIBLE_DEVICES hides some, if it is set. ZERO_CUDA_DEVICES names the devices of ranks \
            otherwise: with 0,0 two ranks share one, for trying out what is meant for two.",
        example: "four ranks on a host with two devices",
    },
    Code {
        code: "Z0434",
        title: "CUDA device too old",
        explanation: "Kernels multiply matrices of bf16 by instructions that came with the Ampere generation, compute \
            capability 8.0. The device is of an older one.",
        example: "device: Cuda, on a V100",
    },
    Code {
        code: "Z0435",
        title: "CUDA device out of memory",
        explanation: "The plan fits the budget of its spec, but the device has not that much left: another process holds \
            memory there, or the spec promises more than the device has. `nvidia-smi` shows who holds what.",
        example: "memory: GiB(80), on a device of 24 GiB",
    },
    Code {
        code: "Z0436",
        title: "call of CUDA's driver failed",
        explanation: "The driver refused what a rank asked of it at its start. The message has the call and the driver's \
            own words.",
        example: "a device in the mode `Prohibited`",
    },
    Code {
        code: "Z0437",
        title: "kernel that does not compile",
        explanation: "Kernels are compiled on the machine that they run on, for the sizes of the model, before the first \
            step. The compiler refused one, which is a fault of zero, or of a compiler that it was not tried with.",
        example: "a compiler of CUDA 14 that refuses what 13 took",
    },
    Code {
        code: "Z0438",
        title: "kernel that does not start",
        explanation: "A kernel was compiled, but the driver does not load or launch it: it asks for more than the device \
            has. Nothing was computed in its place.",
        example: "a kernel that needs more shared memory than the device has",
    },
    Code {
        code: "Z0439",
        title: "matrix product that cannot be had",
        explanation: "The library of matrix products names no way to do a product of these shapes and widths, or failed at \
            it.",
        example: "a workspace that is too short for any way",
    },
    Code {
        code: "Z0440",
        title: "CUDA device stopped",
        explanation: "The device works behind the host's back, so it tells late that something went wrong: a fault of the \
            hardware (`dmesg` has an Xid then), or a kernel that touched what it must not. The device does nothing more in \
            this process.",
        example: "a device that falls off the bus",
    },
    Code {
        code: "Z0441",
        title: "no device chosen for a rank",
        explanation: "ZERO_CUDA_DEVICES names the device of each rank of a host, in the order of ranks, as numbers with \
            commas between them. What it says is no such list, or ends before this rank. Without the variable, each rank \
            takes the device of its own number.",
        example: "ZERO_CUDA_DEVICES=0,0, for four ranks",
    },
    Code {
        code: "Z0445",
        title: "NCCL too old, or another one",
        explanation: "With `transport: Nccl`, libnccl.so.2 carries bytes between devices. It must be version 2.28 or later, \
            and the same on all ranks: two versions need not understand one another. Nothing else carries the bytes instead.",
        example: "transport: Nccl, with the NCCL of an old installation of PyTorch",
    },
    Code {
        code: "Z0446",
        title: "NCCL failed",
        explanation: "A call of NCCL failed, at the start, where ranks meet, or in a step; the message says which call that was \
            and what NCCL said, and in a step which op the rank was in. NCCL_DEBUG=WARN makes NCCL say more.",
        example: "a network interface that goes down",
    },
    Code {
        code: "Z0447",
        title: "devices of ranks differ",
        explanation: "Before the first step, ranks compare what decides the bits of their results: the name and the compute \
            capability of their devices; the versions of the driver, of the compiler and of the library of matrix products; \
            and how that library will compute the products of the model. The message names the rank, what differs there, and \
            how many ranks agree. Give all ranks the same devices and the same versions. `cargo zero measure` also describes \
            devices of one kind only.",
        example: "a host whose last slot has another GPU",
    },
    Code {
        code: "Z0449",
        title: "step that asks for something else",
        explanation: "A step on a GPU is captured as a graph, which is launched again in every later step. So a step must ask \
            for the same ops on the same places each time, and this one did not; it was not done. `--eager` asks for each \
            step op by op, to the same bits.",
        example: "a layer that launches another kernel in every second step",
    },
];
