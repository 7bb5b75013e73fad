"""The health check of one node, and its callers: Slurm, Node Health Check (NHC) and node-problem-detector."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
FINE = "ok      mpirun: found\nok      UDP port 4791: free\nlimited RDMA devices: no 'device'\n"
MISSING = "missing mpirun: pip install mpich\nok      UDP port 4791: free\nlimited RDMA devices: no 'device'\n"
LONG = f"missing mpirun: {'x' * 200}\n"


@dataclass(frozen=True)
class Node:
    """A folder with a stub of genie, of scontrol and of the configuration."""

    folder: Path

    def doctor(self, told: str, code: int = 0) -> None:
        """Let `genie doctor` print this, and end with this code."""
        self._program("genie", f'[ "$*" = doctor ] || exit 9\ncat <<"TOLD"\n{told}TOLD\nexit {code}')

    def scontrol(self, state: str, code: int = 0) -> None:
        """Let the controller show this state of the node. It notes other commands."""
        shown = f'echo "NodeName=n1 State={state} Reason=x"'
        noted = f'for word; do echo "$word"; done >> {self.folder}/drained; echo refused >&2; exit {code}'
        self._program("scontrol", f'if [ "$2" = show ]; then {shown}; else {noted}; fi')

    def configure(self, *lines: str) -> None:
        """Write these lines to the configuration, behind the paths of the stubs."""
        paths = (f"GENIE={self.folder}/genie", f"GENIE_SCONTROL={self.folder}/scontrol")
        (self.folder / "conf").write_text("\n".join([*paths, *lines]) + "\n")

    def run(self, *words: str | Path, **environment: str) -> tuple[int, str]:
        """Return the exit code and the output of a command without a search path."""
        variables = {"GENIE_CONF": f"{self.folder}/conf", "SLURMD_NODENAME": "n1", **environment}
        done = subprocess.run(
            words, cwd=self.folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout

    @property
    def drained(self) -> list[str]:
        """The words of the command that drained the node."""
        path = self.folder / "drained"
        return path.read_text().splitlines() if path.exists() else []

    def _program(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (self.folder / name).chmod(0o755)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    built = Node(tmp_path)
    built.doctor(FINE)
    built.scontrol("IDLE")
    built.configure()
    return built


# -- Slurm ------------------------------------------------------------------------------------------------------------

CHECK = HOSTS / "health-check.sh"


def test_a_healthy_node(node: Node) -> None:
    assert node.run(CHECK) == (0, "genie: healthy: 3 lines of the doctor, none missing\n")


@pytest.mark.parametrize("required", ["mpirun", "mpirun, UDP port 4791", " UDP port 4791 ,", ""])
def test_a_node_whose_required_lines_are_ok_is_healthy(node: Node, required: str) -> None:
    node.configure(f"GENIE_REQUIRE='{required}'")
    assert node.run(CHECK)[0] == 0


def test_a_node_on_which_something_is_missing_is_unhealthy(node: Node) -> None:
    node.doctor(MISSING, 3)
    node.configure("GENIE_REQUIRE='RDMA devices, mpirun'")
    assert node.run(CHECK) == (
        1,
        "genie: mpirun is missing: pip install mpich; RDMA devices is limited: no 'device'\n",
    )
    assert node.run(CHECK, "UDP port 4791") == (1, "genie: mpirun is missing: pip install mpich\n")


def test_arguments_replace_the_required_lines(node: Node) -> None:
    node.configure("GENIE_REQUIRE='RDMA devices'")
    assert node.run(CHECK)[0] == 1
    assert node.run(CHECK, "mpirun", "UDP port 4791")[0] == 0
    assert node.run(CHECK, "RDMA devices") == (1, "genie: RDMA devices is limited: no 'device'\n")


def test_a_check_that_cannot_run_says_why(node: Node) -> None:
    node.doctor("genie: this is a fault of Genie\n", 3)
    assert node.run(CHECK) == (
        3,
        f"genie: {node.folder}/genie doctor reported nothing: genie: this is a fault of Genie\n",
    )
    node.doctor(FINE, 3)
    assert node.run(CHECK)[0] == 3
    node.doctor("genie: No such command\n", 2)
    assert node.run(CHECK) == (3, f"genie: {node.folder}/genie doctor ended with exit code 2: genie: No such command\n")
    node.doctor(FINE)
    code, told = node.run(CHECK, "RDMA device")
    assert (code, "has no line 'RDMA device': " in told) == (3, True)
    node.configure("GENIE=/nonexistent/genie")
    assert node.run(CHECK) == (
        3,
        f"genie: /nonexistent/genie is not a command: set GENIE in {node.folder}/conf\n",
    )


def test_a_check_that_takes_too_long_could_not_run(node: Node) -> None:
    node.configure("GENIE_LIMIT_S=0.2")
    (node.folder / "genie").write_text("#!/bin/bash\nexec sleep 600\n")
    assert node.run(CHECK) == (3, f"genie: {node.folder}/genie doctor took more than 0.2 s\n")


def test_files_that_a_fault_leaves_are_removed(node: Node) -> None:
    (node.folder / "genie").write_text(f"#!/bin/bash\ntouch genie-fault.txt; pwd > {node.folder}/where\nexit 3\n")
    assert node.run(CHECK)[0] == 3
    where = Path((node.folder / "where").read_text().strip())
    assert where != node.folder
    assert not where.exists()


def test_a_log_takes_the_place_of_the_output(node: Node) -> None:
    log = node.folder / "log"
    node.configure(f"GENIE_LOG={log}")
    assert node.run(CHECK) == (0, "")
    node.doctor(MISSING, 3)
    assert node.run(CHECK) == (1, "")
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == [
        "genie: healthy: 3 lines of the doctor, none missing",
        "genie: mpirun is missing: pip install mpich",
    ]
    assert node.run(CHECK, "--report")[1] == "genie: mpirun is missing: pip install mpich\n"
    node.configure("GENIE_LOG=/nonexistent/log")
    assert node.run(CHECK)[0] == 1, "a log that cannot be written changes nothing"


@pytest.mark.parametrize(
    ("told", "code", "drain", "state", "is_drained"),
    [
        (MISSING, 3, "yes", "IDLE", True),
        (MISSING, 3, "yes", "IDLE+DRAIN", False),
        (MISSING, 3, "yes", "MIXED+DRAIN*", False),
        (MISSING, 3, "no", "IDLE", False),
        (MISSING, 3, "", "IDLE", False),
        (FINE, 0, "yes", "IDLE", False),
        ("a fault\n", 3, "yes", "IDLE", False),
    ],
)
def test_a_node_drains_where_it_is_unhealthy_and_told_to(
    node: Node, told: str, code: int, drain: str, state: str, is_drained: bool
) -> None:
    node.doctor(told, code)
    node.scontrol(state)
    node.configure(f"GENIE_DRAIN={drain}")
    node.run(CHECK, "--report")
    assert node.drained == []
    node.run(CHECK)
    reason = "Reason=genie: mpirun is missing: pip install mpich"
    assert node.drained == (["update", "NodeName=n1", "State=DRAIN", reason] if is_drained else [])


def test_a_node_that_cannot_be_drained_is_unhealthy_all_the_same(node: Node) -> None:
    node.doctor(MISSING, 3)
    node.scontrol("IDLE", 1)
    node.configure("GENIE_DRAIN=yes")
    code, told = node.run(CHECK)
    assert code == 1
    assert told.endswith("; the node could not be drained: refused\n")


# -- Node Health Check ------------------------------------------------------------------------------------------------

# NHC's own functions, as far as a check uses them. NHC evaluates a message between single quotes.
NHC = """
CHECK_DIED=0
die() { CHECK_DIED=1; local code=$1; shift; eval "echo 'die $code:' '$*'"; [[ $NHC_CHECK_ALL == 1 ]] || exit "$code"; }
dbg() { [[ $DEBUG != 1 ]] || echo "dbg: $*"; }
set -f
"""


def nhc(node: Node, *checks: str, **environment: str) -> tuple[int, str]:
    """Run lines of nhc.conf after NHC has read genie.nhc."""
    script = node.folder / "nhc"
    script.write_text("\n".join([NHC, f". {HOSTS}/genie.nhc", *(f"{check} || exit $?" for check in checks)]) + "\n")
    return node.run("/bin/bash", script, GENIE_HEALTH_CHECK=str(CHECK), **environment)


def test_nhc_passes_a_healthy_node(node: Node) -> None:
    assert nhc(node, "check_genie_doctor", 'check_genie_ok mpirun "UDP port 4791"') == (0, "")
    told = nhc(node, "check_genie_doctor", DEBUG="1")[1]
    assert told == "dbg: check_genie_doctor:  genie: healthy: 3 lines of the doctor, none missing\n"


def test_nhc_fails_an_unhealthy_node_and_does_not_drain_it(node: Node) -> None:
    node.doctor(MISSING, 3)
    node.configure("GENIE_DRAIN=yes", f"GENIE_LOG={node.folder}/log")
    told = "die 1: check_genie_doctor:  genie: mpirun is missing: pip install mpich\n"
    assert nhc(node, "check_genie_doctor") == (1, told)
    assert nhc(node, "check_genie_doctor", NHC_CHECK_ALL="1") == (1, told)
    assert node.drained == []


def test_nhc_fails_a_node_whose_line_is_not_ok(node: Node) -> None:
    told = "die 1: check_genie_ok:  genie: RDMA devices is limited: no device\n"
    assert nhc(node, 'check_genie_ok mpirun "RDMA devices"') == (1, told)


def test_nhc_fails_a_node_whose_check_cannot_run(node: Node) -> None:
    node.configure("GENIE=/nonexistent/genie")
    code, told = nhc(node, "check_genie_doctor")
    assert (code, told.startswith("die 3: check_genie_doctor:  genie: /nonexistent/genie is not")) == (3, True)
    assert nhc(node, "check_genie_ok") == (1, "die 1: check_genie_ok:  give names of lines of genie doctor\n")


# -- node-problem-detector --------------------------------------------------------------------------------------------

PLUGIN = HOSTS / "kubernetes" / "node-problem-detector.sh"


@pytest.mark.parametrize(
    ("told", "code", "expected"), [(FINE, 0, 0), (MISSING, 3, 1), (LONG, 3, 1), (FINE, 2, 3), ("nothing\n", 3, 3)]
)
def test_the_plugin_reports_in_one_short_line(node: Node, told: str, code: int, expected: int) -> None:
    node.doctor(told, code)
    node.configure("GENIE_DRAIN=yes", f"GENIE_LOG={node.folder}/log")
    ended, printed = node.run(PLUGIN, GENIE_HEALTH_CHECK=str(CHECK))
    assert ended == expected
    assert printed.startswith("genie: ")
    assert printed.count("\n") == 1
    assert len(printed.rstrip("\n")) < 80
    assert node.drained == []


def test_the_plugin_requires_its_arguments(node: Node) -> None:
    assert node.run(PLUGIN, "mpirun", GENIE_HEALTH_CHECK=str(CHECK))[0] == 0
    told = "genie: RDMA devices is limited: no 'device'\n"
    assert node.run(PLUGIN, "RDMA devices", GENIE_HEALTH_CHECK=str(CHECK)) == (1, told)


@pytest.mark.parametrize("root", ["", "/nonexistent"])
def test_the_plugin_knows_nothing_without_its_check(node: Node, root: str) -> None:
    told = node.run(PLUGIN, GENIE_HEALTH_CHECK="/none/check", GENIE_ROOT=root)
    assert told == (3, f"genie: cannot execute {root}/none/check\n")


def test_the_plugin_runs_the_check_of_the_node_below_its_root(node: Node) -> None:
    """A stub of chroot, which needs root, stands first on the search path."""
    (node.folder / "check").write_text("#!/bin/bash\nexit 7\n")
    (node.folder / "check").chmod(0o755)
    (node.folder / "chroot").write_text('#!/bin/bash\necho "chroot $*"\n')
    (node.folder / "chroot").chmod(0o755)
    path = f"{node.folder}:/usr/bin:/bin"
    told = node.run(PLUGIN, "mpirun", GENIE_HEALTH_CHECK="/check", GENIE_ROOT=str(node.folder), PATH=path)
    assert told == (0, f"chroot {node.folder} /check --report mpirun"[:79] + "\n")
