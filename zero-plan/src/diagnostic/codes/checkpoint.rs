//! Codes of checkpoints: folders that cannot be used, files that have changed since they were written, and saves that
//! fail.

use super::Code;

/// Z0380 to Z0399, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0380",
        title: "folder that cannot keep checkpoints",
        explanation: "The path of --checkpoint is a file or a link, or the run may not write there, or its file \
            system cannot rename a folder, which is tried before training. A link is refused because it could point elsewhere at the next save. Name a \
            writable folder, or one that does not exist yet.",
        example: "touch notes; ./zero3 --checkpoint notes",
    },
    Code {
        code: "Z0381",
        title: "folder in use by another run",
        explanation: "Two runs that write to one folder would remove one another's files, so a run locks its \
            folder for as long as its process lives. The system frees the lock when the process ends, in whatever \
            way: there is nothing to remove by hand. Only where a file system has no locks, words in the file `lock` are \
            the lock, and a host that cannot see the process which they name cannot know whether it has ended. If it has, \
            remove the file.",
        example: "./zero3 --checkpoint runs/a & ./zero3 --checkpoint runs/a",
    },
    Code {
        code: "Z0382",
        title: "folder with checkpoints of another run",
        explanation: "The folder of --checkpoint has checkpoints already, and --resume was not given, so this would \
            start another run in the folder of the first. Continue the first with --resume, or name another folder.",
        example: "./zero3 --steps 5 --checkpoint runs/a; ./zero3 --steps 5 --checkpoint runs/a",
    },
    Code {
        code: "Z0383",
        title: "no checkpoint",
        explanation: "The path is not a folder with a manifest.jsonl in it. The folder of a run has one folder for \
            each checkpoint, named after its step: step-000000100.",
        example: "cargo zero inspect .",
    },
    Code {
        code: "Z0384",
        title: "manifest that was changed",
        explanation: "The manifest of a checkpoint is two lines, of which the second is the hash of the first. It \
            was cut off or changed, or this version does not read its format. The files cannot be checked without \
            it, so the checkpoint is not used: continue from an older one.",
        example: "truncate -s -1 runs/a/step-000000100/manifest.jsonl",
    },
    Code {
        code: "Z0385",
        title: "file of a checkpoint that cannot be read",
        explanation: "The manifest names a file that does not exist or that the system cannot read. A checkpoint \
            has one file for each rank that wrote it, and all of them are needed.",
        example: "rm runs/a/step-000000100/rank-00001.safetensors",
    },
    Code {
        code: "Z0386",
        title: "file of a checkpoint with another length",
        explanation: "A file is shorter or longer than the manifest says: it was cut off, or replaced.",
        example: "truncate -s 1M runs/a/step-000000100/rank-00001.safetensors",
    },
    Code {
        code: "Z0387",
        title: "file of a checkpoint that was changed",
        explanation: "The manifest has a hash of each mebibyte of every file. One of them does not match the bytes \
            in the file: a bit has flipped, or somebody has written to the file. The message names the bytes, and \
            the tensors that have elements in them.",
        example: "printf x | dd of=runs/a/step-000000100/rank-00001.safetensors conv=notrunc",
    },
    Code {
        code: "Z0388",
        title: "file of another rank or step",
        explanation: "A file is named after one rank, but its header says that another rank wrote it, or that it \
            is of another step. Files of different checkpoints were mixed.",
        example: "cp runs/a/step-000000200/rank-00001.safetensors runs/a/step-000000100/",
    },
    Code {
        code: "Z0389",
        title: "file of a checkpoint with impossible content",
        explanation: "The hashes of a file are right, but its content is impossible in a checkpoint, or all files \
            together do not contain each element of a state exactly once. That is a fault of the program that \
            wrote it.",
        example: "a checkpoint of another version of zero",
    },
    Code {
        code: "Z0390",
        title: "checkpoint of another model",
        explanation: "A checkpoint can be read under any layout, but only by its own model: the same tensors by name and \
            shape, and the same configuration. The message lists what differs.",
        example: "./gpt --init runs/llama/step-000000100",
    },
    Code {
        code: "Z0391",
        title: "no room for a checkpoint",
        explanation: "The disk has less room than the files of the next checkpoint need. This is checked before \
            any is written. Nothing was written, older checkpoints are whole, and the next save tries again.",
        example: "./zero3 --checkpoint /boot/run",
    },
    Code {
        code: "Z0392",
        title: "checkpoint that cannot be written",
        explanation: "The system has refused an operation on a file of a new checkpoint. Older checkpoints are \
            whole; the next save removes the unfinished one.",
        example: "mount -o remount,ro the disk in the middle of a run",
    },
    Code {
        code: "Z0393",
        title: "old checkpoint that cannot be removed",
        explanation: "A new checkpoint is written and whole, but an old one beyond the number of --keep could not \
            be removed. The next save tries again.",
        example: "chattr +i runs/a/step-000000100/manifest.jsonl",
    },
    Code {
        code: "Z0394",
        title: "checkpoint of another run",
        explanation: "A run can only resume from its own checkpoint. The seed, the optimizer and the data must be \
            the same; with others it would be neither the old run nor a new one. The message lists the \
            differences. Learning rates, steps and the optimizer's numbers may change, which is reported. To train \
            the same parameters on other data, begin a new run with `--init`.",
        example: "./zero3 --checkpoint runs/a --resume --seed 1",
    },
    Code {
        code: "Z0395",
        title: "folder that is no longer that of the run",
        explanation: "The folder of --checkpoint was renamed, removed or replaced while the run was writing to it, so the \
            lock at its path is not the run's own any more. Another run may use this path by now, so nothing is written or \
            removed there. The checkpoints so far are in the folder, wherever it is. If it gets its name back, the next \
            save finds it.",
        example: "./zero3 --checkpoint runs/a --every 100 & sleep 60; mv runs/a runs/b",
    },
];
