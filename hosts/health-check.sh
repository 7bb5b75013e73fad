#!/bin/bash
# Health of one node, as `genie doctor` sees it: 0 healthy, 1 unhealthy, 3 the check could not run.
#
#   HealthCheckProgram=/opt/genie/hosts/health-check.sh     in slurm.conf
#   HealthCheckInterval=300
#   HealthCheckNodeState=IDLE                               the check takes no time from jobs
#   bash hosts/health-check.sh "RDMA devices" SCHED_FIFO    by hand: both must be ok
#
# Slurm runs the program on all nodes at once, and kills it after 60 s. It sends nothing to other nodes.
# A line of the doctor that says missing makes the node unhealthy. So does a required line that does not say ok. A check
# that could not run never drains: a file system that is not mounted would drain the whole cluster.
# Slurm gives no options and no search path. The script reads /etc/genie/health-check.conf, a file of the shell, which
# may set:
#   GENIE=/opt/genie/bin/genie                       the command
#   GENIE_REQUIRE="RDMA devices, packet sockets"     required lines, with commas between them; arguments replace them
#   GENIE_LIMIT_S=20                                 seconds for the check
#   GENIE_LOG=/var/log/genie-health-check.log        in place of standard output, which slurmd logs after a failure
#   GENIE_DRAIN=yes                                  drains an unhealthy node; by default the script only reports it
#   GENIE_SCONTROL=/usr/bin/scontrol                 the command that drains
# The option --report, before the required lines, is for other callers than Slurm. It drains no node, and prints the line
# whatever GENIE_LOG says.
set -uo pipefail
export PATH=${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin

conf=${GENIE_CONF:-/etc/genie/health-check.conf}
# shellcheck source=/dev/null
[ ! -r "$conf" ] || . "$conf"
genie=${GENIE:-/opt/genie/bin/genie}
limit_s=${GENIE_LIMIT_S:-20}
drain=${GENIE_DRAIN:-no}
log=${GENIE_LOG:-}
if [ "${1:-}" = --report ]; then
  drain=no log=
  shift
fi
required=("$@")
[ "$#" -gt 0 ] || IFS=, read -r -a required <<< "${GENIE_REQUIRE:-}"

# end CODE TEXT: one line, then the exit.
end() {
  local line="genie: $2"
  if [ -z "$log" ] || ! echo "$(date +%FT%T%z) $line" >> "$log"; then
    echo "$line"
  fi
  exit "$1"
}

drain_node() {
  local node=${SLURMD_NODENAME:-${HOSTNAME%%.*}} scontrol=${GENIE_SCONTROL:-/usr/bin/scontrol} shown
  shown=$("$scontrol" --oneliner show node "$node") || return
  # A node that is drained keeps its reason, which may be an administrator's.
  [[ ! $shown =~ State=[^\ ]*DRAIN ]] || return 0
  "$scontrol" update NodeName="$node" State=DRAIN Reason="genie: $1"
}

command -v "$genie" > /dev/null || end 3 "$genie is not a command: set GENIE in $conf"
# A fault of genie leaves a file where it runs. A check that repeats must not gather them.
folder=$(mktemp -d) || end 3 "no temporary folder"
trap 'rm -rf "$folder"' EXIT
code=0
told=$(cd "$folder" && timeout --kill-after=5 "$limit_s" "$genie" doctor 2>&1) || code=$?
case $code in
  0 | 3) ;; # 3: something is missing
  124 | 137) end 3 "$genie doctor took more than $limit_s s" ;;
  *) end 3 "$genie doctor ended with exit code $code: ${told##*$'\n'}" ;;
esac

declare -A states=() details=()
faults=
while read -r state rest; do
  name=${rest%%: *}
  case $state in ok | limited | missing) states[$name]=$state details[$name]=${rest#*: } ;; esac
  [ "$state" != missing ] || faults+="; $name is missing: ${rest#*: }"
done <<< "$told"
[ "${#states[@]}" -gt 0 ] || end 3 "$genie doctor reported nothing: ${told##*$'\n'}"
[ "$code" = 0 ] || [ -n "$faults" ] || end 3 "$genie doctor ended with exit code $code and names nothing that is missing"
for name in "${required[@]}"; do
  name=${name#"${name%%[! ]*}"} name=${name%"${name##*[! ]}"}
  [ -n "$name" ] || continue
  case ${states[$name]:-} in
    ok | missing) ;;
    limited) faults+="; $name is limited: ${details[$name]}" ;;
    *) end 3 "$genie doctor has no line '$name': GENIE_REQUIRE takes names of its lines" ;;
  esac
done

[ -n "$faults" ] || end 0 "healthy: ${#states[@]} lines of the doctor, none missing"
faults=${faults#; }
if [ "$drain" = yes ] && ! problem=$(drain_node "$faults" 2>&1); then
  end 1 "$faults; the node could not be drained: ${problem##*$'\n'}"
fi
end 1 "$faults"
