"""A machine that seems to have GPUs: devices become the CPU, and streams and events order nodes only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .graph import COMPUTE, Graph, Refused
from .script import line_of_script

CPU = torch.device("cpu")
ACCELERATORS = ("cuda", "xpu", "hpu", "npu", "mps")


def on_cpu(value: Any) -> Any:
    """Return the CPU in place of an accelerator, and other values as they are."""
    if isinstance(value, torch.device) and value.type in ACCELERATORS:
        return CPU
    if isinstance(value, str) and value.partition(":")[0] in ACCELERATORS:
        return "cpu"
    return value


class OnCpu(TorchFunctionMode):
    """Gives each function of PyTorch the CPU where the script names an accelerator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = CPU if isinstance(kwargs["device"], int) else on_cpu(kwargs["device"])
        if name in ("to", "type", "empty", "zeros", "ones"):
            args = tuple(on_cpu(value) for value in args)
        if name == "to" and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CPU, *args[2:])
        return func(*args, **kwargs)


class Stream:
    """A stream of nodes, in the place of a CUDA stream."""

    graph: Graph

    def __init__(self, *_: Any, **__: Any) -> None:
        self.number = self.graph.new_stream()

    def wait_stream(self, other: Stream) -> None:
        self.graph.wait_for_all(self.number, self.graph.tail(other.number))

    def wait_event(self, event: Event) -> None:
        self.graph.wait_for_all(self.number, event.after)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        self.graph.wait_for_all(self.graph.current, self.graph.tail(self.number))

    def query(self) -> bool:
        return True

    def __enter__(self) -> Stream:
        self._before = self.graph.current
        self.graph.current = self.number
        return self

    def __exit__(self, *_: object) -> None:
        self.graph.current = self._before


class Event:
    """A place in a stream."""

    graph: Graph

    def __init__(self, *_: Any, **__: Any) -> None:
        self.after: frozenset[int] = frozenset()

    def record(self, stream: Stream | None = None) -> None:
        self.after = self.graph.tail(self.graph.current if stream is None else stream.number)

    def wait(self, stream: Stream | None = None) -> None:
        self.graph.wait_for_all(self.graph.current if stream is None else stream.number, self.after)

    def synchronize(self) -> None:
        self.wait()

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Event) -> float:
        return 1.0


def pretend(graph: Graph) -> None:
    """Answer torch.cuda and torch.cpu: so many devices as ranks of a server, and streams of the graph."""
    Stream.graph = Event.graph = graph
    default = Stream.__new__(Stream)
    default.number = COMPUTE
    known = {COMPUTE: default}

    def current_stream(*_: Any) -> Stream:
        return known.get(graph.current, default)

    class Known(Stream):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()
            known[self.number] = self

    @contextmanager
    def stream(own: Stream | None) -> Iterator[None]:
        if own is None:
            yield
            return
        with own:
            yield

    local = int(os.environ["LOCAL_RANK"])
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    properties = SimpleNamespace(
        name="GPU", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132, warp_size=32
    )
    constants: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": devices, "current_device": local,
        "set_device": None, "empty_cache": None, "manual_seed": None, "manual_seed_all": None, "init": None,
        "_lazy_init": None, "reset_peak_memory_stats": None, "reset_max_memory_allocated": None,
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "memory_stats": {}, "mem_get_info": (80 << 30, 80 << 30), "get_device_name": "GPU",
        "get_device_properties": properties, "get_device_capability": (9, 0), "is_bf16_supported": True,
        "default_stream": default,
    }  # fmt: skip
    # A function of its own for each: PyTorch's compiler refuses a function under two names.
    answers = {name: _always(value) for name, value in constants.items()}
    answers |= {
        "synchronize": lambda *_: graph.synchronise(), "current_stream": current_stream, "stream": stream,
        "Stream": Known, "Event": Event,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in ("stream", "Stream", "Event"):
        setattr(torch.cpu, name, answers[name])
    torch.cpu.current_stream = lambda *_: current_stream()
    torch.cpu.synchronize = lambda *_: graph.synchronise()
    torch.nn.Module._apply = _applied
    torch.random.fork_rng = _unforked
    _fix_autocast()
    torch.set_default_device = _without_device(torch.set_default_device)
    torch.compile = _uncompiled(graph)


def _applied(module: Any, function: Any, recurse: bool = True) -> Any:
    """Convert parameters and buffers as Module._apply does; its way of exchanging tensors is not for fake ones."""
    known: dict[int, Any] = {}

    def converted(tensor: Any) -> Any:
        if id(tensor) not in known:
            with torch.no_grad():
                made = function(tensor)
            if made is not tensor and isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            known[id(tensor)] = made
        return known[id(tensor)]

    for own in module.modules() if recurse else (module,):
        for table in (own._parameters, own._buffers):
            table.update({name: converted(tensor) for name, tensor in table.items() if tensor is not None})
    return module


def _always(value: Any) -> Any:
    return lambda *_, **__: value


@contextmanager
def _unforked(*_: Any, **__: Any) -> Iterator[None]:
    """Random numbers have no values here."""
    yield


def _without_device(function: Any) -> Any:
    return lambda device: function(on_cpu(device))


def _fix_autocast() -> None:
    init = torch.amp.autocast_mode.autocast.__init__

    def on_the_cpu(self: Any, device_type: str, *arguments: Any, **named: Any) -> None:
        init(self, on_cpu(device_type), *arguments, **named)

    torch.amp.autocast_mode.autocast.__init__ = on_the_cpu


def _uncompiled(graph: Graph) -> Any:
    """torch.compile as the identity: its fused kernels are not in the graph."""

    def compile_(model: Any = None, **_: Any) -> Any:
        graph.note("torch.compile is left out: operators are those of eager mode")
        return model if model is not None else (lambda function: function)

    return compile_


def refuse_extensions() -> None:
    """Refuse kernels that need a GPU, by the line that imports them."""
    import builtins

    plain = builtins.__import__

    def imported(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] in ("flash_attn", "transformer_engine", "triton", "apex", "cupy", "pycuda"):
            with suppress(ImportError):
                return plain(name, *arguments, **named)
            caller = line_of_script()
            if "torch" not in str((arguments[0] or {}).get("__name__", "") if arguments else ""):
                raise Refused(f"{caller}: imports {name}, whose kernels need a GPU: use PyTorch's own operators")
        return plain(name, *arguments, **named)

    builtins.__import__ = imported
