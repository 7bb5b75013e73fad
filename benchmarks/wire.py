"""softroce compared with raw UDP, in one session: python benchmarks/wire.py [--over lo] [--rounds 3] [--again 0]

Two processes, each pinned to a core, over loopback and over a veth pair between two network namespaces (MTU 9000, needs
root). Raw UDP (benchmarks/udp_raw) sends datagrams as large as softroce's, with segmentation and receive offload; the
two take turns. Goodput counts payload at the receiver. The table has medians of the rounds, which need two free cores
to be meaningful, and the share of the machine that other programs used. A terminal shows the current measurement.

Exit code 1 when a target is missed, unless other programs used more than a twentieth of the machine. Other virtual
machines on the same cores are in no statistics; for CI, `--gate` sets how large a miss must be for exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import genie_core
from common.arguments import add_json, positive, whole

from genie.plan.facts import facts_of_build

HERE = Path(__file__).resolve().parent
SECONDS = 3.0  # duration of each stream
MTU_BYTES = 4096
HEADERS_BYTES = 16  # BTH and ICRC of a MIDDLE packet, which most datagrams of a 1 MiB WRITE are
UDP_RAW_PORT = 45791
ROUND_TRIPS = 20_000
ROUND_TRIP_BYTES = 64
IDLE_QUEUE_PAIRS = 1000
RKEY = 0x5EED
PATIENCE_S = 60.0
MESSAGE_BYTES, SMALL_BYTES = 1 << 20, 4096
FIRST_MESSAGES = {MESSAGE_BYTES: 512, SMALL_BYTES: 50_000}  # to learn how many take SECONDS
DEPTH = {MESSAGE_BYTES: 16, SMALL_BYTES: 128}  # messages in flight on each queue pair; 128 is perftest's
EXIT_GATE, EXIT_ENVIRONMENT = 1, 3
OTHERS_SHARE_MAX = 0.05  # of the machine; with more, results are not judged


@dataclass(frozen=True)
class Place:
    """Two addresses that reach each other, and a command prefix for each."""

    name: str
    addresses: tuple[str, str]
    prefixes: tuple[list[str], list[str]] = ([], [])


@dataclass
class Measure:
    """One line of the table. `wanted`: limit of the ratio to raw UDP, or of the value without a raw one."""

    name: str
    unit: str
    wanted: float
    least: bool  # `wanted` is a lower bound
    raw: list[float] = field(default_factory=list)
    softroce: list[float] = field(default_factory=list)

    def row(self, place: str) -> dict[str, Any]:
        raw = statistics.median(self.raw) if self.raw else None
        value = statistics.median(self.softroce)
        judged = value if raw is None else value / raw
        margin = judged / self.wanted if self.least else self.wanted / max(judged, 1e-9)
        return {
            "over": place,
            "measure": self.name,
            "unit": self.unit,
            "raw": raw,
            "softroce": value,
            "ratio": None if raw is None else judged,
            "wanted": f"{'>=' if self.least else '<='} {self.wanted:g}{'' if raw is None else ' x raw'}",
            "margin": margin,
            "good": margin >= 1,
            "raw_rounds": self.raw,
            "softroce_rounds": self.softroce,
        }


# -- places -----------------------------------------------------------------------------------------------------


def loopback() -> Place:
    block = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    return Place("lo", (f"{block}.1", f"{block}.2"))


@contextmanager
def veth() -> Iterator[Place]:
    """Make two network namespaces with a cable between them; remove them at the end."""
    names = [f"genie-wire-{os.getpid()}-{end}" for end in "ab"]
    made = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        _ip("link", "add", "wire0", "netns", names[0], "type", "veth", "peer", "name", "wire0", "netns", names[1])
        for number, name in enumerate(names, 1):
            _ip("-n", name, "addr", "add", f"10.177.0.{number}/24", "dev", "wire0")
            _ip("-n", name, "link", "set", "wire0", "mtu", "9000", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        prefixes = (["ip", "netns", "exec", names[0]], ["ip", "netns", "exec", names[1]])
        yield Place("veth", ("10.177.0.1", "10.177.0.2"), prefixes)
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


# -- processes --------------------------------------------------------------------------------------------------


def built(folder: Path) -> Path:
    """The raw UDP program, compiled with softroce's options."""
    program = folder / "udp_raw"
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    source = HERE / "udp_raw" / "udp_raw.cpp"
    subprocess.run([compiler, "-std=c++20", "-O3", source, "-o", program], check=True)
    return program


class End:
    """A process at one end; it ends with the session in any case."""

    def __init__(self, place: Place, at: int, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*place.prefixes[at], *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def hear(self) -> str:
        line = _of(self._process.stdout).readline().strip()
        if not line:
            raise SystemExit(f"wire: {' '.join(map(str, self._process.args[:4]))} … ended early")  # type: ignore[index]
        return line

    def ask(self, *words: object) -> Any:
        """Give the softroce end a task; return its answer."""
        self.tell(*words)
        return json.loads(self.hear())

    def tell(self, *words: object) -> None:
        stdin = _of(self._process.stdin)
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def raw_pair(program: Path, place: Place, cores: list[int], receiver: list[str], sender: list[str]) -> tuple[str, str]:
    """Run both ends of the raw UDP program; return their output. `receiver` and `sender`: role, then arguments."""
    address = place.addresses[1]
    commands = [
        [str(program), words[0], address, str(UDP_RAW_PORT), str(core), *words[1:]]
        for words, core in ((receiver, cores[1]), (sender, cores[0]))
    ]
    with End(place, 1, commands[0]) as there:
        there.hear()
        with End(place, 0, commands[1]) as here:
            said = here.hear()
        return said, there.hear() if receiver[0] == "sink" else ""


def raw_goodput_gbps(program: Path, place: Place, cores: list[int]) -> float:
    words = [str(SECONDS), str(MTU_BYTES), str(HEADERS_BYTES)]
    _, arrived = raw_pair(program, place, cores, ["sink", *words], ["source", *words])
    return float(json.loads(arrived)["goodput_gbps"])


def raw_round_trip_us(program: Path, place: Place, cores: list[int], how: str) -> float:
    ping = ["ping", how, str(ROUND_TRIPS), str(ROUND_TRIP_BYTES)]
    took, _ = raw_pair(program, place, cores, ["pong", how], ping)
    return float(json.loads(took)["rtt_us"])


# -- softroce ---------------------------------------------------------------------------------------------------


class Pair:
    """Two processes with a `genie_core.Endpoint` each, connected by some queue pairs."""

    def __init__(self, stack: ExitStack, place: Place, cores: list[int], queue_pairs: int) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--end"]
        self.ends = [
            stack.enter_context(End(place, at, [*command, place.addresses[at], str(cores[at]), str(queue_pairs)]))
            for at in (0, 1)
        ]
        numbers = [json.loads(end.hear()) for end in self.ends]
        for at, end in enumerate(self.ends):
            end.ask("connect", place.addresses[1 - at], numbers[1 - at])

    def stream(self, verb: str, size_bytes: int, messages: int) -> tuple[int, float]:
        """(bytes that arrived, seconds from the first packet to the last message)."""
        sender, receiver = self.ends
        receiver.ask("forget")
        receiver.tell("serve", messages)
        sender.ask("stream", verb, size_bytes, messages)
        size, took_ps = json.loads(receiver.hear())
        return int(size), took_ps / 1e12

    def rate(self, verb: str, size_bytes: int) -> float:
        """Messages a second in a stream of about SECONDS."""
        first = FIRST_MESSAGES[size_bytes]
        _, took_s = self.stream(verb, size_bytes, first)
        arrived, took_s = self.stream(verb, size_bytes, max(first, int(first / took_s * SECONDS)))
        return arrived / size_bytes / took_s

    def round_trip_us(self, spin: bool) -> float:
        here, there = self.ends
        there.ask("forget")
        here.ask("forget")
        there.tell("pingpong", False, spin)
        time.sleep(0.2)  # let the other end wait before the first ping, which would be lost otherwise
        median_ps = here.ask("pingpong", True, spin)
        there.hear()
        return float(median_ps) / 1e6


def end(address: str, core: int, queue_pairs: int) -> int:
    """The process of one end: a NIC that takes tasks from standard input until its end."""
    os.sched_setaffinity(0, {core})
    config = genie_core.NicConfig()
    config.address, config.rkey = address, RKEY
    config.memory_bytes = config.writable_bytes = MESSAGE_BYTES
    nic = genie_core.Endpoint(config)
    nic.open()
    ids = [nic.add_queue_pair(genie_core.QueuePairConfig(), receives_counted=False) for _ in range(queue_pairs)]
    print(json.dumps([nic.qpn(number) for number in ids]), flush=True)
    for line in sys.stdin:
        task, *words = json.loads(line)
        print(json.dumps(_done(nic, ids, task, words)), flush=True)
    return 0


def _done(nic: Any, ids: list[int], task: str, words: list[Any]) -> Any:
    if task == "connect":
        for number, qpn in zip(ids, words[1], strict=True):
            nic.connect(number, address=words[0], qpn=qpn)
    elif task == "forget":
        nic.forget_arrivals()
    elif task == "serve":
        messages, size, took_ps = nic.serve(PATIENCE_S, words[0])
        nic.poll(0.05)  # the sender may retransmit to get the last acknowledgement
        if messages != words[0]:
            raise SystemExit(f"wire: {messages} of {words[0]} messages came: {nic.error}")
        return [size, took_ps]
    elif task == "stream":
        verb, size_bytes, messages = words
        depth = DEPTH[size_bytes]
        took_ps = nic.stream(ids, verb, size_bytes, messages=messages, depth=depth, rkey=RKEY, timeout_s=PATIENCE_S)
        if took_ps < 0:
            raise SystemExit(f"wire: the stream did not end: {nic.error}")
        return took_ps
    elif task == "pingpong":
        begins, spin = words
        size = ROUND_TRIP_BYTES
        times = nic.pingpong(ids[0], "write_imm", size, rounds=ROUND_TRIPS, begins=begins, spin=spin, rkey=RKEY)
        return statistics.median(times) if begins else 0
    return None


def idle(queue_pairs: int) -> int:
    """The process of idle, connected queue pairs: prints the bytes of memory of each."""
    config = genie_core.NicConfig()
    config.address = "127.0.0.1"
    nic = genie_core.Endpoint(config)
    before = _resident_bytes()
    for number in range(queue_pairs):
        added = nic.add_queue_pair(genie_core.QueuePairConfig(), receives_counted=False)
        nic.connect(added, address="127.0.0.1", qpn=number)
    print((_resident_bytes() - before) / queue_pairs)
    return 0


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def idle_bytes() -> float:
    command = [sys.executable, str(Path(__file__).resolve()), "--idle", str(IDLE_QUEUE_PAIRS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# -- the session ------------------------------------------------------------------------------------------------


def progress(line: str) -> None:
    """Print a line on standard error that the next line replaces, if that is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def measured(program: Path, place: Place, cores: list[int], rounds: int, again: int) -> list[dict[str, Any]]:
    """The table's rows of one place. `again`: most additional rounds for a missed target."""

    def goodput(measure: Measure, queue_pairs: int) -> None:
        measure.raw.append(raw_goodput_gbps(program, place, cores))
        with ExitStack() as stack:
            rate = Pair(stack, place, cores, queue_pairs).rate("write", MESSAGE_BYTES)
            measure.softroce.append(rate * MESSAGE_BYTES * 8 / 1e9)

    def round_trip(measure: Measure, how: str) -> None:
        measure.raw.append(raw_round_trip_us(program, place, cores, how))
        with ExitStack() as stack:
            measure.softroce.append(Pair(stack, place, cores, 1).round_trip_us(how == "busy"))

    def small_messages(measure: Measure) -> None:
        with ExitStack() as stack:
            measure.softroce.append(Pair(stack, place, cores, 1).rate("write_imm", SMALL_BYTES))

    table: list[tuple[Measure, Callable[[Measure], None]]] = [
        (Measure("1 MiB WRITE, 1 QP", "Gb/s", 0.5, True), lambda measure: goodput(measure, 1)),
        (Measure("1 MiB WRITE, 4 QPs", "Gb/s", 0.6, True), lambda measure: goodput(measure, 4)),
        (
            Measure("64 B WRITE_WITH_IMM round trip, polling", "us", 2.5, False),
            lambda measure: round_trip(measure, "busy"),
        ),
        (
            Measure("64 B WRITE_WITH_IMM round trip, sleeping", "us", 2.5, False),
            lambda measure: round_trip(measure, "block"),
        ),
        (Measure("4 KiB WRITE_WITH_IMM, 1 QP", "1/s", 200_000, True), small_messages),
    ]
    for number in range(1, rounds + again + 1):
        for measure, measure_once in table:
            if number <= rounds or not measure.row(place.name)["good"]:
                progress(f"{place.name}, round {number}: {measure.name}")
                measure_once(measure)
    progress("")
    return [measure.row(place.name) for measure, _ in table]


def line_of(row: dict[str, Any]) -> str:
    raw = "" if row["raw"] is None else f"{row['raw']:.2f}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    verdict = "good" if row["good"] else "NOT MET"
    return (
        f"{row['over']:<5} {row['measure']:<42} {raw:>10} {row['softroce']:>12.2f} {row['unit']:<5} {ratio:>6} "
        f"{row['wanted']:<14} {verdict}"
    )


class Others:
    """Share of the machine that other programs use from now on."""

    def __init__(self) -> None:
        self._busy, self._own, self._since = busy_s(), own_s(), time.monotonic()

    def share(self) -> float:
        """Share of all cores, 0 to 1; time that a hypervisor takes counts as others'."""
        spent_s = (time.monotonic() - self._since) * (os.cpu_count() or 1)
        return max(busy_s() - self._busy - (own_s() - self._own), 0.0) / max(spent_s, 1e-9)


def busy_s() -> float:
    """CPU seconds of all programs, and those taken by a hypervisor, without interrupts."""
    user, nice, system, _idle, _wait, _hard, _soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--over", choices=("lo", "veth"), action="append", help="default: both")
    parser.add_argument("--rounds", type=positive, default=3, help="from 1 (3)")
    parser.add_argument(
        "--again", type=whole(0), default=0, metavar="N", help="rounds more for what is not as wanted (0)"
    )
    parser.add_argument(
        "--gate", type=positive, default=100, metavar="P", help="below P %% of a target: end with 1 (100)"
    )
    add_json(parser)
    parser.add_argument("--end", nargs=3, metavar=("ADDRESS", "CORE", "QUEUE_PAIRS"), help=argparse.SUPPRESS)
    parser.add_argument("--idle", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.end:
        return end(chosen.end[0], int(chosen.end[1]), int(chosen.end[2]))
    if chosen.idle:
        return idle(chosen.idle)
    over = chosen.over or ["lo", "veth"]
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2 or ("veth" in over and os.geteuid() != 0):
        print("wire: needs two cores, and root for veth (without: --over lo)", file=sys.stderr)
        return EXIT_ENVIRONMENT
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes namespaces too
    rows: list[dict[str, Any]] = []
    others = Others()
    print(f"{'over':<5} {'measure':<42} {'raw':>10} {'softroce':>12} {'':<5} {'ratio':>6} wanted", flush=True)
    with ExitStack() as stack:
        stack.callback(progress, "")
        program = built(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="genie-wire-"))))
        for name in over:
            place = loopback() if name == "lo" else stack.enter_context(veth())
            rows += measured(program, place, cores, chosen.rounds, chosen.again)
            print("\n".join(line_of(row) for row in rows if row["over"] == place.name), flush=True)
    progress(f"memory per idle QP, of {IDLE_QUEUE_PAIRS}")
    memory = Measure(f"memory per idle QP, of {IDLE_QUEUE_PAIRS}", "B", 4096, False, softroce=[idle_bytes()])
    progress("")
    rows.append(memory.row("-"))
    print(line_of(rows[-1]))
    facts = {**facts_of_build(), "crc": genie_core.crc_paths()[-1], "others_share": round(others.share(), 3)}
    print(f"others used {others.share():.0%} of {os.cpu_count()} cores meanwhile; CRC by {facts['crc']}")
    if chosen.json:
        chosen.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    if all(row["margin"] >= chosen.gate / 100 for row in rows):
        return 0
    if others.share() > OTHERS_SHARE_MAX:
        print(
            f"wire: not judged: both cores are needed, and others used more than {OTHERS_SHARE_MAX:.0%}",
            file=sys.stderr,
        )
        return 0
    return EXIT_GATE


if __name__ == "__main__":
    sys.exit(main())
