#!/bin/bash
# genie check over the nodes of a Slurm job, as a gate: 0 lets the job start.
#
#   bash hosts/slurm-check.sh --rate 25Gb/s || exit 1           in a batch script, before the job
#   PrologSlurmctld=.../hosts/slurm-check.sh                    in slurm.conf: for every job, once its nodes are known
#
# GENIE_DOMAIN=-ib0 looks up gpu01-ib0 for gpu01, where the network under test has names of its own.
# GENIE_OUT is a folder that all nodes see (runs/check-JOB).
set -euo pipefail

out=${GENIE_OUT:-runs/check-$SLURM_JOB_ID}
mkdir -p "$out"
hosts=$out/hosts.toml

rank=0
: > "$hosts"
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  address=$(getent ahostsv4 "$node${GENIE_DOMAIN:-}" | awk 'NR == 1 { print $1 }') || true
  if [ -z "$address" ]; then
    echo "slurm-check.sh: no IPv4 address for $node${GENIE_DOMAIN:-}: set GENIE_DOMAIN or add it to the name service" >&2
    exit 3
  fi
  printf '[[host]]\nname = "%s"\nranks = %d\naddress = "%s"\n\n' "$node" "$rank" "$address" >> "$hosts"
  rank=$((rank + 1))
done
[ "$rank" -gt 1 ] || exit 0
exec genie check --hosts "$hosts" --out "$out" --json "$out/check.json" "$@"
