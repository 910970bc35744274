#!/usr/bin/env bash
# Runs a command on a machine that seems to have several hosts and SLURM.
# Usage (root): tests/launchers/with_hosts.sh COUNT FOLDER COMMAND ...
#
# The hosts n1, n2, ... are namespaces of this machine: each has its own name, its own network address (10.77.0.N) on a
# common bridge, and its own disk at FOLDER/local. All hosts share the other folders. A slurmd runs on each host, and
# slurmctld runs beside the command. FOLDER/bin/on HOST COMMAND... runs a command on a host, as ssh does. SLURM's
# packages are unpacked in the cache, and only the command sees them; nothing is installed. When the command ends, all
# processes on the hosts end.
set -euo pipefail
(($# >= 3)) || { echo "usage: $0 COUNT FOLDER COMMAND ..." >&2 && exit 2; }
((EUID == 0)) || { echo "$0 makes namespaces and needs root" >&2 && exit 77; }

# Prints the folder with SLURM's files. apt checks the packages' signatures.
unpacked_slurm() {
  local packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins liblua5.1-0 munge)
  local version folder part
  version=$(apt-cache policy slurmd | awk '/Candidate/ { print $2 }')
  [[ -n $version && $version != "(none)" ]] || { echo "$0: apt has no package slurmd; run apt-get update" >&2 && exit 77; }
  folder=${FETTLE_CACHE:-${HOME:?set HOME or FETTLE_CACHE}/.cache/fettle}/slurm-$version
  if [[ ! -d $folder ]]; then
    mkdir -p "$(dirname "$folder")"
    part=$(mktemp -d "$folder.XXXXXX")
    (cd "$part" && apt-get -qq download "${packages[@]}" 2>/dev/null && for file in *.deb; do dpkg -x "$file" .; done) ||
      { rm -rf "$part" && echo "$0: the packages of SLURM cannot be fetched" >&2 && exit 77; }
    chmod 755 "$part"
    mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part"
  fi
  echo "$folder"
}

if [[ ${FETTLE_WITHIN_HOSTS:-} != 1 ]]; then
  slurm=$(unpacked_slurm)
  FETTLE_WITHIN_HOSTS=1 exec unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
    "$0" "$1" "$2" "$slurm" "${@:3}"
fi
unset FETTLE_WITHIN_HOSTS
count=$1 folder=$(mkdir -p "$2" && cd "$2" && pwd) slurm=$3
shift 3
mkdir -p "$folder"/{bin,local,slurm,tmp} 
mount -t overlay overlay -o "lowerdir=$slurm/usr:/usr" /usr

hostname head
ip link set lo up
ip link add bridge0 type bridge
ip address add 10.77.0.254/24 dev bridge0
ip link set bridge0 up
{
  echo "127.0.0.1 localhost"
  echo "10.77.0.254 head"
  for ((i = 1; i <= count; ++i)); do echo "10.77.0.$i n$i"; done
} >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts

cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=head(10.77.0.254)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/slurm/state
SlurmdSpoolDir=$folder/slurm/spool-%n
SlurmctldPidFile=$folder/slurm/slurmctld.pid
SlurmdPidFile=$folder/slurm/slurmd-%n.pid
SlurmctldLogFile=$folder/slurm/slurmctld.log
SlurmdLogFile=$folder/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
TmpFS=$folder/tmp/%n
NodeName=n[1-$count] CPUs=64 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:64 MaxTime=INFINITE State=UP
END
export SLURM_CONF=$folder/slurm.conf

cat >"$folder/bin/on" <<END
#!/usr/bin/env bash
host=\$1
shift
exec nsenter --target "\$(<"$folder/tmp/\$host.pid")" --net --uts --mount -- sh -c "cd '\$PWD' && \$*"
END
chmod +x "$folder/bin/on"
export PATH=$folder/bin:$PATH

mkdir -p "$folder/slurm/state"
slurmctld-wlm -D -c >/dev/null 2>&1 &
for ((i = 1; i <= count; ++i)); do
  mkdir -p "$folder/tmp/n$i" "$folder/slurm/spool-n$i"
  unshare --net --uts --mount sleep infinity &
  echo $! >"$folder/tmp/n$i.pid"
  while [[ $(readlink "/proc/$!/ns/net") == $(readlink /proc/self/ns/net) || $(cat "/proc/$!/comm") != sleep ]]; do
    sleep 0.02
  done
  ip link add "to-n$i" type veth peer name eth0 netns $!
  ip link set "to-n$i" master bridge0 up
  on "n$i" "hostname n$i; ip link set lo up; ip address add 10.77.0.$i/24 dev eth0; ip link set eth0 up"
  on "n$i" "mount -t tmpfs tmpfs '$folder/local'"
  on "n$i" "exec slurmd-wlm -D -N n$i -d /usr/sbin/slurmstepd-wlm" >/dev/null 2>&1 &
done
for ((tries = 0; ; ++tries)); do
  [[ $(sinfo --noheader --states=idle --format=%D 2>/dev/null) != "$count" ]] || break
  ((tries < 100)) || { echo "$0: SLURM does not start; see $folder/slurm" >&2 && exit 1; }
  sleep 0.2
done
"$@"
