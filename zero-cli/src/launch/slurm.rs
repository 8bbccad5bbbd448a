//! Slurm: a job's script for sbatch. The script is complete, and its comments list changes that a person may want. Never submits it.

use std::path::Path;
use std::process::Command;

use zero_plan::DeviceKind;

use super::Job;
use super::mpirun::{quoted, shown};

/// The script, with placeholders for the values of a job.
const SCRIPT: &str = include_str!("job.sh");

/// The script of a job. With checkpoints, the job queues again, to continue from the newest checkpoint, after it was asked to
/// end or has lost a rank or a node.
pub fn script(job: &Job, binary: &Path) -> String {
    let Job { spec, mesh, device, arguments } = job;
    let ranks = mesh.ranks_per_node();
    let gpus = match device {
        DeviceKind::Cpu => String::new(),
        DeviceKind::Cuda => format!("#SBATCH --gpus-per-node={ranks}\n"),
    };
    let mut command = Command::new(binary);
    command.args(arguments);
    let own = [
        ("@SPEC@", spec.replace(|c: char| !c.is_ascii_alphanumeric() && !"-._".contains(c), "-")),
        ("@NODES@", mesh.nodes.to_string()),
        ("@RANKS@", ranks.to_string()),
        ("@GPUS@\n", gpus),
        ("@FOLDER@", quoted(folder(arguments).unwrap_or_default())),
        ("@COMMAND@", shown(&command)),
    ];
    filled(SCRIPT, &own)
}

/// The text with the values of its placeholders, whose own text is taken as it is.
fn filled(text: &str, values: &[(&str, String)]) -> String {
    let first = values.iter().filter_map(|(name, value)| Some((text.find(name)?, *name, value))).min();
    match first {
        Some((at, name, value)) => text[..at].to_owned() + value + &filled(&text[at + name.len()..], values),
        None => text.to_owned(),
    }
}

/// The folder of checkpoints that a run is given.
fn folder(arguments: &[String]) -> Option<&str> {
    let mut words = arguments.iter();
    let word = words.find(|word| word.split('=').next() == Some(CHECKPOINT))?;
    word.strip_prefix(CHECKPOINT)?.strip_prefix('=').or_else(|| words.next().map(String::as_str))
}

const CHECKPOINT: &str = "--checkpoint";

#[cfg(test)]
mod tests {
    use zero_plan::Mesh;
    use zero_ranks::launch::RESTART;

    use super::*;

    fn job() -> Job<'static> {
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(8) };
        Job {
            spec: "My_hybrid",
            mesh,
            device: DeviceKind::Cpu,
            arguments: vec!["--data".to_owned(), "my text: 1".to_owned()],
        }
    }

    #[test]
    fn slurm_is_told_nodes_ranks_and_that_one_failure_ends_all() {
        let script = script(&job(), Path::new("/shared/zero"));
        for line in ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "  /shared/zero --data 'my text: 1'"] {
            assert!(script.lines().any(|found| found == line), "{line}: {script}");
        }
        assert!(script.contains("--kill-on-bad-exit=1"));
        assert!(script.lines().all(|line| line.matches('@').count() < 2), "a placeholder remains: {script}");
        let bash = std::process::Command::new("bash").args(["-n", "-c", &script]).output().expect("bash");
        assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    }

    #[test]
    fn no_name_becomes_a_line_of_the_script() {
        let spec = "my run\ntouch x; 'quoted' $(touch y)";
        let folder = "@COMMAND@ it's\n$(touch z)";
        let arguments = vec!["--checkpoint".to_owned(), folder.to_owned()];
        let script = script(&Job { spec, arguments, ..job() }, Path::new("/shared/my zero"));
        assert!(script.contains("#SBATCH --job-name=zero-my-run-touch-x---quoted----touch-y-\n"), "{script}");
        let shown = r"'/shared/my zero' --checkpoint '@COMMAND@ it'\''s";
        assert!(script.contains(shown) && script.contains(r"folder='@COMMAND@ it'\''s"), "{script}");
        let place = tempfile::tempdir().expect("a directory");
        let bash = |script: &str| {
            let mut bash = std::process::Command::new("bash");
            bash.args(["-c", script]).current_dir(place.path()).output().expect("bash")
        };
        // As far as the folder's name, which the shell must read as one word.
        let (before, _) = script.split_once("newest()").expect("a function");
        let told = bash(&format!("{before}printf %s \"$folder\""));
        assert_eq!(String::from_utf8_lossy(&told.stdout), folder);
        assert_eq!(std::fs::read_dir(place.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_gpu_is_asked_for_each_rank() {
        let gpus = Job { device: DeviceKind::Cuda, ..job() };
        let asks = |job| script(job, Path::new("/shared/zero")).lines().any(|line| line == "#SBATCH --gpus-per-node=4");
        assert!(asks(&gpus) && !asks(&job()));
    }

    #[test]
    fn the_folder_of_checkpoints_is_found_as_the_binary_finds_it() {
        for (given, expected) in [
            ("--checkpoint runs/a", Some("runs/a")),
            ("--every 10m --checkpoint=runs/a=b --resume", Some("runs/a=b")),
            ("--checkpoints runs/a", None),
            ("--checkpoint", None),
            ("--steps 3", None),
        ] {
            let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
            assert_eq!(folder(&arguments), expected, "{given}");
        }
    }

    /// Runs a script as Slurm does, with ranks that may save a checkpoint and end with an exit code. Returns whether the job
    /// queues again, and the exit code of the script.
    fn ended(given: &str, saves: bool, code: i32) -> (bool, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir_all(at("my run/step-000000100")).unwrap();
        let arguments = given.split(' ').map(|word| word.replace("FOLDER", &at("my run"))).collect();
        let script = script(&Job { arguments, ..job() }, Path::new("/shared/zero"));
        let saves = if saves { format!("mkdir '{}'", at("my run/step-000000200")) } else { "true".to_owned() };
        // Functions stand for the programs of Slurm.
        let slurm = format!(
            "srun() {{ {saves}; echo again-${RESTART} > '{}'; return {code}; }}; scontrol() {{ echo \"$@\" > '{}'; }}",
            at("told"),
            at("queued")
        );
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &format!("{slurm}\n{script}")]).env("SLURM_JOB_ID", "77").env("SLURM_RESTART_COUNT", "2");
        let status = bash.env_remove(RESTART).status().expect("bash");
        let told = if given.contains("FOLDER") { "again-2\n" } else { "again-\n" };
        assert_eq!(std::fs::read_to_string(at("told")).unwrap(), told);
        let queued = std::fs::read_to_string(at("queued")).ok();
        assert!(queued.iter().all(|words| words == "requeue 77\n"), "{queued:?}");
        (queued.is_some(), status.code())
    }

    #[test]
    fn a_job_of_slurm_queues_again_where_that_helps() {
        let given = "--checkpoint FOLDER --every 10m";
        for (saves, code, is_queued) in [
            (true, 0, false),
            (true, 2, false),
            (true, 74, false),
            (false, 75, true),
            // A rank that was killed, a rank that was lost, a rank that panicked.
            (true, 137, true),
            (true, 76, true),
            (true, 101, true),
            (false, 137, false),
            (false, 76, false),
        ] {
            assert_eq!(ended(given, saves, code), (is_queued, Some(code)), "{code}, {saves}");
        }
        assert_eq!(ended("--steps 3", true, 137), (false, Some(137)));
    }
}
