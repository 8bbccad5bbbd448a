//! Files: a job as Slurm and Kubernetes take it. Each is complete, and says in comments what a person may want to change.

use std::path::Path;

use zero_plan::DeviceKind;
use zero_runtime::launch::RESTART;

use super::HostedJob;
use super::mpirun::{quoted, shown};

/// A script for sbatch. A job with checkpoints queues again, to go on from the newest, after it was asked to end or has
/// lost a rank or a node.
pub fn slurm(job: &HostedJob, binary: &Path) -> String {
    let HostedJob { spec, mesh, device, .. } = job;
    let (nodes, each) = (mesh.nodes, mesh.ranks_per_node());
    let gpus = match device {
        DeviceKind::Cpu => String::new(),
        DeviceKind::Cuda => format!("#SBATCH --gpus-per-node={each}\n"),
    };
    let line = line(job, &binary.display().to_string());
    let (before, after) = folder(&job.arguments).map_or_else(Default::default, comes_back);
    format!(
        "#!/usr/bin/env bash
#SBATCH --job-name=zero-{spec}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={each}
{gpus}#SBATCH --distribution=block:block
#SBATCH --exclusive
# A minute before the time is over, ranks are told to leave a checkpoint, where there is --checkpoint.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# The binary must be reached under this path on all nodes, and an MPI too. With MPICH it is --mpi=pmi2.
{before}# A rank that fails ends all.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block \\
  {line}
code=$?
{after}exit \"$code\"
"
    )
}

/// The folder of checkpoints that a run is given.
fn folder(arguments: &[String]) -> Option<&str> {
    let mut words = arguments.iter();
    let word = words.find(|word| word.split('=').next() == Some(CHECKPOINT))?;
    word.strip_prefix(CHECKPOINT)?.strip_prefix('=').or_else(|| words.next().map(String::as_str))
}

const CHECKPOINT: &str = "--checkpoint";

/// What a script does before and after its ranks, so that the job resumes from checkpoints in a folder.
fn comes_back(folder: &str) -> (String, String) {
    let folder = quoted(folder);
    let before = format!(
        "# How often it has queued again: ranks then go on from their newest checkpoint.
export {RESTART}=${{SLURM_RESTART_COUNT:-0}}
newest() {{ ls -d {folder}/step-* 2> /dev/null | tail -n 1; }}
before=$(newest)

"
    );
    let after = "
# It goes on from its newest checkpoint where it was asked to end, or has lost a rank or a node; after such a loss only if it has come
# further than to where it began. After any other end, which it has told, another start would end like it.
case \"$code\" in
  0 | 2 | 74) ;;
  75) scontrol requeue \"$SLURM_JOB_ID\" ;;
  *) [ \"$(newest)\" = \"$before\" ] || scontrol requeue \"$SLURM_JOB_ID\" ;;
esac
";
    (before, after.to_owned())
}

/// The binary with its arguments.
fn line(job: &HostedJob, binary: &str) -> String {
    let mut command = std::process::Command::new(binary);
    command.args(&job.arguments);
    shown(&command)
}

/// A runtime and a job of Kubeflow Trainer (v2, `trainer.kubeflow.org/v1alpha1`), whose MPI policy gives the hosts to mpirun.
pub fn kubernetes(job: &HostedJob, image: &str) -> String {
    let HostedJob { spec, mesh, device, arguments } = job;
    let name = kubernetes_name(spec);
    let (nodes, each, ranks) = (mesh.nodes, mesh.ranks_per_node(), mesh.ranks());
    let list: String = arguments.iter().map(|word| format!("        - {}\n", json(word))).collect();
    let image = json(image);
    let gpus = match device {
        DeviceKind::Cpu => String::new(),
        DeviceKind::Cuda => format!(
            "                      resources:
                        limits:
                          nvidia.com/gpu: {each}
"
        ),
    };
    format!(
        "# kubectl apply --server-side -f THIS_FILE
# The image starts the binary as /usr/local/bin/zero, and has Open MPI and an SSH server for the user mpiuser.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: {name}
spec:
  mlPolicy:
    numNodes: {nodes}
    mpi:
      numProcPerNode: {each}
      mpiImplementation: OpenMPI
      sshAuthMountPath: /home/mpiuser/.ssh
      runLauncherAsNode: true
  template:
    spec:
      # All ranks start anew so often, and go on from their newest checkpoint, where there is --checkpoint.
      failurePolicy:
        maxRestarts: 3
      network:
        publishNotReadyAddresses: true
      successPolicy:
        operator: All
        targetReplicatedJobs: [launcher]
      replicatedJobs:
        - name: launcher
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
              # A start of its own would not be that of all.
              backoffLimit: 0
              template:
                spec:
                  restartPolicy: Never
                  terminationGracePeriodSeconds: 120
                  containers:
                    - name: node
                      image: {image}
                      # How often all ranks were started before.
                      env:
                        - name: {RESTART}
                          valueFrom:
                            fieldRef:
                              fieldPath: metadata.annotations['jobset.sigs.k8s.io/restart-attempt']
{gpus}                      securityContext:
                        runAsUser: 1000
                      volumeMounts: &memory
                        - name: shared-memory
                          mountPath: /dev/shm
                  volumes: &volumes
                    - name: shared-memory
                      emptyDir:
                        medium: Memory
        - name: node
          template:
            spec:
              backoffLimit: 0
              template:
                spec:
                  restartPolicy: Never
                  terminationGracePeriodSeconds: 120
                  containers:
                    - name: node
                      image: {image}
                      command: [/usr/sbin/sshd, -De, -f, /home/mpiuser/.sshd_config]
                      readinessProbe:
                        tcpSocket:
                          port: 2222
                        initialDelaySeconds: 5
{gpus}                      volumeMounts: *memory
                  volumes: *volumes
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    apiGroup: trainer.kubeflow.org
    kind: TrainingRuntime
    name: {name}
  trainer:
    numNodes: {nodes}
    numProcPerNode: {each}
    command: [mpirun]
    args:
        - -n
        - \"{ranks}\"
        - --map-by
        - slot
        - --bind-to
        - none
        - -x
        - {RESTART}
        - /usr/local/bin/zero
{list}"
    )
}

/// A name that Kubernetes allows: lower-case letters, digits and dashes.
fn kubernetes_name(spec: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
    format!("zero-{}", spec.chars().map(plain).collect::<String>().trim_matches('-'))
}

/// A text as JSON has it, which YAML takes as well.
fn json(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

#[cfg(test)]
mod tests {
    use zero_plan::Mesh;

    use super::*;

    fn job() -> HostedJob<'static> {
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(8) };
        HostedJob {
            spec: "My_hybrid",
            mesh,
            device: DeviceKind::Cpu,
            arguments: vec!["--data".to_owned(), "my text: 1".to_owned()],
        }
    }

    #[test]
    fn slurm_is_told_nodes_ranks_and_that_one_failure_ends_all() {
        let script = slurm(&job(), Path::new("/shared/zero"));
        for line in ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "  /shared/zero --data 'my text: 1'"] {
            assert!(script.lines().any(|found| found == line), "{line}: {script}");
        }
        assert!(script.contains("--kill-on-bad-exit=1"));
        let bash = std::process::Command::new("bash").args(["-n", "-c", &script]).output().expect("bash");
        assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    }

    /// The script is the one that the tests of clusters submit to Slurm.
    #[test]
    fn slurm_is_given_the_script_that_it_was_tried_with() {
        let words = "--data /shared/text --checkpoint /shared/run --steps 100000000 --sample 0 --held-out 0";
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(4) };
        let device = DeviceKind::Cpu;
        let job = HostedJob { spec: "hosts", mesh, device, arguments: words.split(' ').map(str::to_owned).collect() };
        let tried = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cluster/job.sh");
        assert_eq!(slurm(&job, Path::new("/shared/hosts")), std::fs::read_to_string(tried).unwrap());
    }

    #[test]
    fn a_gpu_is_asked_for_each_rank() {
        let gpus = HostedJob { device: DeviceKind::Cuda, ..job() };
        assert!(slurm(&gpus, Path::new("/shared/zero")).lines().any(|line| line == "#SBATCH --gpus-per-node=4"));
        let asked = |yaml: &str| yaml.lines().filter(|line| line.trim() == "nvidia.com/gpu: 4").count();
        assert_eq!((asked(&kubernetes(&gpus, "zero:1")), asked(&kubernetes(&job(), "zero:1"))), (2, 0));
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

    /// Runs a script as Slurm does, with ranks that may save a checkpoint and end with an exit code. Gives whether the job queues
    /// again, and the exit code of the script.
    fn ended(given: &str, saves: bool, code: i32) -> (bool, Option<i32>) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir_all(at("my run/step-000000100")).unwrap();
        let arguments = given.split(' ').map(|word| word.replace("FOLDER", &at("my run"))).collect();
        let script = slurm(&HostedJob { arguments, ..job() }, Path::new("/shared/zero"));
        let saves = if saves { format!("mkdir '{}'", at("my run/step-000000200")) } else { "true".to_owned() };
        // Functions stand for the programs of Slurm.
        let slurm = format!(
            "srun() {{ {saves}; echo again-$ZERO_RESTART > '{}'; return {code}; }}; scontrol() {{ echo \"$@\" > '{}'; }}",
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
            // A rank that was killed, one that was lost, one that panicked.
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

    #[test]
    fn kubernetes_gets_two_documents_of_yaml() {
        use saphyr_parser::{Event, Parser};

        let yaml = kubernetes(&job(), "registry/zero:1");
        let events: Vec<Event> = Parser::new_from_str(&yaml).map(|event| event.expect("YAML").0).collect();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::DocumentStart(_))).count(), 2);
        fn scalar<'a>(event: &'a Event) -> Option<&'a str> {
            if let Event::Scalar(text, ..) = event { Some(text) } else { None }
        }
        let has = |word: &str| events.iter().filter_map(scalar).any(|text| text == word);
        for word in ["zero-my-hybrid", "my text: 1", "8", "OpenMPI", "TrainJob", "TrainingRuntime"] {
            assert!(has(word), "{word}: {yaml}");
        }
        // All ranks restart together, and learn of it from a variable, which comes from the pod and goes to all hosts.
        let follows = |words: &[&str]| {
            let scalars: Vec<&str> = events.iter().filter_map(scalar).collect();
            scalars.windows(words.len()).any(|found| found == words)
        };
        let attempt = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']";
        assert!(follows(&["failurePolicy", "maxRestarts", "3", "network"]), "{yaml}");
        assert!(follows(&["name", RESTART, "valueFrom", "fieldRef", "fieldPath", attempt]), "{yaml}");
        assert!(follows(&["-x", RESTART, "/usr/local/bin/zero"]), "{yaml}");
        let each = |words: &str| yaml.lines().filter(|line| line.trim() == words).count();
        assert_eq!((each("backoffLimit: 0"), each("restartPolicy: Never")), (2, 2), "{yaml}");
    }
}
