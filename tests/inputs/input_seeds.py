"""Small files of every kind that the command line reads, written or made here, from which mutations start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from chakra_protobuf.et_def_pb2 import GlobalMetadata, Node, NodeType

from chakra_schemas.attributes import make_attributes
from chakra_schemas.writer import write_trace

# The fuzzer imports this without pytest, which has the helpers' folder on its path.
sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))

COMP, COLL, SEND, RECV = NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE

HOSTS: dict[str, Any] = {
    "host": [
        {"name": "node0", "ranks": "0", "address": "127.0.1.{rank+1}", "device": "mlx5_0:1", "port": "host{rank}"},
        {"name": "node1", "ranks": [1], "address": ["127.0.2.1"], "transport": "softroce"},
    ],
    "calibration": {
        "packet_latency_ns": 8000, "packet_latency_spread_ns": 400, "samples": 100, "transport": "softroce",
        "rate": "200Mb/s", "dilation": 1.0, "scheduling": "SCHED_FIFO",
    },
}  # fmt: skip
FABRICS: list[dict[str, Any]] = [
    {
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 1},
        "link": {"rate": "100Gb/s", "delay": "500ns"},
        "switch": {"shared_buffer": "16MiB"},
        "ecn": {"minimum": "100KiB", "maximum": "400KiB", "probability": 0.2},
        "transport": {"mtu": 4096, "queue_pairs": 2, "congestion": "dcqcn"},
    },
    {
        "topology": {
            "kind": "explicit",
            "host": [{"name": "a"}, {"name": "b"}],
            "switch": [{"name": "s"}],
            "link": [
                {"a": "a", "b": "s", "rate": "10Gb/s", "delay": "1us"},
                {"a": "b", "b": "s", "rate": "10Gb/s", "delay": "1us"},
            ],
        },
        "switch": {"shared_buffer": "4MiB"},
        "pfc": {"headroom": "100KiB"},
        "fault": [{"cable": ["a", "s"], "at": "10us", "until": "20us", "rate": "1Gb/s"}],
        "routing": {"reroute_delay": "200us"},
        "addresses": {"a": ["10.0.0.1"]},
    },
    {
        "topology": {"kind": "fat-tree", "k": 4},
        "link": {"rate": "25Gb/s", "delay": "1us"},
        "switch": {"shared_buffer": "32MiB", "alpha": 0.125, "reserve": 4096},
        "pfc": {"priorities": [3]},
        "priority": {"data": 3, "control": 6},
        "congestion": {"kind": "swift"},
    },
    {"topology": {"kind": "torus", "size": [2, 2], "hosts_per_router": 1}, "link": {"rate": "25Gb/s", "delay": "1us"}},
]
FAULTS: dict[str, Any] = {
    "rate": [{"rank": 1, "factor": 0.5, "from_iteration": 6, "until_iteration": 9, "from_s": 0.001, "until_s": 0.05}],
    "loss": [{"rank": 0, "every": 100, "peer": 1}],
    "delay": [{"rank": 1, "peer": 0, "delay_us": 200}],
    "congestion": [{"rank": 1, "control": False}],
}
SWEEP: dict[str, Any] = {
    "base": {
        "fabric": "fabric.toml", "seed": 1,
        "traffic": {"kind": "poisson", "duration": "1ms", "sizes": "64KiB", "load": 0.5},
    },
    "grid": {"fabric.link.rate": ["10Gb/s", "25Gb/s"], "traffic.load": [0.3, 0.5]},
}  # fmt: skip
AICB_TEXT = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 checkpoints: 1 0 \
checkpoint_initiates: 1 1
2
embedding -1 100 ALLREDUCE 400 200 NONE 0 300 ALLREDUCE 800 5
mlp -1 110 ALLTOALL_EP 400 210 ALLREDUCE 400 310 REDUCESCATTER 800 5
"""
AICB_LIST = """\
[rank0 ~ rank3]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
CommType.all_reduce,CommGroup.tp_group,2,4096,forward,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
CommType.broadcast,CommGroup.dp_group,2,100,,None,None,,None,None,None,1
CommType.computation,CommGroup.all,None,((16 2 8) (8 32)),forward,None,None,,None,None,None,1
CommType.barrier,CommGroup.all,4,999,step,None,None,,None,None,None,1
"""
MSCCL = """\
<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1" minBytes="0" \
maxBytes="1000000">
<gpu id="0" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
<gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
</algo>
"""
NCCL_XML = """\
<system version="1"><cpu numaid="0" arch="x86_64">
<pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
<pci busid="0000:11:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="ffff:ff:ff" count="18" tclass="0x068000"/></gpu></pci>
<pci busid="0000:12:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic></pci></pci></cpu>
</system>
"""
SIMAI = """\
7 2 2 1 8 H100
4 5 6
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 100Gbps 0.001ms 0
1 6 100Gbps 0.001ms 0
2 6 100Gbps 0.001ms 0
3 6 100Gbps 0.001ms 0
"""
NS3_CONFIG = """\
PACKET_PAYLOAD_SIZE 1000
TOPOLOGY_FILE topology.txt
FLOW_FILE flows.txt
CC_MODE 12
HAS_WIN 0
KMAX_MAP 2 25000000000 400 100000000000 1600
KMIN_MAP 2 25000000000 100 100000000000 400
PMAX_MAP 2 25000000000 0.2 100000000000 0.2
BUFFER_SIZE 32
"""
NS3_TOPOLOGY = "4 1 3\n3\n3 0 100Gbps 0.001ms 0\n3 1 100Gbps 0.001ms 0\n3 2 100Gbps 0.001ms 0\n"
NS3_FLOWS = "2\n0 2 3 100 1000000 2.0\n1 2 3 100 5000 2.00001\n"
ASTRA_NETWORK = {"topology": ["Ring", "Switch"], "npus_count": [2, 2], "bandwidth": [200.0, 50], "latency": [50, 500.0]}
ASTRA_SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "halvingDoubling"], "all-gather-implementation": ["direct2", "ring"],
    "reduce-scatter-implementation": ["ring", "ring"], "all-to-all-implementation": ["direct", "direct"],
    "collective-optimization": "localBWAware", "local-mem-bw": 1600, "peak-perf": 900, "roofline-enabled": 1,
    "boost-mode": 0,
}  # fmt: skip
NCCL_CONF = (
    "# variables\nNCCL_ALGO=Ring\nNCCL_MAX_NCHANNELS=2\nNCCL_BUFFSIZE=1048576\nNCCL_IB_TC=106\nNCCL_PROTO=Simple\n"
)
SIZES = "# bytes percent\n1000 10\n20000 60\n1000000 100\n"
GROUPS = {"0": [0, 1], "g": [0, 1], "one": [1]}


def nodes_of(rank: int) -> list[Node]:
    """A rank that computes, reduces, sends or receives, and exchanges."""

    def node(number: int, kind: int, deps: tuple[int, ...] = (), **attributes: Any) -> Node:
        return Node(id=number, name=f"n{number}", type=kind, data_deps=deps, attr=make_attributes(attributes))  # type: ignore[arg-type]

    peer = {"comm_dst": 1, "comm_src": 0}
    split = [500, 100] if rank else [100, 500]
    return [
        node(1, COMP, duration_ns=20_000, num_ops=1000, tensor_size=64),
        node(2, COLL, (1,), comm_type=0, comm_size=20_000, is_cpu_op=False),
        node(3, COMP, (2,), duration_ns=5_000, stream=3),
        node(4, RECV if rank else SEND, (3,), comm_size=4_000, comm_tag=3, **peer),
        node(5, COLL, (4,), comm_type=6, comm_size=600, pg_name="g", in_split_bytes=split, out_split_bytes=split),
        node(6, COLL, (5,), comm_type="BROADCAST", comm_size=64, root=1, pg_name="g"),
    ]


def write_workload(folder: Path, suffix: str = "et") -> Path:
    """Two ranks and their groups; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(2):
        write_trace(folder / f"t.{rank}.{suffix}", GlobalMetadata(version="1.1"), nodes_of(rank), suffix.endswith("gz"))
    (folder / "t.json").write_text(json.dumps({"g": [0, 1]}))
    return folder


def write_plain(folder: Path) -> None:
    """Two ranks with what ASTRA-sim's model has."""
    folder.mkdir()
    for rank in range(2):
        write_trace(folder / f"t.{rank}.et", GlobalMetadata(version="1.1"), nodes_of(rank)[:3])


def graph_json() -> dict[str, Any]:
    """A rank in the form {"workload_graph": [...]}."""
    return {
        "workload_graph": [
            {"Id": 1, "Name": "c", "NodeType": 4, "runtime": 20, "num_ops": 5, "tensor_size": 7, "data_deps": []},
            {"Id": 2, "Name": "a", "NodeType": 7, "ctrl_deps": [1], "comm_type": 0, "comm_size": 1024, "pg_name": "0"},
        ]
    }


def message_json() -> list[dict[str, Any]]:
    """A rank in the form of concatenated messages."""
    size = [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "1024"}]
    return [
        {"version": "0.0.4"},
        {"id": "1", "name": "c", "type": "COMP_NODE", "durationMicros": "20"},
        {"id": "2", "name": "a", "type": "COMM_COLL_NODE", "dataDeps": ["1"], "attr": size},
    ]


def pytorch(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(host traces, profiles) of two ranks."""
    from pytorch_samples import Sample, tensor

    hosts, devices = [], []
    for rank in range(2):
        sample = Sample()
        sample.operator("aten::mm", 10, 20)
        sample.launch(1, 12, 3)
        sample.kernel("gemm", 16, 40, 7, 1)
        sample.communication("all_reduce", 50, 20, tensor(256), tensor(256), 1, rest=(0, 1, 2))
        sample.launch(2, 55, 3)
        sample.kernel("ncclDevKernel_AllReduce", 60, 100, 20, 2)
        sample.communication("all_to_allv", 75, 20, tensor(8), tensor(8), 2, splits=([3, 5], [3, 5]), rest=(0, 1, 2))
        sample.launch(3, 80, 3)
        sample.kernel("ncclDevKernel_SendRecv", 170, 30, 20, 3)
        sample.synchronization(4, stream=20, wait_on_stream=7, wait_on_cuda_event_record_corr_id=1)
        sample.call("cudaStreamWaitEvent", 90, 2, 4)
        sample.copy("Memcpy HtoD", 210, 5, 7, 5, 4096)
        sample.call("cudaMemcpyAsync", 205, 2, 5)
        sample.call("cudaDeviceSynchronize", 215, 30, 6)
        host, device = sample.write(folder, rank)
        hosts.append(json.loads(host.read_text()))
        devices.append(json.loads(device.read_text()))
        groups = [{"pg_name": "0", "ranks": [0, 1]}]
        devices[-1]["distributedInfo"] = {"rank": rank, "world_size": 2, "pg_config": groups}
        host.unlink()
        device.unlink()
    return hosts, devices


def write_runs(folder: Path) -> None:
    """OUT/live and OUT/twin of a made-up job of 4 ranks, with all files that a run may have."""
    import polars as pl
    from synthetic_runs import run_pair

    from genie.record import write_run
    from genie.record.schemas import PATHS_SCHEMA

    softroce = [{"data_sent": 100, "retransmitted": 2, "latest_departure_ns": 7} for _ in range(4)]
    device = {
        "host": "localhost",
        "device": "lo",
        "kind": "interface",
        "driver": "",
        "ranks": [0],
        "counters": {"rx": 7},
    }
    warning = {"severity": 3, "host": "h", "device": "d", "counter": "c", "grew": 5, "devices": 1, "text": "c grew"}
    links = [{"link": f"host{rank}-switch0", "packets": 5, "size_bytes": 900, "dropped": 0} for rank in range(4)]
    rows = [
        {"src": src, "dst": dst, "source_port": 49152 + src, "hop": hop, "link": name, "probe_ns": None}
        for src in range(4) for dst in range(4) if src != dst
        for hop, name in enumerate((f"host{src}->switch0", f"switch0->host{dst}"))
    ]  # fmt: skip
    for run in run_pair(3, iterations=4, warmup=1, ranks=4):
        world = run.info["world"]
        more = {
            "complete": True, "recorded_at": "2026-01-01T00:00:00+00:00", "workload": "w", "fabric": "f",
            "lowering": {"wire": "nccl", "channels": 2}, "algorithms": {"all_reduce ring": 2}, "level": "packet",
            "settings": {"mtu": 4096, "verify": False}, "paths": {"changed": False, "pairs": 12},
        }  # fmt: skip
        counters = (
            {"ranks": softroce, "devices": [device], "warnings": [warning]} if world == "live" else {"links": links}
        )
        paths = pl.DataFrame(rows, schema=PATHS_SCHEMA)
        write_run(folder / world, run.info | more, run.timeline, run.transfers, counters, paths)


def write_followed(folder: Path) -> None:
    """A run of the workload that `write_workload` writes, as if it had been measured."""
    from genie.record import write_run
    from genie.workload.load import load
    from simtwin.fabric.reading import loopback_fabric
    from simtwin.fabric.topology import build_network
    from simtwin.play.twin import Twin

    workload = load(write_workload(folder / "of"))
    fabric = loopback_fabric(2, 10**10)
    run = Twin(fabric, build_network(fabric), range(2)).play(workload, iterations=(0, 1))
    info = {"world": "live", "ranks": 2, "iterations": 2, "warmup": 0, "dilation": 1, "complete": True}
    write_run(folder / "live", info, run.timeline, run.transfers, {"ranks": [None, None]})


LAUNCH: dict[str, Any] = {
    "workload": "w", "out": "out", "ranks": 2, "addresses": ["127.0.1.1", "127.0.1.2"], "ports": [None, None],
    "host_names": ["localhost", "localhost"], "rate_bps": 10**9, "dilation": 1, "iterations": 3, "warmup": 0, "seed": 1,
    "nccl": {"channels": 2}, "faults": FAULTS, "verbs": {"hca": ""}, "congestion": {"kind": "none"},
}  # fmt: skip


VERDICT: dict[str, Any] = {
    "schema": 1, "result": "fail", "summary": "FAIL", "runs": {"live": "live", "workload": "w", "fabric": "f"},
    "iterations": [{"iteration": 1, "measured_ns": 1000, "simulated_ns": 900}],
    "suspects": [{"kind": "nic", "name": "host1/nic0", "slow_down": 0.5}],
}  # fmt: skip
