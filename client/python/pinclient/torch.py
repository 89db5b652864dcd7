"""Any PyTorch dataset through the daemon: `pin(loader_or_dataset)`."""

import errno
import gc
import mmap
import multiprocessing.reduction
import os
import random
import select
import sys
import time
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import default_collate

from . import _frameworks, _private
from ._errors import AllLeased, Error, Forked, Timeout
from ._job import Wanted, batch_layouts, job_info, open_job
from ._library import BatchInfo, Slot, TensorInfo, library
from ._tensor import Job, Layout, Lease, Place, place_of

__all__ = ["Pinned", "pin"]

_EINTR, _EBUSY, _ETIMEDOUT = -errno.EINTR, -errno.EBUSY, -errno.ETIMEDOUT
_LOOK_MS = 1000
_TENSORS_MAX, _DEPTH_MAX = 8, 128
_ENDLESS = 1 << 40  # batches: the passes are counted here
_AHEAD = 2          # batches that are committed before the first of them is taken
_HELD = 2           # batches in the hands of a loop: one, while it takes the next

_DTYPES = {torch.uint8: 0, torch.float32: 1, torch.int64: 2, torch.int8: 4, torch.int16: 6,
           torch.int32: 8, torch.float16: 9, torch.float64: 10, torch.bfloat16: 11,
           torch.bool: 0}


# -- the structure of a batch ---------------------------------------------------------------------

class _Leaf(NamedTuple):
    """The place of a tensor in the structure of a batch."""
    number: int


def _rebuilt(like: Any, values: List[Any]) -> Any:
    """A sequence like another one."""
    if hasattr(like, "_fields"):
        return type(like)(*values)
    return tuple(values) if isinstance(like, tuple) else values


def _flatten(value: Any, tensors: List[torch.Tensor]) -> Any:
    """The structure of a batch with a leaf for each tensor; all else stays in it."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Leaf(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _flatten(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return _rebuilt(value, [_flatten(item, tensors) for item in value])
    return value


def _unflatten(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(structure, _Leaf):
        return tensors[structure.number]
    if isinstance(structure, dict):
        return {key: _unflatten(item, tensors) for key, item in structure.items()}
    if isinstance(structure, (list, tuple)):
        return _rebuilt(structure, [_unflatten(item, tensors) for item in structure])
    return structure


# -- in the process that makes the samples --------------------------------------------------------

class _Piece(NamedTuple):
    """A tensor of a slot."""
    offset: int
    dtype: torch.dtype
    shape: Tuple[int, ...]  # of a sample


class _Grant(NamedTuple):
    """A slot, as it goes to whoever fills it."""
    step: int
    region: int
    offset: int


class _Regions:
    """The memory of the slots, here and in the processes that are started."""

    def __init__(self, files: Dict[int, Tuple[int, int]]):
        self._files = files  # number: descriptor, bytes
        self._maps: Dict[int, mmap.mmap] = {}

    def __reduce__(self) -> Any:
        return _regions_of, ({number: (multiprocessing.reduction.DupFd(fd), size)
                              for number, (fd, size) in self._files.items()},)

    def tensor(self, grant: _Grant, piece: _Piece, count: int) -> torch.Tensor:
        memory = self._maps.get(grant.region)
        if memory is None:
            fd, size = self._files[grant.region]
            memory = self._maps[grant.region] = mmap.mmap(fd, size)
        shape = (count,) + piece.shape
        elements = 1
        for size in shape:
            elements *= size
        return torch.frombuffer(memory, dtype=piece.dtype, count=elements,
                                offset=grant.offset + piece.offset).view(shape)


def _regions_of(files: Dict[int, Tuple[Any, int]]) -> _Regions:
    return _Regions({number: (fd.detach(), size) for number, (fd, size) in files.items()})


def _wrong(number: int, what: str, have: Any, want: Any) -> ValueError:
    return ValueError(f"tensor {number} of the batch has {what} {have}, and before it was {want}: "
                      "all batches must be alike but for the count of samples")


class _Filler(Dataset):  # type: ignore[type-arg]
    """A dataset of batches: its index is a slot and the indices of the samples, and the batch is
    left in the slot."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], structure: Any,
                 pieces: List[_Piece], batch: int, regions: _Regions):
        self._dataset, self._collate, self._structure = dataset, collate, structure
        self._pieces, self._batch, self._regions = pieces, batch, regions

    def __getitem__(self, wanted: Tuple[_Grant, Sequence[Any]]) -> Tuple[int, int, Any]:
        grant, indices = wanted
        if not 0 < len(indices) <= self._batch:
            raise ValueError(f"a batch of {len(indices)} samples; there is room for {self._batch}")
        samples = _fetch(self._dataset, indices)
        views = [self._regions.tensor(grant, piece, len(indices)) for piece in self._pieces]
        if self._collate is default_collate:
            return grant.step, len(indices), self._stack(self._structure, samples, views)
        tensors: List[torch.Tensor] = []
        structure = _flatten(self._collate(samples), tensors)
        if len(tensors) != len(views):
            raise _wrong(len(tensors), "number", len(tensors), len(views))
        for number, (tensor, view) in enumerate(zip(tensors, views)):
            self._check(number, tensor.shape, view.shape, tensor.dtype)
            view.copy_(tensor)
        return grant.step, len(indices), structure

    def _check(self, number: int, shape: Any, want: Any, dtype: torch.dtype) -> None:
        if tuple(shape) != tuple(want):
            raise _wrong(number, "shape", tuple(shape), tuple(want))
        if dtype != self._pieces[number].dtype:
            raise _wrong(number, "type", dtype, self._pieces[number].dtype)

    def _stack(self, structure: Any, column: List[Any], views: List[torch.Tensor]) -> Any:
        """default_collate, into the slot."""
        if isinstance(structure, _Leaf):
            view = views[structure.number]
            first = column[0]
            if isinstance(first, (torch.Tensor,)) or hasattr(first, "__array__"):
                parts = [torch.as_tensor(part) for part in column]
                for part in parts:
                    self._check(structure.number, part.shape, view.shape[1:], part.dtype)
                torch.stack(parts, 0, out=view)
            else:
                view.copy_(torch.tensor(column, dtype=view.dtype))
            return structure
        if isinstance(structure, dict):
            return {key: self._stack(item, [part[key] for part in column], views)
                    for key, item in structure.items()}
        if isinstance(structure, (list, tuple)) and not isinstance(column[0], (str, bytes)):
            return _rebuilt(structure, [self._stack(item, [part[i] for part in column], views)
                                        for i, item in enumerate(structure)])
        return default_collate(column)


def _fetch(dataset: Any, indices: Sequence[Any]) -> List[Any]:
    many = getattr(dataset, "__getitems__", None)
    return list(many(indices)) if many else [dataset[index] for index in indices]


def _same(value: Any) -> Any:
    return value


# -- in the trainer -------------------------------------------------------------------------------

@dataclass
class _Wanted(Wanted):
    """A job whose batches are pushed."""

    tensors: List[Tuple[bytes, int, Tuple[int, ...]]] = field(default_factory=list)

    def calls(self) -> List[Tuple[Any, ...]]:
        calls: List[Tuple[Any, ...]] = [
            ("spec_push", self.source.encode(), _ENDLESS * self.batch)]
        for name, dtype, shape in self.tensors:
            calls.append(("spec_push_tensor", name, dtype, len(shape),
                          (c_uint64 * max(1, len(shape)))(*shape)))
        return calls + [("spec_batch", self.batch), ("spec_device", self.device.encode()),
                        ("spec_depth", self.depth)] + [
            (f"spec_{key}", value.encode()) for key, value in (("delivery", self.delivery),
                                                               ("name", self.name)) if value]


class _Slots:
    """The sampler: what the loader's batch sampler gives, each with a slot."""

    def __init__(self, pinned: "Pinned", batches: Any):
        self._pinned, self._batches = pinned, batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Tuple[_Grant, List[Any]]]:
        for i, indices in enumerate(self._batches):
            if i == 0:
                self._pinned._reclaim()
            yield self._pinned._acquire(), list(indices)


def _first_batch(loader: Any) -> Any:
    """An example, made with every generator of random numbers left as it was."""
    states = random.getstate(), torch.get_rng_state()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    generators = [generator for generator in (
        loader.generator, getattr(loader.sampler, "generator", None)) if generator is not None]
    kept = [generator.get_state() for generator in generators]
    try:
        indices = list(next(iter(loader.batch_sampler)))
        if loader.collate_fn is default_collate:
            indices = indices[:1]
        return loader.collate_fn(_fetch(loader.dataset, indices)), len(indices)
    except StopIteration:
        raise ValueError("the loader has no batches") from None
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if numpy:
            numpy.random.set_state(numpy_state)
        for generator, state in zip(generators, kept):
            generator.set_state(state)


def _batch_size(loader: Any) -> int:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if not size:
        raise ValueError("pin: the batch sampler does not tell its batch_size")
    return int(size)


class Pinned:
    """A DataLoader's batches, complete in the memory of the GPU; see `pin`."""

    def __init__(self, loader: Any, device: Any, daemon: Any, depth: Optional[int],
                 timeout: float, delivery: Optional[str], name: Optional[str]):
        self._job: Optional[Job] = None
        if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
            raise TypeError("pin takes datasets with indices, and loaders of batches")
        self.loader = loader
        self._timeout = timeout
        batch = _batch_size(loader)
        example, count = _first_batch(loader)
        tensors: List[torch.Tensor] = []
        structure = _flatten(example, tensors)
        if not 0 < len(tensors) <= _TENSORS_MAX:
            raise ValueError(f"pin: a batch of {len(tensors)} tensors; 1 to {_TENSORS_MAX} are "
                             "possible")
        for number, tensor in enumerate(tensors):
            if tensor.dim() == 0 or tensor.shape[0] != count or tensor.dtype not in _DTYPES:
                raise ValueError(f"pin: tensor {number} of the batch is {tensor.dtype} of shape "
                                 f"{tuple(tensor.shape)}: its first dimension must be the batch of "
                                 f"{count} samples, its type one of integers or floats")
        workers = loader.num_workers
        ahead = workers * loader.prefetch_factor if workers else 1
        wanted = ahead + _AHEAD + _HELD
        self._dtypes = [tensor.dtype for tensor in tensors]
        self._wanted = _Wanted(
            source=type(loader.dataset).__name__, batch=batch, rank=0, world=1,
            device=_frameworks.device_name(device, "torch"), shuffle="none", last="partial", seed=0,
            depth=depth or min(wanted, _DEPTH_MAX), delivery=delivery,
            name=name or os.path.basename(sys.argv[0]) or None,
            tensors=[(b"%d" % i, _DTYPES[tensor.dtype], tuple(tensor.shape[1:]))
                     for i, tensor in enumerate(tensors)])
        self._open(daemon)
        self._inner = self._loader_of_slots(structure, batch)
        self._iterator: Any = None

    # -- opening ----------------------------------------------------------------------------------

    def _open(self, daemon: Any) -> None:
        self._daemon = _private.shared() if daemon == "private" else daemon
        own = isinstance(self._daemon, _private.PrivateDaemon)
        self._job = open_job(self._daemon.socket if own else self._daemon, self._wanted, ())
        info = job_info(self._job)
        self._depth, self._n = int(info.depth), int(info.n_tensors)
        self._fd: Optional[int] = None
        self._layouts: Dict[int, Dict[str, Layout]] = {}
        self._place: Optional[Place] = None
        self._make = _frameworks.makers["torch"]()
        self._filling: Dict[int, Slot] = {}  # by step, with whoever fills them
        self._spare: List[int] = []          # of these: steps whose slots nobody fills any more
        self._owed: Dict[int, Tuple[int, Any]] = {}  # committed: the pass and the structure
        self._pass = 0

    def _loader_of_slots(self, structure: Any, batch: int) -> Any:
        loader = self.loader
        slot = self._slot()
        pieces = []
        for i, (dtype, wanted) in enumerate(zip(self._dtypes, self._wanted.tensors)):
            info = TensorInfo()
            self._live().check(library().slot_tensor(self._live().pointer, byref(slot), i,
                                                     byref(info)))
            pieces.append(_Piece(info.data - slot.data, dtype, wanted[2]))
        self._spare.append(slot.step)
        # All regions are there when the job is: each of its slots is granted once.
        files = {slot.region: (slot.fd, slot.region_bytes)}
        while len(self._filling) < self._depth:
            more = self._slot()
            files[more.region] = (more.fd, more.region_bytes)
            self._spare.append(more.step)
        only = {}
        if loader.num_workers:
            only = {"prefetch_factor": loader.prefetch_factor,
                    "multiprocessing_context": loader.multiprocessing_context}
        filler = _Filler(loader.dataset, loader.collate_fn, structure, pieces, batch,
                         _Regions(files))
        return DataLoader(filler, batch_size=None, sampler=_Slots(self, loader.batch_sampler),
                          num_workers=loader.num_workers, collate_fn=_same, timeout=loader.timeout,
                          worker_init_fn=loader.worker_init_fn, generator=loader.generator,
                          persistent_workers=loader.persistent_workers, **only)

    def _live(self) -> Job:
        if self._job is None:
            raise Error(errno.EBADF, "this loader is closed")
        return self._job

    # -- slots ------------------------------------------------------------------------------------

    def _slot(self) -> Slot:
        """A slot for the next batch, which is being filled from now on."""
        job, lib = self._live(), library()
        slot = Slot()
        deadline = time.monotonic() + self._timeout if self._timeout else None
        generation = 0
        while True:
            result = lib.slot_acquire(job.pointer, _LOOK_MS, byref(slot))
            if result == 0:
                self._filling[slot.step] = slot
                return slot
            if result == _EBUSY:
                if generation == 3:
                    raise AllLeased(
                        errno.EBUSY, f"all {self._depth} slots are with the workers or in batches "
                        "that are still referred to: none can come until a batch is gone. Let them "
                        f"go, copy what is to be kept, or ask for more with depth= ({self._depth} "
                        "now)")
                gc.collect(generation)
                generation += 1
            elif result == _ETIMEDOUT:
                if deadline is not None and time.monotonic() >= deadline:
                    raise Timeout(errno.ETIMEDOUT, f"no slot within {self._timeout:g} s")
            elif result != _EINTR:
                job.check(result)

    def _acquire(self) -> _Grant:
        slot = self._filling[self._spare.pop(0)] if self._spare else self._slot()
        return _Grant(slot.step, slot.region, slot.offset)

    def _reclaim(self) -> None:
        """A pass begins: nobody works for the one before any more."""
        self._spare = sorted(self._filling)

    def _commit(self, step: int, count: int, structure: Any) -> None:
        slot = self._filling[step]
        slot.count = count
        self._live().check(library().slot_commit(self._live().pointer, byref(slot), None))
        del self._filling[step]
        self._owed[step] = (self._pass, structure)

    # -- batches ----------------------------------------------------------------------------------

    def _wait(self, deadline: Optional[float]) -> None:
        if self._fd is None:
            self._fd = self._live().check(library().get_fd(self._live().pointer))
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        left = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
        if not poll.poll(left) and deadline is not None and time.monotonic() >= deadline:
            raise Timeout(errno.ETIMEDOUT, f"no batch within {self._timeout:g} s")

    def _lease(self) -> Lease:
        job, lib = self._live(), library()
        pointer = c_void_p()
        deadline = time.monotonic() + self._timeout if self._timeout else None
        while True:
            result = lib.next(job.pointer, 0, byref(pointer))
            if result == 0:
                assert pointer.value
                return Lease(pointer.value, job)
            if result == _ETIMEDOUT:
                self._wait(deadline)
            elif result != _EINTR:
                job.check(result)

    def _take(self) -> Any:
        """The next batch of this pass."""
        while True:
            lease = self._lease()
            info = BatchInfo()
            lease.job.check(library().batch_info(lease.live(), byref(info)))
            number, structure = self._owed.pop(info.step)
            if number == self._pass:
                break
        if info.count not in self._layouts:
            self._layouts[info.count] = batch_layouts(lease, self._n)
        layouts = self._layouts[info.count]
        if self._place is None:
            self._place = place_of(lease, "0")
        tensors = [self._make(lease, layouts[str(i)], self._place) for i in range(self._n)]
        return _unflatten(structure, [tensor.view(torch.bool) if dtype == torch.bool else tensor
                                      for tensor, dtype in zip(tensors, self._dtypes)])

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._live()
        self._pass += 1
        # The workers of an unfinished pass end before their slots are used again.
        self._iterator = None
        self._iterator = iter(self._inner)
        return _Pass(self, self._pass)

    def close(self) -> None:
        """Ends the workers and the job. Tensors that were taken stay valid."""
        self._iterator = self._inner = None
        if self._job is not None:
            self._job.close()
            self._job = None

    def __enter__(self) -> "Pinned":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if self._job is not None:
            self.close()

    def __reduce__(self) -> Any:
        raise Forked(errno.EPERM, "a pinned loader cannot go to another process: make it there")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


class _Pass:
    """One pass over a pinned loader."""

    def __init__(self, pinned: Pinned, number: int):
        self._pinned: Optional[Pinned] = pinned
        self._number = number
        self._committed = 0
        self._ended = False

    def __iter__(self) -> "_Pass":
        return self

    def __next__(self) -> Any:
        pinned = self._pinned
        if pinned is None:
            raise StopIteration
        if pinned._pass != self._number or pinned._iterator is None:
            raise RuntimeError("this pass has ended: the loader was closed, or began another")
        try:
            while not self._ended and self._committed < _AHEAD:
                self._fill(pinned)
            if self._committed > 0:
                self._committed -= 1
                return pinned._take()
        except BaseException:
            self._end(pinned)
            raise
        self._end(pinned)
        raise StopIteration

    def _fill(self, pinned: Pinned) -> None:
        try:
            step, count, structure = next(pinned._iterator)
        except StopIteration:
            self._ended = True
            return
        pinned._commit(step, count, structure)
        self._committed += 1

    def _end(self, pinned: Pinned) -> None:
        self._pinned = None
        if pinned._iterator is not None and not pinned.loader.persistent_workers:
            pinned._iterator = None


def pin(data: Any, *, device: Any = None,
        daemon: Union[None, str, _private.PrivateDaemon] = None, depth: Optional[int] = None,
        timeout: float = 0, delivery: Optional[str] = None, name: Optional[str] = None,
        **arguments: Any) -> Pinned:
    """The batches of a DataLoader, or of a dataset with DataLoader's `arguments`, in the memory of
    a GPU: what `pin_memory=True, pin_memory_device=...` is meant for.

        for images, labels in pinclient.torch.pin(loader, device="cuda:1"):
            ...

    The loader's workers write their batches straight into page-locked slots that the daemon has
    leased to this process; the daemon copies them to the GPU and hands them over. What comes is
    what the loader gives, in its order and its structure (tensors in tuples, lists, dicts and named
    tuples; what is no tensor comes along), with the tensors on the device. `len`, samplers,
    `worker_init_fn`, `persistent_workers`, fork and spawn are as the loader has them; `pin_memory`
    is not needed. A sample (a batch, with a `collate_fn` of its own) is made here first, to learn
    the shapes; all batches must have these.

    - `device`, `daemon`, `delivery`, `name`: as for `pinclient.Loader`
    - `depth`: slots, and batches in the GPU's memory: by default what the workers prefetch
      (`num_workers * prefetch_factor`) and 4 more; up to 128
    - `timeout`: seconds to wait for the daemon; 0 waits without end

    The tensors may be written to by nobody and are valid as long as they are referred to; a loop
    that keeps more than `depth` allows gets `AllLeased`. What was pushed cannot be made again: a
    daemon or a GPU that is lost ends the loop with `DaemonGone` or `Error`.
    """
    if not isinstance(data, DataLoader):
        data = DataLoader(data, **arguments)
    elif arguments:
        raise TypeError(f"pin: {', '.join(arguments)}: a DataLoader has these already")
    return Pinned(data, device, daemon, depth, timeout, delivery, name)
