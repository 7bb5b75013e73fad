#!/bin/bash
# Launcher of an MPI job on Kubernetes: writes a hosts file from the operator's hostfile, and runs genie over it.
#
#   bash launch.sh validate --collectives all_reduce --rate 200Mb/s
#   bash launch.sh check --rate 25Gb/s
#
# The MPI Operator writes a line "NAME:SLOTS" for each worker, and Trainer writes "NAME slots=SLOTS". A slot is a rank.
# The script reads these variables:
#   GENIE_OUT=FOLDER                    the run folder, on a volume that all pods see (/runs/HOSTNAME-COMMAND)
#   GENIE_INTERFACE=net1                tests the network of this interface of the workers, not that of their names
#   GENIE_HOSTFILE=/etc/mpi/hostfile    the operator's file
#   GENIE_SSH_PORT=2222                 the port of the workers' sshd
#   GENIE_WAIT_S=60                     seconds for the name service to know all workers
set -euo pipefail

out=${GENIE_OUT:-/runs/$HOSTNAME-${1:-run}}
hosts=$out.hosts.toml # beside the folder, which genie replaces
hostfile=${GENIE_HOSTFILE:-/etc/mpi/hostfile}
# The keys of a job are made for it and end with it, so there is no host key to compare.
ssh=(-p "${GENIE_SSH_PORT:-2222}" -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
  -o LogLevel=ERROR -o ConnectionAttempts=10)
export HYDRA_LAUNCHER_EXTRA_ARGS="${ssh[*]}"
# Workers connect back to mpirun. They may not know the launcher's name, so mpirun gives them its address.
interface=$(awk '$2 == "00000000" { print $1; exit }' /proc/net/route)
[ -z "$interface" ] || export HYDRA_IFACE=$interface

if [ ! -r "$hostfile" ]; then
  echo "launch.sh: $hostfile is missing: start this script as the launcher of an MPIJob or a TrainJob" >&2
  exit 3
fi
mkdir -p "$(dirname "$out")"
address_of() {
  if [ -n "${GENIE_INTERFACE:-}" ]; then
    ssh -n "${ssh[@]}" "$1" ip -4 -o address show dev "$GENIE_INTERFACE" | awk 'NR == 1 { sub("/.*", "", $4); print $4 }'
  else
    getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'
  fi
}
deadline=$((SECONDS + ${GENIE_WAIT_S:-60}))
rank=0
: > "$hosts"
while read -r name slots; do
  case $name in *:*) slots=${name##*:} name=${name%:*} ;; *) slots=${slots#slots=} ;; esac
  [ -n "$name" ] || continue
  until address=$(address_of "$name") && [ -n "$address" ]; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "launch.sh: no IPv4 address for $name${GENIE_INTERFACE:+ on $GENIE_INTERFACE}" >&2
      exit 3
    fi
    sleep 1
  done
  printf '[[host]]\nname = "%s"\nranks = "%d-%d"\naddress = "%s"\n\n' \
    "$name" "$rank" "$((rank + ${slots:-1} - 1))" "$address" >> "$hosts"
  rank=$((rank + ${slots:-1}))
done < "$hostfile"
exec genie "$@" --hosts "$hosts" --out "$out"
