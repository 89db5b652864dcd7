"""The loader: one job of the daemon's, as an iterable of batches."""

import gc
import os
import select
import sys
import time
from ctypes import byref, c_void_p
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple, Union

from . import _frameworks, _private
from ._errors import AllLeased, DaemonGone, Error, Forked, Timeout
from ._job import Wanted, batch_layouts, job_info, open_job
from ._library import EPOCH_END, BatchInfo, library
from ._tensor import Batch, Job, Layout, Lease, place_of
from ._transform import Normalize

_EINTR, _EBUSY, _ETIMEDOUT = -4, -16, -110
_RETRY_S = 0.2  # between attempts to reach a daemon that is gone


class Loader:
    """Batches of a dataset, made by the daemon of this machine and complete in the memory of this
    process's GPU, or of the host.

    A pass over the loader is one epoch, of `len(loader)` steps on every rank; the next pass is the
    next epoch, shuffled anew, whose first batches are already being made. A pass that was left in
    the middle is not continued: the next one begins the next epoch, or the one that `set_epoch`
    names. A step is a `Batch`: a mapping of the tensors `image` (or `data`, or `tokens`), `label`,
    `index` and `status`; see there for shapes and types.

    - `source`: `folder:DIR`, `folder:DIR,list=FILE`, `tar:PATTERN`,
      `tar:PATTERN,fields=jpg+cls+json:4096`, `records:FILE.npy`, `tokens:PATTERN`,
      `tokens:blend=0.7:PATTERN,0.3:PATTERN`, `synthetic:3x224x224`, as in pinclient.h; a path alone
      is a folder. Opened by this process, with its rights
    - `batch_size`: samples of a batch, of this rank
    - `image`: `random-crop:SIZE`, `center-crop:SIZE[:SHORTER-SIDE]`, or None for raw samples;
      `,filter=bicubic` and `,orient=exif` may stand behind a crop
    - `flip`: probability of a horizontal flip, 0 to 1
    - `seq`: length of token sequences, for tokens: a sample has one token more
    - `shuffle`, `seed`: whether, and the key of the order and of every random choice. A batch
      follows from dataset, options, seed, epoch and step alone
    - `rank`, `world_size`: this process's share. Default: of `mesh`, of torch.distributed when it
      is initialised, of RANK and WORLD_SIZE in the environment, else 0 of 1
    - `mesh`, `mesh_dim`: a torch DeviceMesh and its data-parallel dimension, by name or number, or
      several; needless with one dimension or one named "dp". A step's tensors are the local
      shards: `DTensor.from_local(batch["image"], mesh["dp"], [Shard(0)])`
    - `drop_last`: True leaves the last incomplete step out; False (default) fills it by repeating
      samples, which `status` marks with 1; "partial" makes it shorter (one rank only)
    - `bad`: what becomes of a sample whose bytes are bad. "fail" (default) raises `BadSample`;
      "substitute" takes the next readable one, "blank" leaves zeros: `status` marks them with 2 and
      3. A limit for each epoch may follow: "substitute:100", "blank:0.5%"
    - `device`: "cuda", "cuda:1", a number, a torch.device, a GPU's UUID, or "cpu" for host memory.
      Default: torch's current device, or the host where torch has none and for NumPy; without
      torch the first GPU, else the host. `pin_memory_device` is the same, by DataLoader's name
    - `depth`: batches that are made ahead or referred to at a time, 1 to 128; the library's default
      is 4. A loop holds one while it takes the next
    - `transform`: `Normalize(...)` turns `image` into floats on the current stream, in a tensor of
      the framework's own; all others are copied, and the batch goes back at once
    - `tensors`: "torch", "numpy", or "dlpack" for `pinclient.Tensor`; default torch when it was
      imported, else dlpack
    - `daemon`: None for the machine's ($PINSERVE_SOCKET), the path of a socket, a
      `PrivateDaemon`, or "private" for one that this process's loaders share
    - `timeout`: seconds to wait for a batch; 0 waits without end
    - `reconnect`: when the daemon ends, wait for it to be back and go on at the same step
    - `delivery`: `auto`, `fd`, `ipc`, `copy`, `mapped`, `host`, as in pinclient.h; `name`: for
      pinctl

    The constructor waits until the dataset is indexed. Errors name the thing: `DaemonGone`; `Error`
    with ENOENT or EACCES (data), EINVAL (a value), ENODEV (device), ENOMEM or EDQUOT (memory,
    limits). A step raises `BadSample`, `DaemonGone`, `Timeout`, or `AllLeased` when `depth` batches
    are still referred to, as in `list(loader)`.

    For one thread at a time; tensors may go in any. In a child made by fork a loader raises
    `Forked`: make it in the child.
    """

    _job: Optional[Job] = None  # also where the constructor was called in a wrong way

    def __init__(self, source: "Union[str, os.PathLike[str]]", batch_size: int = 1, *,
                 image: Optional[str] = None, flip: Optional[float] = None,
                 seq: Optional[int] = None, shuffle: bool = False, seed: int = 0,
                 rank: Optional[int] = None, world_size: Optional[int] = None,
                 mesh: Any = None,
                 mesh_dim: Union[None, str, int, Sequence[Union[str, int]]] = None,
                 drop_last: Union[bool, str] = False, bad: Optional[str] = None,
                 device: Any = None,
                 pin_memory_device: Any = None, depth: Optional[int] = None,
                 transform: Optional[Normalize] = None, tensors: Optional[str] = None,
                 daemon: Union[None, str, _private.PrivateDaemon] = None, timeout: float = 0,
                 reconnect: bool = False, delivery: Optional[str] = None,
                 name: Optional[str] = None):
        if device is not None and pin_memory_device:
            raise ValueError("device and pin_memory_device are the same")
        if drop_last not in (True, False, "partial"):
            raise ValueError(f"drop_last {drop_last!r}: there are True, False and \"partial\"")
        self._kind = tensors or _frameworks.default_tensors()
        if self._kind not in _frameworks.makers:
            raise ValueError(f"tensors {self._kind!r}: there are {', '.join(_frameworks.makers)}")
        if transform is not None:
            _frameworks.check_transform(self._kind, transform)
        rank, world = _frameworks.rank_and_world(rank, world_size, mesh, mesh_dim)
        source = os.fspath(source)
        if ":" not in source or source.startswith(("/", ".")):
            source = f"folder:{source}"
        self._wanted = Wanted(
            source=source, batch=batch_size, rank=rank,
            world=world,
            device=_frameworks.device_name(pin_memory_device if device is None else device,
                                           self._kind),
            shuffle="full" if shuffle else "none",
            last=drop_last if isinstance(drop_last, str) else "drop" if drop_last else "pad",
            seed=seed, image=image, flip=flip, seq=seq, bad=bad, depth=depth, delivery=delivery,
            name=name or os.path.basename(sys.argv[0]) or None)
        self._transform = transform
        self._daemon = daemon
        self._timeout = timeout
        self._reconnect = reconnect
        self._pass: Optional[_Pass] = None
        self._open((), 0, 0)

    # -- the job ----------------------------------------------------------------------------------

    def _socket(self) -> Optional[str]:
        daemon = _private.shared() if self._daemon == "private" else self._daemon
        return daemon.socket if isinstance(daemon, _private.PrivateDaemon) else daemon

    def _open(self, start: Tuple[Any, ...], epoch: int, step: int) -> None:
        """Opens a job that begins at (epoch, step), in place of the one that there was."""
        self.close()
        self._library = library()
        self._job = open_job(self._socket(), self._wanted, start)
        self._epoch, self._step = epoch, step
        self._begun = False
        info = job_info(self._job)
        self._steps = int(info.steps)
        self._samples = int(info.samples)
        self._n_tensors = int(info.n_tensors)
        self._depth = int(info.depth)
        self._fd: Optional[int] = None
        self._layouts: Dict[str, Layout] = {}
        self._transformed: Optional[_frameworks.Transform] = None
        self._make: Optional[Callable[[Lease, str], Any]] = None

    def _live(self) -> Job:
        if self._job is None:
            raise Error(9, "this loader is closed")
        return self._job

    def close(self) -> None:
        """Ends the job. Tensors that were taken from it stay valid."""
        self._pass = None
        if self._job is not None:
            self._job.close()
            self._job = None

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise Forked(1, "a Loader cannot be sent to another process: make it there")

    def __repr__(self) -> str:
        return (f"pinclient.Loader({self._wanted.source!r}, {self._wanted.batch}, "
                f"device={self._wanted.device!r}, rank={self._wanted.rank}, "
                f"world_size={self._wanted.world})")

    # -- where it stands --------------------------------------------------------------------------

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._steps

    @property
    def samples(self) -> int:
        """Samples of the dataset."""
        return self._samples

    @property
    def batch_size(self) -> int:
        """Samples of a batch, of this rank."""
        return self._wanted.batch

    @property
    def epoch(self) -> int:
        """The epoch of the pass that is going on, or of the one that comes next."""
        return self._epoch

    @property
    def device(self) -> str:
        """The GPU's UUID, or "host"."""
        return str(job_info(self._live()).device.decode())

    @property
    def delivery(self) -> str:
        """How batches are handed over: "fd", "ipc", "copy", "mapped", "host"."""
        return str(job_info(self._live()).delivery.decode())

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass. The one that would come anyway costs nothing, and
        keeps the step that `load_state_dict` set, so training scripts may call this before every
        pass."""
        if epoch == self._epoch and not self._begun:
            return
        self._live()
        if epoch == self._epoch + 1 and self._step == self._steps:
            self._pass = None
            self._end_epoch()
        else:
            self._restart(epoch)

    def _end_epoch(self) -> None:
        """Behind the last batch: takes the mark that follows it."""
        while self._take() is not None:
            pass

    def _restart(self, epoch: int) -> None:
        self._open(("spec_start", epoch, 0), epoch, 0)

    def state_dict(self) -> Dict[str, Any]:
        """Where to go on: behind the last batch that this rank took. Plain text and numbers, for
        torch.save or JSON. That of rank 0 serves all ranks, also when there are more or fewer of
        them with the same global batch."""
        job = self._live()
        return {"token": library().token(job.pointer), "epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on there: the next pass has what was left of the epoch. Error (EINVAL) when the
        state is of other data, another seed, another pipeline or another global batch: the loader
        is closed then."""
        self._live()
        self._open(("spec_token", state["token"].encode()), int(state["epoch"]),
                   int(state["step"]))

    # -- batches ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """A pass: what is left of an epoch after `load_state_dict`, else all of it."""
        self._live()
        if self._begun and self._step < self._steps:
            self._restart(self._epoch + 1)
        elif self._begun:
            self._end_epoch()
        self._pass = _Pass(self)
        return self._pass

    def _wait(self, deadline: Optional[float]) -> None:
        """Until there is something to take. Python's own poll, so that Ctrl-C ends it."""
        if self._fd is None:
            job = self._live()
            self._fd = job.check(library().get_fd(job.pointer))
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        left = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
        if not poll.poll(left) and deadline is not None and time.monotonic() >= deadline:
            raise Timeout(-_ETIMEDOUT, f"no batch within {self._timeout:g} s")

    def _all_leased(self) -> AllLeased:
        return AllLeased(-_EBUSY, f"all {self._depth} batches of the loader are still referred to: "
                         "none can come until one is gone. Let them go, copy what is to be kept, "
                         f"or ask for more with depth= ({self._depth} now)")

    def _lease(self) -> Optional[Lease]:
        """The next batch; None at the end of an epoch."""
        job, lib = self._live(), self._library
        pointer = c_void_p()
        deadline: Optional[float] = None
        generation = 0
        while True:
            result = lib.next(job.pointer, 0, byref(pointer))
            if result == 0:
                assert pointer.value
                return Lease(pointer.value, job)
            if result == EPOCH_END:
                return None
            if result == _EBUSY:
                # Cycles hold batches, too, like that of an exception and its frame.
                if generation == 3:
                    raise self._all_leased()
                gc.collect(generation)
                generation += 1
            elif result == _ETIMEDOUT:
                if deadline is None and self._timeout:
                    deadline = time.monotonic() + self._timeout
                self._wait(deadline)
            elif result != _EINTR:
                job.check(result)

    def _take(self) -> Optional[Batch]:
        try:
            lease = self._lease()
        except DaemonGone:
            if not self._reconnect:
                raise
            self._come_back()
            return self._take()
        if lease is None:
            self._epoch, self._step, self._begun = self._epoch + 1, 0, False
            return None
        self._begun = True
        self._step += 1
        return self._batch(lease)

    def _come_back(self) -> None:
        """Opens the job again where it was, as soon as there is a daemon."""
        state = self.state_dict()
        begun, current = self._begun, self._pass
        end = time.monotonic() + self._timeout if self._timeout else None
        start = ("spec_token", state["token"].encode())
        while True:
            try:
                self._open(start, state["epoch"], state["step"])
                break
            except DaemonGone:
                if end is not None and time.monotonic() >= end:
                    raise
            time.sleep(_RETRY_S)
        self._begun, self._pass = begun, current

    def _batch(self, lease: Lease) -> Batch:
        info = BatchInfo()
        self._library.batch_info(lease.pointer, byref(info))
        if not self._layouts:
            self._first(lease)
        if self._transformed is None:
            return Batch(info, self._layouts, {}, lease, self._make)
        return Batch(info, self._layouts, self._transformed(lease, info.count))

    def _first(self, lease: Lease) -> None:
        """What holds for all batches of the job, as the first one tells. What makes tensors must
        not keep the loader."""
        layouts = batch_layouts(lease, self._n_tensors)
        place = place_of(lease, next(iter(layouts)))
        if self._transform is not None:
            self._transformed = _frameworks.transformer(self._kind, self._transform, layouts, place)
        make = _frameworks.makers[self._kind]()
        self._make = lambda lease, name: make(lease, layouts[name], place)
        self._layouts = layouts


class _Pass:
    """One pass over a loader. A later one ends it."""

    def __init__(self, loader: Loader):
        self._loader: Optional[Loader] = loader

    def __iter__(self) -> "_Pass":
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if loader._pass is not self:
            raise RuntimeError("this pass has ended: the loader was closed, moved, or began another")
        batch = loader._take()
        if batch is None:
            self._loader = loader._pass = None
            raise StopIteration
        return batch
