#!/usr/bin/env bash
# Makes "hosts" out of one machine: each has a network card, file systems, a name and shared memory of its own, on one bridge.
#
#   hosts.sh up FOLDER N [RATE]    hosts PREFIX0 to PREFIX(N-1); RATE, as 1gbit, limits their cards
#   hosts.sh on FOLDER HOST CMD... runs a command there, as FOLDER/ssh HOST CMD... does
#   hosts.sh die FOLDER HOST       ends all that runs there
#   hosts.sh down FOLDER           takes them away
#   hosts.sh can                   whether this machine permits them
#
# PREFIX is the name of FOLDER, so that several such networks live side by side.
set -euo pipefail

names() { cat "$1/names"; }

up() {
  local folder=$1 count=$2 rate=${3:-} prefix
  prefix=$(basename "$folder")
  mkdir -p "$folder"
  : > "$folder/names"
  ip netns add "$prefix-net"
  ip -n "$prefix-net" link add br0 type bridge
  ip -n "$prefix-net" link set br0 up
  # Launchers start their helpers by this.
  printf '#!/usr/bin/env bash\nwhile [[ $1 == -* ]]; do shift; done\nexec "%s" on "%s" "$@"\n' "$(realpath "$0")" "$folder" > "$folder/ssh"
  chmod +x "$folder/ssh"
  { echo "127.0.0.1 localhost"; for ((i = 0; i < count; i++)); do echo "10.99.0.$((i + 1)) $prefix$i"; done; } > "$folder/hosts"
  for ((i = 0; i < count; i++)); do
    local host=$prefix$i
    echo "$host" >> "$folder/names"
    ip netns add "$host"
    ip -n "$prefix-net" link add "p$i" type veth peer name eth0 netns "$host"
    ip -n "$prefix-net" link set "p$i" master br0 up
    ip -n "$host" addr add "10.99.0.$((i + 1))/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
    if [ -n "$rate" ]; then
      tc -n "$host" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
      tc -n "$prefix-net" qdisc add dev "p$i" root tbf rate "$rate" burst 256kb latency 50ms
    fi
    # The process that holds the host's namespaces.
    setsid ip netns exec "$host" unshare --mount --uts --ipc --fork --kill-child --propagation private \
      sh -c "mount -t tmpfs tmpfs /dev/shm; mount --bind '$folder/hosts' /etc/hosts; hostname $host; exec sleep infinity" \
      < /dev/null > /dev/null 2>&1 &
    local unshare=$! anchor=
    for _ in $(seq 200); do
      anchor=$(pgrep -P "$unshare" -x sleep || true)
      [ -n "$anchor" ] && break
      sleep 0.05
    done
    [ -n "$anchor" ] || { echo "host $host does not start" >&2; return 1; }
    echo "$anchor" > "$folder/$host.pid"
    echo "$unshare" > "$folder/$host.parent"
  done
}

on() {
  local folder=$1 host=$2
  shift 2
  # The message and the exit code of ssh.
  [ -e "$folder/$host.pid" ] || { echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255; }
  exec nsenter -t "$(cat "$folder/$host.pid")" --net --mount --uts --ipc sh -c "$*"
}

# Ends all processes of a host, as a loss of power does.
die() {
  local folder=$1 host=$2 pid
  for pid in $(ip netns pids "$host") $(cat "$folder/$host.parent"); do
    kill -9 "$pid" 2> /dev/null || true
  done
}

down() {
  local folder=$1 prefix host
  prefix=$(basename "$folder")
  [ -e "$folder/names" ] || return 0
  for host in $(names "$folder"); do
    die "$folder" "$host"
    ip netns del "$host" 2> /dev/null || true
  done
  ip netns del "$prefix-net" 2> /dev/null || true
  rm -rf "$folder"
}

can() {
  command -v nsenter > /dev/null && command -v tc > /dev/null && unshare --mount --uts --ipc --net --fork true 2> /dev/null
}

command=$1
shift
"$command" "$@"
