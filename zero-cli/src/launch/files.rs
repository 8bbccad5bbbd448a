//! Files: a job as Slurm and Kubernetes take it. Each is complete, and says in comments what a person may want to change.

use std::path::Path;

use super::Job;
use super::mpirun::shown;

/// A script for sbatch. A job that was asked to end, and has left a checkpoint, queues again and goes on from there.
pub fn slurm(job: &Job, binary: &Path) -> String {
    let Job { spec, mesh, .. } = job;
    let (nodes, each) = (mesh.nodes, mesh.ranks_per_node());
    let line = line(job, &binary.display().to_string());
    let resume = resumes(&job.arguments);
    format!(
        "#!/usr/bin/env bash
#SBATCH --job-name=zero-{spec}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={each}
#SBATCH --distribution=block:block
#SBATCH --exclusive
# A minute before the time is over, ranks are told to leave a checkpoint, where there is --checkpoint.
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append

# The binary must be reached under this path on all nodes, and an MPI too. With MPICH it is --mpi=pmi2.
# A rank that fails ends all.
srun --mpi=pmix --kill-on-bad-exit=1 --distribution=block:block \\
  {line}{resume}
code=$?

# It was asked to end and has left a checkpoint: it goes on from there.
if [ \"$code\" = 75 ]; then
  scontrol requeue \"$SLURM_JOB_ID\"
fi
exit \"$code\"
"
    )
}

/// What is added where Slurm has queued the job again: a folder that has checkpoints is refused without it.
fn resumes(arguments: &[String]) -> &'static str {
    let has = |option: &str| arguments.iter().any(|word| word.split('=').next() == Some(option));
    if has("--checkpoint") && !has("--resume") { " ${SLURM_RESTART_COUNT:+--resume}" } else { "" }
}

/// The binary with its arguments.
fn line(job: &Job, binary: &str) -> String {
    let mut command = std::process::Command::new(binary);
    command.args(&job.arguments);
    shown(&command)
}

/// A runtime and a job of Kubeflow Trainer (v2, `trainer.kubeflow.org/v1alpha1`), whose MPI policy gives the hosts to mpirun.
pub fn kubernetes(job: &Job, image: &str) -> String {
    let Job { spec, mesh, arguments } = job;
    let name = kubernetes_name(spec);
    let (nodes, each, ranks) = (mesh.nodes, mesh.ranks_per_node(), mesh.ranks());
    let list: String = arguments.iter().map(|word| format!("        - {}\n", json(word))).collect();
    let image = json(image);
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
              template:
                spec:
                  terminationGracePeriodSeconds: 120
                  containers:
                    - name: node
                      image: {image}
                      securityContext:
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
              template:
                spec:
                  terminationGracePeriodSeconds: 120
                  containers:
                    - name: node
                      image: {image}
                      command: [/usr/sbin/sshd, -De, -f, /home/mpiuser/.sshd_config]
                      readinessProbe:
                        tcpSocket:
                          port: 2222
                        initialDelaySeconds: 5
                      volumeMounts: *memory
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
        - /usr/local/bin/zero
{list}"
    )
}

/// Letters of lower case, digits and dashes, as names of Kubernetes have them.
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

    fn job() -> Job<'static> {
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(8) };
        Job { spec: "My_hybrid", mesh, arguments: vec!["--data".to_owned(), "my text: 1".to_owned()] }
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

    /// What the tests of clusters hand to a Slurm.
    #[test]
    fn slurm_is_given_the_script_that_it_was_tried_with() {
        let words = "--data /shared/text --checkpoint /shared/run --steps 100000000 --sample 0 --held-out 0";
        let mesh = Mesh { nodes: 2, ..Mesh::of_zero(4) };
        let job = Job { spec: "hosts", mesh, arguments: words.split(' ').map(str::to_owned).collect() };
        let tried = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cluster/job.sh");
        assert_eq!(slurm(&job, Path::new("/shared/hosts")), std::fs::read_to_string(tried).unwrap());
    }

    #[test]
    fn a_job_of_slurm_that_queues_again_goes_on() {
        for (given, is_added) in [
            ("--checkpoint runs/a", true),
            ("--checkpoint=runs/a --every 10m", true),
            ("--checkpoint runs/a --resume", false),
            ("--checkpoint runs/a --resume=runs/b", false),
            ("--steps 3", false),
        ] {
            let job = Job { arguments: given.split(' ').map(str::to_owned).collect(), ..job() };
            let script = slurm(&job, Path::new("/shared/zero"));
            let line =
                format!("  /shared/zero {given}{}", if is_added { " ${SLURM_RESTART_COUNT:+--resume}" } else { "" });
            assert!(script.lines().any(|found| found == line), "{line}: {script}");
        }
    }

    #[test]
    fn kubernetes_gets_two_documents_of_yaml() {
        use saphyr_parser::{Event, Parser};

        let yaml = kubernetes(&job(), "registry/zero:1");
        let events: Vec<Event> = Parser::new_from_str(&yaml).map(|event| event.expect("YAML").0).collect();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::DocumentStart(_))).count(), 2);
        let has = |word: &str| events.iter().any(|event| matches!(event, Event::Scalar(text, ..) if text == word));
        for word in ["zero-my-hybrid", "my text: 1", "8", "OpenMPI", "TrainJob", "TrainingRuntime"] {
            assert!(has(word), "{word}: {yaml}");
        }
    }
}
