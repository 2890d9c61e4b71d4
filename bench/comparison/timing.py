"""Seconds a call. On a GPU: calls captured in CUDA graphs over buffers that do not fit its cache, and beside that the
time of a loop of calls, the host's share included. On a CPU: calls over buffers that do not fit its caches. A copy of
the same tensors has its turns between them. Used by worker.py and bench/pytorch.py. SPDX-License-Identifier: MIT"""

import ctypes
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from comparison.yardstick import Yardstick

Call = Callable[[], Any]
ROTATED = {"cpu": 256 << 20, "cuda": 512 << 20}  # bytes of the inputs of all sets together
SETS = {"cpu": 256, "cuda": 128}  # at most
LOOP = 32  # calls of a loop, at least
GRAPH_CALLS, GRAPH_SECONDS = 128, 20e-3  # calls of a graph, or as many as take so long
TIMED, MOST_REPLAYS = 5e-3, 50  # seconds of what is timed at once, by as many replays of a graph
CHOSEN_ON = 64 << 20  # bytes of the tensors that the way to copy is chosen on
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt
NOT_CAPTURED = "not captured in a graph: the time of its kernels alone"


class Times(NamedTuple):
    seconds: float  # of the device; on a CPU, of the call
    copy_seconds: float  # of a copy that moves as many bytes
    host_seconds: float | None  # on a GPU, of a call in a loop that ends with one wait
    note: str = ""


def sets_for(device: str, tensor_bytes: int, quick: bool) -> int:
    """How many sets of buffers make the caches forget the first before it is used again."""
    wanted = ROTATED[device] // (8 if quick and device == "cpu" else 1)
    return max(2 if tensor_bytes < wanted else 1, min(SETS[device], -(-wanted // tensor_bytes)))


def by_turns(calls: dict[str, Call], rounds: int, repeats: int = 1, wait: Call | None = None) -> dict[str, float]:
    """Seconds a call on this thread: the median over rounds, in each of which every one has its turn. What `wait` waits
    for is not counted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(repeats):
                call()
            elapsed = (time.perf_counter() - began) / repeats
            if wait:
                wait()
            if turn > 0:  # the first is a warm-up
                found[name].append(elapsed)
    return {name: statistics.median(times) for name, times in found.items()}


# ---- GPU ----


def passes_for(count: int, seconds: float) -> int:
    """How often a graph goes through `count` calls of so many seconds. Its start takes the GPU 10 to 20 us where
    launches overlap: a graph of two calls would charge each of them half of that."""
    return max(1, min(-(-GRAPH_CALLS // count), int(GRAPH_SECONDS / (count * seconds))))


class Graph:
    """Calls captured one after another on the stream where their inputs were made."""

    def __init__(self, calls: Sequence[Call], side: torch.cuda.Stream) -> None:
        passes = passes_for(len(calls), self._warm(calls[:2], side))
        self.count, self.replays = len(calls) * passes, 1
        self.graph = torch.cuda.CUDAGraph()
        self.results: list[Any] = [None] * len(calls)  # all alive, so that each has memory of its own
        with torch.cuda.graph(self.graph, stream=side):
            for _ in range(passes):
                for i, call in enumerate(calls):
                    self.results[i] = call()
        self.replays = max(1, min(MOST_REPLAYS, round(TIMED / (self.count * self.seconds()))))

    @staticmethod
    def _warm(calls: Sequence[Call], side: torch.cuda.Stream) -> float:
        """Seconds of a call, the host's share included."""
        began = 0.0
        for _ in range(2):  # the first compiles
            side.synchronize()
            began = time.perf_counter()
            with torch.cuda.stream(side):
                for call in calls:
                    call()
            side.synchronize()
        return (time.perf_counter() - began) / len(calls)

    def seconds(self) -> float:
        """Of a call, in some replays one after another."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(self.replays):
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / self.count / self.replays


def additions(ordered: Iterable[tuple[float, float]]) -> Iterator[float]:
    """What each interval, in order of begin, adds to the union of those before it."""
    reached = float("-inf")
    for begin, end in ordered:
        yield max(0.0, end - max(begin, reached))
        reached = max(reached, end)


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Of the time that is in at least one of them. Their sum would count twice where one begins before another ends: a
    kernel of a programmatic dependent launch starts early, and waits inside."""
    return sum(additions(sorted(intervals)))


class Loop:
    """The same of calls that cannot be captured: what their kernels take, as the profiler sees them, without the gaps
    that the host leaves between them."""

    def __init__(self, calls: Sequence[Call], side: torch.cuda.Stream) -> None:
        self.calls, self.side = calls, side
        self.seconds()

    def seconds(self) -> float:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler, torch.cuda.stream(self.side):
            for call in self.calls:
                call()
            self.side.synchronize()
        kernels = [e for e in profiler.events() if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
        microseconds = union_length((kernel.time_range.start, kernel.time_range.end) for kernel in kernels)
        return microseconds / 1e6 / len(self.calls)


def graph_seconds(graphs: dict[str, Graph | Loop], rounds: int) -> dict[str, float]:
    """Seconds a call of each: the median over rounds by turns, two of them for warming up."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds + 2):
        for name, graph in graphs.items():
            found[name].append(graph.seconds())
    return {name: statistics.median(times[2:]) for name, times in found.items()}


def _host_seconds(calls: Sequence[Call], side: torch.cuda.Stream, rounds: int) -> float:
    """Of a call in a loop that ends with one wait, which many calls share."""
    many = [calls[i % len(calls)] for i in range(max(len(calls), LOOP))]

    def loop() -> None:
        with torch.cuda.stream(side):
            for call in many:
                call()
        side.synchronize()

    return by_turns({"": loop}, rounds)[""] / len(many)


def _graph_or_loop(calls: Sequence[Call], side: torch.cuda.Stream, captured: bool) -> tuple[Graph | Loop, str]:
    if not captured:
        return Loop(calls, side), NOT_CAPTURED
    try:
        return Graph(calls, side), ""
    except RuntimeError as error:  # of the capture; what ails the calls themselves shows again in the loop
        torch.cuda.set_stream(torch.cuda.default_stream())  # a capture that fails leaves its own as the current one
        torch.cuda.synchronize()
        return Loop(calls, side), f"{NOT_CAPTURED} ({str(error).splitlines()[0][:80]})"


def _time_cuda(
    calls: Sequence[Call], copies: Sequence[Sequence[Call]], side: torch.cuda.Stream, rounds: int, captured: bool
) -> Times:
    timed, note = _graph_or_loop(calls, side, captured)
    ways = {f"copy {i}": Graph(way, side) for i, way in enumerate(copies)}
    found = graph_seconds({"": timed, **ways}, rounds)
    seconds = found.pop("")
    return Times(seconds, min(found.values()), _host_seconds(calls, side, max(3, rounds // 3)), note)


# ---- CPU ----


def open_yardstick(library: str, threads: int) -> Yardstick:
    """The copy of `evenkeel bench`, its way chosen."""
    yardstick = Yardstick(library, threads)
    to, source = (torch.ones(CHOSEN_ON, dtype=torch.uint8) for _ in range(2))
    yardstick.prepare(to.data_ptr(), source.data_ptr(), CHOSEN_ON)
    return yardstick


def keep_memory() -> None:
    """The C library keeps what is freed, so that results of every library lie in memory that was used before: pages
    that are new take longer to come than a norm takes to write them."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def _over(calls: Sequence[Call]) -> Call:
    def sweep() -> list[Any]:
        return [call() for call in calls]  # all alive, so that each has memory of its own

    return sweep


def _time_cpu(calls: Sequence[Call], copies: Sequence[Sequence[Call]], rounds: int) -> Times:
    sweeps = {"": _over(calls), **{f"copy {i}": _over(ways) for i, ways in enumerate(copies)}}
    found = by_turns(sweeps, rounds)
    seconds = found.pop("") / len(calls)
    return Times(seconds, min(found.values()) / len(copies[0]), None)


class Clock:
    """Times calls on a device, each with copies of the same tensors between them."""

    def __init__(self, device: str, threads: int, quick: bool, library: str | None = None) -> None:
        """`library` holds the copy of `evenkeel bench`; without one, a CPU is held against PyTorch's alone."""
        self.rounds = 3 if quick else 5 if device == "cpu" else 9
        self.side = torch.cuda.Stream() if device == "cuda" else None
        self.yardstick = None
        if device == "cpu":
            keep_memory()
            self.yardstick = open_yardstick(library, threads) if library else None

    def stream(self) -> Any:
        """Where tensors of calls to be timed are made."""
        return torch.cuda.stream(self.side) if self.side else nullcontext()

    def pairs(self, x: Tensor, elements: int, sets: int) -> list[tuple[Tensor, Tensor]]:
        """Targets and sources of copies of so many elements, with the values of x."""
        source = x.detach().flatten().repeat(-(-elements // x.numel()))[:elements]
        return [(torch.empty_like(source), source.clone()) for _ in range(sets)]

    def time(self, calls: Sequence[Call], pairs: Sequence[tuple[Tensor, Tensor]], captured: bool) -> Times:
        """Of one call, and of one copy of a pair's source to its target."""
        copies = [lambda to=to, source=source: to.copy_(source) for to, source in pairs]
        if self.side:  # from 512 MB on, copy_ is slower than a kernel that reads and writes as much
            kernels = [lambda to=to, source=source: torch.abs(source, out=to) for to, source in pairs]
            return _time_cuda(calls, (copies, kernels), self.side, self.rounds, captured)
        if not (yardstick := self.yardstick):
            return _time_cpu(calls, (copies,), self.rounds)
        places = [(to.data_ptr(), source.data_ptr(), source.nbytes) for to, source in pairs]
        streams = [lambda place=place: yardstick.copy(*place) for place in places]
        return _time_cpu(calls, (copies, streams), self.rounds)
