#!/bin/bash
# Plugin of node-problem-detector: 0 the node is healthy, 1 it has a problem, 3 the state is unknown.
#
#   node-problem-detector.sh "RDMA devices"    required lines of genie doctor, from "args" of node-problem-detector.json
#
# It prints one line of at most 79 characters. It reads two variables of node-problem-detector's environment:
#   GENIE_HEALTH_CHECK=/opt/genie/hosts/health-check.sh    the check, which reads /etc/genie/health-check.conf
#   GENIE_ROOT=/host    the node's file system, where node-problem-detector runs in a privileged container
set -uo pipefail
export PATH=${PATH:+$PATH:}/usr/sbin:/usr/bin:/sbin:/bin

root=${GENIE_ROOT:-}
check=${GENIE_HEALTH_CHECK:-/opt/genie/hosts/health-check.sh}
# end CODE TEXT: the line, then the exit.
end() {
  echo "${2:0:79}"
  exit "$1"
}

[ -x "$root$check" ] || end 3 "genie: cannot execute $root$check"
run=("$check" --report "$@")
[ -z "$root" ] || run=(chroot "$root" "${run[@]}")
code=0
told=$("${run[@]}" 2>&1) || code=$?
told=${told##*$'\n'}
case $code in
  0 | 1) end "$code" "$told" ;;
  *) end 3 "$told" ;;
esac
