"""Values that would end in a crash, an endless loop or nonsense are refused, each in one line that names its key."""

from __future__ import annotations

import pytest

from genie.config.congestion import CONTROLS, Window
from genie.config.units import Duration, Rate, Size
from simtwin.fabric.reading import FabricError, parse_fabric

HEAD = '[topology]\nkind = "single-switch"\nhosts = 9\n[link]\nrate = "100Gb/s"\ndelay = "1us"\n'
EXPLICIT = (
    '[topology]\nkind = "explicit"\nhost = [{name = "a"}, {name = "b"}]\nswitch = [{name = "s", buffer = "1MB"}]\n'
    'link = [{a = "a", b = "s"}, {a = "b", b = "s"}]\n[link]\nrate = "1Gb/s"\n'
)
PFC = '[switch]\nshared_buffer = "2MB"\n[pfc]\n'


def control(kind: str, *lines: str) -> str:
    return "\n".join(("[congestion]", f'kind = "{kind}"', *lines))


REFUSED = [
    # The lengths of packets.
    ('[frame]\npayload = "unlimited"', 'frame.payload = "unlimited": give a size'),
    ("[frame]\npayload = 65536", "frame.payload = 65536 B: give 65535 B or less"),
    ("[frame]\npayload = 65500", "frame.payload makes frames of 65602 B, headers included: give 65535 B or less"),
    ("[frame]\npause = 70000", "frame.pause = 70000 B: give 65535 B or less"),
    ("[frame]\ndata_header = 70000", "frame.data_header = 70000 B: give 65535 B or less"),
    ("[frame]\ndata_header = 62000", "frame.data_header makes frames of 66096 B"),
    ("[frame]\ncontrol = 65536", "frame.control = 65536 B"),
    ("[frame]\npayload = 9000\n[switch]\nbuffer = 5000", "switch.buffer = 5000 B cannot hold one packet: give 9102 B"),
    # Times and rates.
    ('[frame]\ntime_unit = "0ns"', "frame.time_unit = 0ns: give 1ps or more"),
    ('[frame]\ntime_unit = "1us"', "frame.time_unit = 1us rounds a full frame on host0->switch to no time: give 67"),
    ('[transport]\nack_timeout = "0ns"', "transport.ack_timeout = 0ns: nothing is acknowledged so soon"),
    ('[downlink]\nrate = "1b/s"', "downlink.rate = 1b/s: give 10kb/s or more"),
    ('[[fault]]\nat = "1us"\nlink = "host0->switch"\nrate = "1b/s"', "fault[0].rate = 1b/s: give 10kb/s or more"),
    ('[downlink]\nrate = "1Gb/s"\nburst = "unlimited"', 'downlink.burst = "unlimited": give a size'),
    ("[downlink]\nrate = 100", "downlink.rate = 100 has no unit: give a rate above 0 such as"),
    # NICs.
    ('[nic]\nprefetch = "32KiB"', "nic.prefetch takes no time without a rate: give [nic] pcie_rate too"),
    ('[nic]\nprefetch = "32KiB"\npcie_rate = "unlimited"', "nic.prefetch takes no time without a rate"),
    ('[nic]\npcie_rate = "1Gb/s"\nprefetch = "unlimited"', 'nic.prefetch = "unlimited": give a size'),
    ('[nic]\npcie_rate = "1b/s"', "nic.pcie_rate = 1b/s: give 10kb/s or more"),
    ("[nic]\npcie_rate = 100", "nic.pcie_rate = 100 has no unit: give a rate above 0 such as"),
    ('[nic]\nmessage_time = "-1ns"', "nic.message_time = '-1ns' is not a number with a unit"),
    ('[nic]\npcie = "1Gb/s"', "nic.pcie"),
    # Token buckets that would never hold a packet's tokens.
    ('[downlink]\nrate = "1Gb/s"\nburst = "1B"', "downlink.burst = 1 B cannot hold one packet: give 4198 B or more"),
    (
        '[downlink]\nrate = "1Gb/s"\nburst = "2kB"\n[transport]\nmtu = 2048',
        "downlink.burst = 2000 B cannot hold one packet: give 2150 B or more",
    ),
    # Losses that nobody would notice.
    ("[transport]\nreordering_packets = 256", "is not below window_packets = 256, so that no loss would be noticed"),
    ("[transport]\nwindow_packets = 9\nreordering_packets = 9", "window_packets = 9, so that no loss would be noticed"),
    # Sprayed packets, and source ports by REPS.
    ('[load_balancing]\nmode = "reps"', 'load_balancing.mode = "reps": ports are good while nothing marks: give [ecn]'),
    (
        '[load_balancing]\nmode = "reps"\n[ecn]\nminimum = "1kB"\nmaximum = "1MB"\n[transport]\nspray = 1',
        'transport.spray = 1: [load_balancing] mode = "reps" chooses among several',
    ),
    ("[transport]\nspray = 8\nqueue_pairs = 2", "transport.spray = 8: the packets of one queue pair are sprayed, and"),
    (
        '[transport]\nspray = 8\n[load_balancing]\nsource_ports = "50000-50003"',
        "load_balancing.source_ports: source ports '50000-50003' are 4, and packets are sprayed over 8",
    ),
    # Thresholds and buffers.
    ('[ecn]\nminimum = "unlimited"\nmaximum = "1MB"', 'ecn.minimum = "unlimited": give a size'),
    ('[ecn]\nminimum = "1kB"\nmaximum = "1MB"\nat = "unlimited"', 'ecn.at = "unlimited": give the rate'),
    ('[switch]\nshared_buffer = "unlimited"', 'switch.shared_buffer = "unlimited": give a size'),
    ('[switch]\nshared_buffer = "1MB"\nreserve = "unlimited"', 'switch.reserve = "unlimited": give a size'),
    ('[switch]\nshared_buffer = "1MB"\nalpha = 0.0001', "switch.alpha = 0.0001: give a number from 1/1024 to 64"),
    ("[switch]\nalpha = nan", "switch.alpha = nan: give a number from 1/1024 to 64"),
    ("[switch]\nalpha = 0", "switch.alpha = 0: give a number from 1/1024 to 64"),
    ("[switch]\nalpha = 65", "switch.alpha = 65: give a number from 1/1024 to 64"),
    (PFC + 'headroom = "unlimited"', 'pfc.headroom = "unlimited": give a size'),
    (PFC + 'resume = "unlimited"', 'pfc.resume = "unlimited": give a size'),
    # Lists and tables.
    (PFC + "priorities = [7]", "pfc.priorities[0] = 7: give an integer from 0 to 6"),
    (PFC + "priorities = 3", "pfc.priorities = 3: give a list of 1 or more, each an integer from 0 to 6"),
    (PFC + "priorities = []", "pfc.priorities = []: give a list of 1 or more, each an integer from 0 to 6"),
    (
        '[[path]]\nsource = "host0"\ntarget = "host1"\nvia = "switch"',
        "path[0].via = 'switch': give a list, each a name of 1 to 64 characters",
    ),
    ('[[fault]]\ncable = ["host0"]\nat = "1us"', "fault[0].cable = ['host0']: give a list of 2, each a name"),
    ('[[fault]]\ncable = ["host0", 4]\nat = "1us"', "fault[0].cable[1] = 4: give a name of 1 to 64 characters"),
    ('[fault]\nswitch = "switch"', "fault = {'switch': 'switch'}: give tables [[fault]]"),
    ('[path]\nsource = "host0"', "path = {'source': 'host0'}: give tables [[path]]"),
    (PFC + "priorities = [3]\n[priority]\ndata = 4\ncontrol = 5", "has neither [priority] data = 4 nor control = 5"),
    (PFC.replace("[pfc]", 'buffer = "20kB"\n[pfc]'), "switch.buffer drops what [pfc] is to keep: leave it out"),
    # Congestion controls.
    (control("dcqcn", 'alpha_timer = "0ns"'), "congestion.alpha_timer = 0ns: give 1ns or more"),
    (control("dcqcn", 'increase_timer = "1ps"'), "congestion.increase_timer = 1ps: give 1ns or more"),
    (control("dcqcn", 'byte_counter = "unlimited"'), 'congestion.byte_counter = "unlimited": give a size'),
    (control("dcqcn", 'minimum_rate = "unlimited"'), 'congestion.minimum_rate = "unlimited": give a rate'),
    (control("dcqcn", 'minimum_rate = "1b/s"'), "congestion.minimum_rate = 1b/s: give 10kb/s or more"),
    (control("dcqcn", "gain_inverse = 0"), "congestion.gain_inverse = 0: give an integer from 1 to 1048576"),
    (control("dcqcn-timer", 'alpha_interval = "0ns"'), "congestion.alpha_interval = 0ns: give 1ns or more"),
    (control("dcqcn-timer", 'decrease_interval = "0ns"'), "congestion.decrease_interval = 0ns: give 1ns"),
    (control("dcqcn-timer", 'increase_timer = "0ns"'), "congestion.increase_timer = 0ns: give 1ns or more"),
    (control("dcqcn-timer", "gain = 0"), "congestion.gain = 0: give a number above 0, at most 1"),
    (control("dcqcn-timer", "gain = 1.5"), "congestion.gain = 1.5: give a number above 0, at most 1"),
    (control("dcqcn-timer", 'window = "unlimited"'), 'congestion.window = "unlimited": give a size'),
    (control("hpcc", 'base_round_trip = "0ns"'), "congestion.base_round_trip = 0ns: give 1ns or more"),
    (control("hpcc", 'base_round_trip = "2s"'), "congestion.base_round_trip = 2s: give 1s or less"),
    (control("hpcc", "utilisation = 0"), "congestion.utilisation = 0: give a number above 0, at most 1"),
    (control("hpcc", 'minimum_rate = "200Gb/s"'), "minimum_rate = 200Gb/s is above the hosts' ports' 100Gb/s"),
    (
        control("hpcc") + '\n[downlink]\nrate = "unlimited"',
        "kind = hpcc asks how much of their rate ports use, and switch",
    ),
    (
        '[transport]\ncongestion = "hpcc"\n[downlink]\nrate = "unlimited"',
        "transport.congestion = hpcc asks how much of their rate ports use, and switch->host0 has none",
    ),
    (control("timely", 'minimum_round_trip = "0ns"'), "congestion.minimum_round_trip = 0ns: give 1ns or more"),
    (control("timely", 'low = "2ms"'), "congestion.low: low = 2ms is above high = 500us"),
    (control("timely", 'high = "9us"'), "congestion.high: low = 50us is above high = 9us"),
    (control("timely", "hyper_after = 0"), "congestion.hyper_after = 0: give an integer from 1 to 1000000"),
    (control("timely", 'segment = "unlimited"'), 'congestion.segment = "unlimited": give a size'),
    (
        control("swift", "flow_minimum = 5.0", "flow_maximum = 5.0"),
        "flow_minimum = 5.0 is not below flow_maximum = 5.0",
    ),
    (control("swift", "flow_maximum = 0.1"), "congestion.flow_maximum: flow_minimum = 0.1 is not below"),
    (control("swift", 'base_target = "0ns"'), "congestion.base_target = 0ns: give 1ns or more"),
    (control("swift", "minimum_packets = 2.0"), "congestion.minimum_packets = 2.0: give a number above 0"),
    (control("swift", "additive = inf"), "congestion.additive = inf: give a number above 0, at most 1000"),
    (control("dctcp", 'initial = "2MB"', 'maximum = "1MB"'), "initial = 2000000 B is above maximum = 1000000 B"),
    (control("dcqcn-timer", "gain = nan"), "congestion.gain = nan: give a number above 0, at most 1"),
    (control("dctcp", "additive = nan"), "congestion.additive = nan: give a number above 0"),
    (control("nscc", 'target = "0ns"'), "congestion.target = 0ns: give 1ns or more"),
    (control("nscc", "maximum = 0"), "congestion.maximum = 0: give a number above 0, at most 1000"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_cannot_be_is_one_line_with_its_key(text: str, says: str) -> None:
    with pytest.raises(FabricError) as told:
        parse_fabric(HEAD + text, "f.toml")
    assert says in str(told.value)
    assert str(told.value).startswith("f.toml:")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('kind = "torus"\nsize = []', "topology.size = []: give a list of 1 to 6, each an integer from 1 to 65536"),
        ('kind = "torus"\nsize = [2, 2, 2, 2, 2, 2, 2]', "give a list of 1 to 6, each an integer"),
        ('kind = "torus"\nsize = [0, 4]', "topology.size[0] = 0: give an integer from 1 to 65536"),
        ('kind = "torus"\nsize = "4x4"', "topology.size = '4x4': give a list of 1 to 6, each an integer"),
        ('kind = "fat-tree"\nk = 3', "topology.k = 3: give an even integer from 2 to 50"),
        (
            'kind = "leaf-spine"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n'
            'spine_link = {rate = "1Gb/s", burst = "1kB"}',
            "topology.spine_link.burst = 1000 B cannot hold one packet",
        ),
    ],
)
def test_what_a_topology_cannot_be_is_one_line(text: str, says: str) -> None:
    with pytest.raises(FabricError) as told:
        parse_fabric(f'[topology]\n{text}\n[link]\nrate = "100Gb/s"\n', "f.toml")
    assert says in str(told.value)
    assert str(told.value).startswith("f.toml:")
    assert "\n" not in str(told.value)


def test_token_buckets_of_single_cables_hold_a_packet() -> None:
    text = EXPLICIT.replace('b = "s"}, ', 'b = "s", burst = "4197B"}, ')
    with pytest.raises(FabricError, match=r"topology.link\[0\].burst = 4197 B cannot hold one packet: give 4198 B"):
        parse_fabric(text)
    assert parse_fabric(text.replace("4197", "4198")).hosts == 2


def test_buffers_of_single_switches_drop_too() -> None:
    with pytest.raises(FabricError, match=r"topology.switch\[0\].buffer drops what \[pfc\] is to keep"):
        parse_fabric(EXPLICIT + PFC)


def test_pauses_need_an_end_of_what_comes_until_they_are_heard() -> None:
    unlimited = HEAD.replace("100Gb/s", "unlimited") + PFC
    with pytest.raises(FabricError, match=r"pfc.headroom is missing, and host0->switch sends without limit"):
        parse_fabric(unlimited)
    assert parse_fabric(unlimited + 'headroom = "100kB"\n').pfc is not None
    downlink = '[downlink]\nrate = "unlimited"\n'
    assert parse_fabric(HEAD + downlink + PFC).pfc is not None  # nothing comes by it


@pytest.mark.parametrize("kind", CONTROLS)
def test_no_time_or_rate_of_a_control_may_be_nothing(kind: str) -> None:
    """But those by which nothing is divided and which nothing repeats."""
    fine = {"cnp_interval", "low"}
    if kind == "window":
        fine |= {"window", "rate"}
    annotations = Window.__bases__[0].__annotations__ | CONTROLS[kind].__annotations__
    for field, annotation in annotations.items():
        nothing = {"Duration": '"0ns"', "Rate": '"unlimited"', "Size": '"unlimited"'}.get(annotation.split(" |")[0])
        if nothing is None:
            continue
        text = HEAD + control(kind, f"{field} = {nothing}")
        if field in fine:
            parse_fabric(text)
        else:
            with pytest.raises(FabricError, match=rf"congestion\.{field} = .*: give "):
                parse_fabric(text)


def test_the_last_values_that_can_be() -> None:
    fabric = parse_fabric(
        HEAD + '[frame]\npayload = 65432\ntime_unit = "1ns"\n[transport]\nwindow_packets = 9\nreordering_packets = 8\n'
        '[switch]\nshared_buffer = "9MB"\nalpha = 0.0009765625\n[priority]\ndata = 4\ncontrol = 4\n[pfc]\n'
        + control("timely", 'low = "0ns"', 'high = "1us"', 'minimum_rate = "100Gb/s"')
    )
    assert (fabric.frame.payload, fabric.frame.time_unit) == (Size(65432), Duration(1000))
    assert getattr(fabric.control, "minimum_rate", None) == Rate(100 * 10**9)
