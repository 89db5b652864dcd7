"""Opening a job of the C library: what a loader asks for, as a spec."""

import os
from ctypes import ArgumentError, byref, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._errors import DaemonGone, from_result
from ._library import JobInfo, TensorInfo, library
from ._tensor import Job, Layout, Lease

_NO_DAEMON = (-2, -111)  # ENOENT, ECONNREFUSED
_INTERRUPTED = -4


@dataclass
class Wanted:
    """What a job is opened with. None: the C library's default."""

    source: str
    batch: int
    rank: int
    world: int
    device: str
    shuffle: str
    last: str
    seed: int
    image: Optional[str] = None
    flip: Optional[float] = None
    seq: Optional[int] = None
    bad: Optional[str] = None
    depth: Optional[int] = None
    delivery: Optional[str] = None
    name: Optional[str] = None

    def calls(self) -> List[Tuple[Any, ...]]:
        """The functions that write it into a spec, with their arguments."""
        calls: List[Tuple[Any, ...]] = [
            ("spec_source", os.fsencode(self.source)),
            ("spec_batch", self.batch),
            ("spec_shard", self.rank, self.world),
            ("spec_device", self.device.encode()),
            ("spec_shuffle", self.shuffle.encode()),
            ("spec_last", self.last.encode()),
            ("spec_seed", self.seed),
        ]
        optional: Dict[str, Any] = {"image": self.image, "flip": self.flip, "seq": self.seq,
                                    "bad": self.bad, "depth": self.depth,
                                    "delivery": self.delivery, "name": self.name}
        for key, value in optional.items():
            if value is not None:
                calls.append((f"spec_{key}", value.encode() if isinstance(value, str) else value))
        return calls


def _connect(socket: Optional[str]) -> int:
    lib = library()
    client = c_void_p()
    result = lib.connect(None if socket is None else os.fsencode(socket), byref(client))
    if result < 0:
        text = lib.error(client).decode(errors="replace")
        lib.close(client)
        raise DaemonGone(-result, text) if result in _NO_DAEMON else from_result(result, text)
    assert client.value
    return client.value


def _not_taken(name: str, arguments: List[Any]) -> str:
    values = [a.decode(errors="replace") if isinstance(a, bytes) else a for a in arguments]
    return (f"{name[len('spec_'):]} {', '.join(map(repr, values))}: of type "
            f"{', '.join(type(v).__name__ for v in values)}, which it does not take")


def _check_range(name: str, arguments: List[Any], types: Sequence[Any]) -> None:
    """ctypes drops the upper bits of what is too large."""
    for value, kind in zip(arguments, types):
        if isinstance(value, int) and kind in (c_uint32, c_uint64) and kind(value).value != value:
            raise ValueError(f"{name[len('spec_'):]} {value}: out of range")


def _spec(wanted: Wanted, start: Tuple[Any, ...]) -> int:
    lib = library()
    spec = c_void_p()
    lib.check(lib.spec_new(byref(spec)), None)
    try:
        for name, *arguments in wanted.calls() + ([start] if start else []):
            function = getattr(lib, name)
            _check_range(name, arguments, function.argtypes[1:])
            try:
                result = function(spec, *arguments)
            except ArgumentError:
                raise TypeError(_not_taken(name, arguments)) from None
            lib.check(result, spec.value)
    except BaseException:
        lib.spec_free(spec)
        raise
    assert spec.value
    return spec.value


def open_job(socket: Optional[str], wanted: Wanted, start: Tuple[Any, ...]) -> Job:
    """Opens a job and waits until its dataset is indexed and its memory reserved; Ctrl-C ends the
    wait. start: a call that says where it begins, or nothing."""
    lib = library()
    spec = _spec(wanted, start)
    try:
        client = _connect(socket)
        try:
            job = c_void_p()
            result = _INTERRUPTED
            while result == _INTERRUPTED:  # a handler that raises ends the loop
                result = lib.job_open(client, spec, byref(job))
            lib.check(result, client)
        finally:
            lib.close(client)
    finally:
        lib.spec_free(spec)
    assert job.value
    return Job(job.value)


def job_info(job: Job) -> JobInfo:
    info = JobInfo()
    job.check(library().job_info(job.pointer, byref(info)))
    return info


def batch_layouts(lease: Lease, n: int) -> Dict[str, Layout]:
    """The tensors of a job's batches, in layout order."""
    layouts: Dict[str, Layout] = {}
    first = 0
    for i in range(n):
        info = TensorInfo()
        lease.job.check(library().batch_tensor_at(lease.live(), i, byref(info)))
        dims, name = info.n_dims, info.name.decode()
        first = first or info.data
        layouts[name] = Layout(i, name, info.dtype, tuple(info.shape[:dims]),
                               tuple(info.strides[:dims]), info.data - first)
    return layouts
