//! Codes of tiers: folders in which states cannot be kept.

use super::Code;

/// Z0396 to Z0399, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0396",
        title: "folder of --offload that cannot be used",
        explanation: "A plan with `offload` keeps states in a file in the folder of --offload, and the system refuses to make \
            one there. The message says why: there is no such folder, it cannot be written to, or the disk has failed. The \
            file has no name, and is gone when the run ends.",
        example: "cargo zero run offload.ron -- --offload missing",
    },
    Code {
        code: "Z0397",
        title: "folder of --offload in memory",
        explanation: "The folder of --offload lies in a file system that keeps files in memory, such as tmpfs. States there \
            would take the memory that offload is to save. Name a folder on a disk.",
        example: "cargo zero run offload.ron -- --offload /dev/shm",
    },
    Code {
        code: "Z0398",
        title: "folder of --offload without direct I/O",
        explanation: "States travel directly between a disk and the memory of a rank, in blocks of 4096 bytes. Otherwise the \
            system's cache would take the memory that offload is to save. The file system of the folder cannot do that, \
            does not say so (Linux 6.1 and later do), or cannot reserve room for a file without a name. ext4 and XFS can.",
        example: "cargo zero run offload.ron -- --offload /mnt/server",
    },
    Code {
        code: "Z0399",
        title: "too little room for states",
        explanation: "The file system of the folder of --offload has less room than the files of all ranks of this host need \
            together. The room is reserved before the first step, so that a run does not end in the middle for lack of it; \
            after a refusal nothing stays allocated.",
        example: "cargo zero run offload.ron -- --offload /small",
    },
];
