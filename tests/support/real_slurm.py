"""A Slurm cluster of two nodes on this machine: real munged, slurmctld and slurmd, in a folder of their own.

By default the nodes have loopback addresses as names, so that they need no name service. Everything ends with the
context.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

NODES = ("127.77.0.1", "127.77.0.2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
CONF = """
ClusterName=genie
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldPort={port}
KillWait=5
MpiDefault=none
{more}
NodeName={one} NodeHostname=localhost NodeAddr={one} Port={port_one} CPUs=8
NodeName={two} NodeHostname=localhost NodeAddr={two} Port={port_two} CPUs=8
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """The cluster's commands."""

    def __init__(self, folder: Path, nodes: Sequence[str], inside: Sequence[str]) -> None:
        self.folder, self.nodes, self.inside = folder, nodes, inside
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *words: str) -> str:
        """Run one of Slurm's commands; return its output."""
        return self._output(words, {})

    def submit(self, *words: str, environment: dict[str, str] | None = None) -> int:
        """Submit a batch job; return its number."""
        return int(self._output(("sbatch", "--parsable", *words), environment or {}).split(";")[0])

    def _output(self, words: Sequence[str], environment: dict[str, str]) -> str:
        done = subprocess.run(
            [*self.inside, *words], env=self.environment | environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def job(self, number: int) -> dict[str, str]:
        """The fields of a job."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.call("scontrol", "show", "job", str(number))))

    def until(self, number: int, states: Sequence[str], limit_s: float = 120.0) -> dict[str, str]:
        """Wait until a job is in one of these states; return its fields."""
        deadline = time.monotonic() + limit_s
        while (found := self.job(number))["JobState"] not in states:
            if time.monotonic() > deadline:
                raise AssertionError(f"job {number} is {found['JobState']}: {self.logs()}")
            time.sleep(0.2)
        return found

    def logs(self) -> str:
        """The ends of all logs."""
        paths = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in paths)


@contextmanager
def cluster(
    folder: Path, more: str = "", port: int = 16817, nodes: Sequence[str] = NODES, inside: Sequence[str] = ()
) -> Iterator[Slurm]:
    """Yield a running cluster.

    `more`: lines of slurm.conf. `port`: the controller's; the nodes have the next two. `nodes`: the names of two nodes.
    `inside`: words before each command, which take it into a namespace.
    """
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (folder / "state").mkdir()
    one, two = nodes
    text = CONF.format(folder=folder, more=more, one=one, two=two, port=port, port_one=port + 1, port_two=port + 2)
    (folder / "slurm.conf").write_text(text)
    slurm = Slurm(folder, nodes, inside)
    with ExitStack() as stack:

        def start(*words: str) -> None:
            """Start a program in the foreground, and end it with the context."""
            log = stack.enter_context((folder / f"{Path(words[0]).name}-{len(words)}.out").open("ab"))
            running = subprocess.Popen(
                [*inside, *words], env=slurm.environment, stdout=log, stderr=log, start_new_session=True
            )
            stack.callback(_end, running)

        paths = {name: str(folder / f"munge.{name}") for name in ("socket", "log", "seed", "pid")}
        start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={paths['socket']}",
            f"--log-file={paths['log']}", f"--seed-file={paths['seed']}", f"--pid-file={paths['pid']}",
        )  # fmt: skip
        _wait(lambda: Path(paths["socket"]).exists(), slurm)
        start("slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        for node in nodes:
            start("slurmd", "-D", "-f", str(folder / "slurm.conf"), "-N", node)
        _wait(lambda: _are_idle(slurm), slurm)
        try:
            yield slurm
        finally:  # a job outlives the daemons of its nodes
            with suppress(AssertionError):
                slurm.call("scancel", "--user=root", "--full")
                _wait(lambda: _are_idle(slurm), slurm)


def _are_idle(slurm: Slurm) -> bool:
    with suppress(AssertionError):
        states = re.findall(r"State=(\S+)", slurm.call("scontrol", "show", "nodes"))
        return states == ["IDLE"] * len(slurm.nodes)
    return False


def _wait(is_true: Callable[[], bool], slurm: Slurm, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"the cluster does not start: {slurm.logs()}")
        time.sleep(0.2)


def _end(running: subprocess.Popen[bytes]) -> None:
    running.terminate()
    try:
        running.wait(20)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
