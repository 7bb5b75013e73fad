#!/bin/bash
# genie check over the nodes of a Slurm job, as a gate: 0 lets the job start.
#
#   bash hosts/slurm-check.sh --rate 25Gb/s || exit 1           in a batch script, before the job
#   PrologSlurmctld=/opt/genie/hosts/slurm-check.sh             in slurm.conf: for every job, once its nodes are known
#
# A prolog of the controller gets few variables, no options and no working folder. It reads /etc/genie/slurm-check.conf,
# a file of the shell, which may set:
#   GENIE=/opt/genie/bin/genie         the command (genie, as the PATH has it)
#   GENIE_OPTIONS="--rate 25Gb/s"      options of genie check, without quotes inside
#   GENIE_RUNS=/shared/genie           a folder that all nodes see (runs); results are in GENIE_RUNS/check-JOB*
#   GENIE_LIMIT_S=120                  seconds for the check; then the job does not start
#   GENIE_OUT=FOLDER                   in place of GENIE_RUNS/check-JOB
#   GENIE_DOMAIN=-ib0                  looks up gpu01-ib0 for gpu01, where the network under test has names of its own
# The output of a prolog goes to check-JOB.log there.
set -euo pipefail

conf=${GENIE_CONF:-/etc/genie/slurm-check.conf}
[ ! -r "$conf" ] || . "$conf"
if [ -z "${SLURM_JOB_ID:-}" ] || [ -z "${SLURM_JOB_NODELIST:-}" ]; then
  echo "slurm-check.sh: SLURM_JOB_NODELIST names no nodes: run this script in a Slurm job, or as PrologSlurmctld" >&2
  exit 3
fi
out=${GENIE_OUT:-${GENIE_RUNS:-runs}/check-$SLURM_JOB_ID}
mkdir -p "$(dirname "$out")"
hosts=$out.hosts.toml  # beside the folder, which genie replaces
case ${SLURM_SCRIPT_CONTEXT:-} in prolog*) exec > "$out.log" 2>&1 ;; esac

if ! nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || [ -z "$nodes" ]; then
  echo "slurm-check.sh: scontrol does not name the nodes of job $SLURM_JOB_ID: is it on the PATH of the prolog?" >&2
  exit 3
fi
rank=0
: > "$hosts"
for node in $nodes; do
  address=$(getent ahostsv4 "$node${GENIE_DOMAIN:-}" | awk 'NR == 1 { print $1 }') || true
  if [ -z "$address" ]; then
    echo "slurm-check.sh: no IPv4 address for $node${GENIE_DOMAIN:-}: set GENIE_DOMAIN or add it to the name service" >&2
    exit 3
  fi
  printf '[[host]]\nname = "%s"\nranks = %d\naddress = "%s"\n\n' "$node" "$rank" "$address" >> "$hosts"
  rank=$((rank + 1))
done
[ "$rank" -gt 1 ] || exit 0
code=0
# shellcheck disable=SC2086  # GENIE_OPTIONS holds several words
timeout --kill-after=10 "${GENIE_LIMIT_S:-120}" \
  "${GENIE:-genie}" check --hosts "$hosts" --out "$out" --json "$out.json" ${GENIE_OPTIONS:-} "$@" || code=$?
if [ "$code" = 124 ]; then
  echo "slurm-check.sh: the check took more than ${GENIE_LIMIT_S:-120} s" >&2
  exit 3
fi
exit "$code"
