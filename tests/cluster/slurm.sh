#!/usr/bin/env bash
# Makes a Slurm cluster of hosts that hosts.sh has made: each is a node, and the first has the controller as well.
#
#   slurm.sh up FOLDER             starts it; FOLDER is that of `hosts.sh up`
#   slurm.sh run FOLDER CMD...     runs a command on the first host: srun, sbatch, scontrol
#   slurm.sh down FOLDER           ends it and all else that runs on these hosts; the hosts stay
#   slurm.sh can                   whether this machine has what is needed
#
# All that it writes lies in FOLDER/slurm. It uses Slurm's default ports, which are free on hosts with networks of their own.
set -euo pipefail

hosts=$(dirname "$(realpath "$0")")/hosts.sh
# Longer than Slurm ever needs to start on a machine that is busy.
patience=60

names() { cat "$1/names"; }

# Starts a service on a host, which writes to a log.
start() {
  local folder=$1 host=$2
  shift 2
  setsid "$hosts" on "$folder" "$host" "exec $*" < /dev/null > "$folder/slurm/$host-${1##*/}.log" 2>&1 &
}

up() {
  local folder=$1 state=$1/slurm host first
  first=$(head -n 1 "$folder/names")
  mkdir "$state"
  # The programs of this cluster know one another by this key. One munged answers for all hosts, since they all see its socket,
  # which is a file.
  head -c 1024 /dev/urandom > "$state/key"
  chmod 600 "$state/key"
  {
    echo "ClusterName=$first"
    echo "SlurmctldHost=$first(10.99.0.1)"
    echo "SlurmUser=root"
    echo "AuthType=auth/munge"
    # A job that is requeued waits this long before it starts; Slurm's default of two minutes would make a test long.
    echo "AuthInfo=socket=$state/munge.socket,cred_expire=10"
    echo "CredType=cred/munge"
    echo "StateSaveLocation=$state/controller"
    echo "SlurmdSpoolDir=$state/node-%n"
    # The folders of a job have the same name on all nodes, which share one /tmp here.
    echo "TmpFS=$state/tmp-%n"
    echo "SlurmctldPidFile=$state/controller.pid"
    echo "SlurmdPidFile=$state/node-%n.pid"
    # No control groups: those of this machine are not for Slurm to change.
    echo "ProctrackType=proctrack/linuxproc"
    echo "TaskPlugin=task/none"
    echo "JobAcctGatherType=jobacct_gather/none"
    echo "SelectType=select/cons_tres"
    echo "SwitchType=switch/none"
    echo "SchedulerParameters=sched_interval=1"
    echo "ReturnToService=2"
    # Nodes have as many processors as they are told, however many this machine has: ranks of tests share them.
    echo "SlurmdParameters=config_overrides"
    # A rank that is told to end has this many seconds for it.
    echo "KillWait=5"
    local number=0
    for host in $(names "$folder"); do
      number=$((number + 1))
      echo "NodeName=$host NodeAddr=10.99.0.$number CPUs=4 State=UNKNOWN"
      mkdir "$state/node-$host" "$state/tmp-$host"
    done
    echo "PartitionName=all Nodes=$(names "$folder" | paste -sd ,) Default=YES MaxTime=INFINITE State=UP"
  } > "$state/slurm.conf"
  echo "CgroupPlugin=cgroup/v1" > "$state/cgroup.conf"
  mkdir "$state/controller"

  start "$folder" "$first" /usr/sbin/munged --foreground --force --num-threads=2 --key-file="$state/key" \
    --socket="$state/munge.socket" --pid-file="$state/munge.pid" --log-file="$state/munge.log" --seed-file="$state/munge.seed"
  wait_for "$folder" "munged" test -S "$state/munge.socket"
  start "$folder" "$first" /usr/sbin/slurmctld -D -f "$state/slurm.conf"
  for host in $(names "$folder"); do
    start "$folder" "$host" /usr/sbin/slurmd -D -f "$state/slurm.conf"
  done
  wait_for "$folder" "a node" all_idle "$folder"
}

# Whether all nodes are idle.
all_idle() {
  [ "$(run "$1" timeout 10 sinfo --noheader --Node --format=%T 2> /dev/null | sort -u)" = idle ]
}

# Waits until a command succeeds; prints the logs if it never does.
wait_for() {
  local folder=$1 what=$2 end=$((SECONDS + patience))
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "$what does not start" >&2
      tail -n 20 "$folder"/slurm/*.log >&2
      return 1
    fi
    sleep 0.1
  done
}

run() {
  local folder=$1
  shift
  "$hosts" on "$folder" "$(head -n 1 "$folder/names")" "export SLURM_CONF='$folder/slurm/slurm.conf'; $*"
}

down() {
  local folder=$1 host pid
  [ -e "$folder/slurm" ] || return 0
  for host in $(names "$folder"); do
    for pid in $(ip netns pids "$host"); do
      # Two processes are the host itself.
      if [ "$pid" != "$(cat "$folder/$host.pid")" ] && [ "$pid" != "$(cat "$folder/$host.parent")" ]; then
        kill -9 "$pid" 2> /dev/null || true
      fi
    done
  done
  rm -rf "$folder/slurm"
}

can() {
  local needed
  for needed in /usr/sbin/munged /usr/sbin/slurmctld /usr/sbin/slurmd srun sbatch scontrol; do
    command -v "$needed" > /dev/null || { echo "$needed is not installed" >&2; return 1; }
  done
  # Debian's Slurm opens PMIx by the name that only its development package installs.
  compgen -G "/usr/lib/*/pmix2/lib/libpmix.so" > /dev/null || { echo "libpmix-dev is not installed" >&2; return 1; }
}

command=$1
shift
"$command" "$@"
