"""The settings of a live run: what each rank needs to know of a job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from genie.config.congestion import Control, Hpcc, NoControl, Window, from_plain, name_of, plain
from genie.config.hosts import Hosts
from genie.config.nccl import NcclVariables
from genie.config.source_ports import PAIR, SourcePorts
from genie.errors import UsageError
from genie.invocation import command
from genie.job.job import (
    Job,
    check_rate,
    frame_for,
    line_rates,
    loopback_defaults,
    rate_from,
    transport_from,
)
from genie.job.options import LiveOptions
from genie.job.tracing import trace_plan
from genie.job.warnings import warn
from genie.live.fault_warnings import faults_without_effect
from genie.live.path_names import TracePlan
from genie.live.settings import Faults, RunSettings, load_faults
from genie.live.transport import SOFTROCE, VERBS
from genie.live.verbs.environment import given_settings, refuse_unsupported, verbs_settings
from genie.live.verbs.hca import parse_hca
from genie.plan.lowering import check_groups
from genie.record import kept_warnings
from genie.workload.lint import sequences
from simtwin.fabric.routing import shortest_path_routes
from simtwin.fabric.schema import Fabric, Transport
from simtwin.fabric.topology import build_network
from simtwin.fabric.transport import queue_pair_config
from simtwin.play.round_trip import NEED_NONE
from simtwin.play.round_trip import base_round_trip_ps as round_trip_of

SHARERS_MAX = 255  # ranks of one address: the local rank is a byte of the queue pair number


def live_settings(job: Job, out: Path) -> RunSettings:
    """Everything that a rank needs to know. Raises UsageError, WireError, and errors of the files that options name."""
    return settings_on(job, out, job.described)


def settings_on(job: Job, out: Path, fabric: Fabric | None) -> RunSettings:
    """Return the settings with this fabric in place of the job's; None: ranks know no fabric."""
    traffic, live, hosts, ranks = job.traffic, job.live, job.hosts, job.ranks
    transport = transport_from(traffic, fabric)
    described = fabric or loopback_defaults(ranks)
    pair = queue_pair_config(described)
    overhead = (fabric.frame if fabric else frame_for(loopback_defaults(1), hosts)).overhead_bytes
    lowering = job.lowering
    check_groups(lowering, job.workload)
    if lowering.nccl is not None and lowering.nccl.collnet:
        raise UsageError(
            f"{traffic.fabric}: [switch] reduces, and NCCL_COLLNET_ENABLE is 1, but no switch of a live run reduces: "
            "unset NCCL_COLLNET_ENABLE, or simulate it"
        )
    faults, trace = _faults_and_trace(job, fabric)
    control, base_round_trip_ps = control_of(job, fabric, transport)
    uses_verbs = VERBS in job.transports
    if live.verbs and not uses_verbs:
        raise UsageError(f"--verbs {live.verbs[0]}: no rank of this run is on verbs: give --transport verbs too")
    rate_bps = _checked_rate_bps(job, fabric, faults, uses_verbs=uses_verbs)
    _check_addresses(hosts)
    if fabric is not None and fabric.frame.is_foreign:
        raise UsageError(
            f"{traffic.fabric}: [frame] has another simulator's frames, which no network sends: simulate it"
        )
    if described.load_balancing.mode == "reps":
        raise UsageError(
            f'{traffic.fabric}: [load_balancing] mode = "reps" is for the twin alone: simulate it, or use "ecmp"'
        )
    transports = job.transports
    traffic_class = transport.traffic_class or 0 if live.traffic_class is None else live.traffic_class
    settings = RunSettings(
        workload=str(Path(traffic.workload).resolve()),
        out=str(out.resolve()),
        ranks=ranks,
        addresses=[place.address for place in hosts.places],
        ports=[place.port for place in hosts.places],
        host_names=[place.host for place in hosts.places],
        rate_bps=rate_bps,
        dilation=traffic.dilation,
        iterations=live.iterations,
        warmup=live.warmup,
        seed=traffic.seed,
        fabric=fabric.name if fabric else "",
        slots=traffic.slots,
        compute=traffic.compute,
        channels=lowering.channels,
        credit=lowering.credit,
        algorithms=lowering.algorithms,
        nccl=lowering.nccl,
        ranks_per_node=lowering.ranks_per_node,
        nccl_variables=job.nccl_variables(live),
        mtu=transport.mtu if fabric else 0,  # without a file, ranks find it by probing
        window_packets=pair.window_packets,
        ack_every_packets=pair.ack_every_packets,
        ack_timeout_ns=pair.ack_timeout_ps // 1000,
        retry_limit=pair.retry_limit,
        rnr_retry_limit=pair.rnr_retry_limit,
        frame_overhead_bytes=overhead,
        offload=live.offload,
        spin=False if live.events else None,
        udp_port=live.udp_port,
        join_s=live.join,
        stall_s=live.stall,
        faults=faults,
        transport=transports[0] if len(set(transports)) == 1 else live.transport,
        transports=transports if len(set(transports)) > 1 else [],
        queue_pairs=transport.queue_pairs or 1,
        split=transport.split or False,
        spray=transport.spray or 1,
        reordering_packets=pair.reordering_packets
        if described.load_balancing.reorders
        else transport.reordering_packets,
        source_ports=live.source_ports,
        trace=trace,
        traffic_class=traffic_class,
        congestion=plain(control),
        base_round_trip_ps=base_round_trip_ps,
        verify=live.verify,
        icrc=live.icrc,
        command=command(),
    )
    _check_spray(settings)
    settings = _with_verbs(settings, hosts, transport, live) if uses_verbs else settings
    _warn(job, settings, transport)
    return msgspec.structs.replace(settings, warnings=kept_warnings())


def control_of(job: Job, fabric: Fabric | None, transport: Transport) -> tuple[Control, int]:
    """Return the senders' congestion control in a live run, and the base round trip (ps) where it needs one."""
    named = (fabric or loopback_defaults(1)).with_transport(transport)
    control = named.control
    if isinstance(control, Hpcc):
        raise UsageError(
            "--congestion hpcc: needs telemetry from switches, which only the twin has: give it to genie simulate"
        )
    if isinstance(control, NEED_NONE) or control.base_round_trip is not None:
        return control, int(control.base_round_trip or 0)
    if isinstance(control, Window) and control.window is not None:
        return control, 0
    if job.written is None:
        raise UsageError(
            f"--congestion {name_of(control)}: needs the base round trip: give a --fabric FILE, from whose delays it "
            "follows, or which says it in [congestion] base_round_trip"
        )
    network = build_network(named)
    return control, round_trip_of(named, network, shortest_path_routes(network))


def _faults_and_trace(job: Job, fabric: Fabric | None) -> tuple[Faults, TracePlan | None]:
    live = job.live
    try:
        faults = Faults() if live.faults is None else load_faults(live.faults, job.ranks)
        if live.trace_paths is None:
            return faults, None
        return faults, trace_plan(live.trace_paths, live.source_ports, fabric, job.hosts, job.ranks)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _checked_rate_bps(job: Job, fabric: Fabric | None, faults: Faults, *, uses_verbs: bool) -> int:
    """The line rate of the soft NICs. A real NIC has its own rate: a fabric file describes it, and shapes nothing."""
    traffic = job.traffic
    rate_bps = 0 if uses_verbs and traffic.rate is None else rate_of(job, fabric)
    if faults.rate and rate_bps == 0:
        raise UsageError(f"{job.live.faults}: [[rate]] slows a line rate, and this run has none: give --rate")
    if 0 < rate_bps < traffic.dilation:
        raise UsageError(f"--dilation {traffic.dilation}: leaves nothing of a rate of {rate_bps} b/s")
    return rate_bps


def rate_of(job: Job, fabric: Fabric | None) -> int:
    """Line rate (b/s) of the soft NICs: --rate, or the rate of the links that the ranks sit on in the fabric."""
    traffic = job.traffic
    given = None if traffic.rate is None else rate_from(traffic.rate)
    if fabric is None or traffic.fabric is None:
        return (0 if fabric is None or fabric.link is None else int(fabric.link.rate)) if given is None else given
    rates = line_rates(job, fabric)
    if len(rates) < job.ranks:
        raise UsageError(
            f"{traffic.fabric}: ranks share a host link, which softroce cannot shape: give each rank a port of its own"
        )
    if given is None and len(set(rates.values())) > 1:
        raise UsageError(f"{traffic.fabric}: the ranks' links differ in rate, and softroce has one line rate for all")
    check_rate(traffic, rates)
    return next(iter(rates.values()))


def _check_addresses(hosts: Hosts) -> None:
    crowded, sharers = Counter(place.address for place in hosts.places).most_common(1)[0]
    if sharers > SHARERS_MAX:
        raise UsageError(f"{crowded}: more than {SHARERS_MAX} ranks on one address; give the host another address")


def _warn(job: Job, settings: RunSettings, transport: Transport) -> None:
    """Warn of faults and options without effect, and of ranks that disagree."""
    for text in faults_without_effect(settings):
        warn(f"{job.live.faults}: {text}")
    if not job.workload.ranks:  # under a launcher, all ranks but the first know only the workload's shape
        return
    for finding in sequences(job.workload):
        warn(f"{job.traffic.workload}: {finding.message}; a replay stops there or is meaningless (genie inspect)")
    job.warn_of_idle_options(transport=transport)


def _with_verbs(settings: RunSettings, hosts: Hosts, transport: Transport, live: LiveOptions) -> RunSettings:
    """Return the settings with those of RDMA devices, from NCCL's variables and the hosts file.

    Raises UsageError for settings that devices cannot have.
    """
    try:
        refuse_unsupported(settings)
        _refuse_softroce_options(settings, live)
        devices = [place.device for place in hosts.places]
        for device in filter(None, devices):
            parse_hca(device, f"{hosts.name}: device")
        traffic_class = transport.traffic_class if live.traffic_class is None else live.traffic_class
        verbs = verbs_settings(NcclVariables(), traffic_class=traffic_class, **given_settings(live.verbs))
        return msgspec.structs.replace(settings, verbs=verbs, devices=devices if any(devices) else [])
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_spray(settings: RunSettings) -> None:
    if settings.spray == 1:
        return
    if VERBS in settings.kinds:
        raise UsageError(f"--spray {settings.spray}: only softroce sprays, and ranks are on verbs: leave it out")
    if problem := SourcePorts(settings.source_ports).spray_problem(settings.spray):
        raise UsageError(f"--spray {settings.spray}: {problem}")


def _refuse_softroce_options(settings: RunSettings, live: LiveOptions) -> None:
    """Raises UsageError for options of softroce alone in a job without it."""
    if SOFTROCE in settings.kinds:
        return
    given = {
        "--congestion": not isinstance(from_plain(settings.congestion), NoControl),
        "--source-ports": live.source_ports != PAIR,
        "--icrc strict": live.icrc == "strict",
        "--no-offload": not live.offload,
    }
    for option in (option for option, is_given in given.items() if is_given):
        raise UsageError(f"{option} is softroce's, and all ranks are on verbs: the device decides; leave it out")
