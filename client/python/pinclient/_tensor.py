"""Leased batches and their tensors.

A batch is one lease. The Batch and its Tensors hold it through a `_Lease`; what other libraries
took by DLPack holds it in the C library, whose deleters run in any thread without Python. The last
of them gone gives the batch back to the daemon, behind the streams that were named: the one that
was current where a tensor was taken, those of `Batch.use` and of `record_stream`.
"""

import ctypes
import math
import os
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from . import _library
from ._errors import Error, from_result
from ._library import DLPACK_VERSIONED, NO_STREAM, BatchInfo, TensorInfo, library

CPU, CUDA = 1, 2  # of DLPack

# -- capsules -------------------------------------------------------------------------------------

_api = ctypes.pythonapi
_capsule_new = _api.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [c_void_p, c_char_p, c_void_p]
_capsule_is_valid = _api.PyCapsule_IsValid
_capsule_is_valid.restype = ctypes.c_int
_capsule_is_valid.argtypes = [c_void_p, c_char_p]
_capsule_pointer = _api.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [c_void_p, c_char_p]

# Names of capsules must live as long as these: they do not copy them.
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_UINT = 1  # DLPack's code of unsigned integers
_DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor, which begins with its DLTensor."""
    _fields_ = [("data", c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32),
                ("n_dims", ctypes.c_int32), ("dtype", ctypes.c_uint8 * 4),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", c_void_p),
                ("byte_offset", ctypes.c_uint64), ("context", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned."""
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", c_void_p), ("deleter", c_void_p)]


def _capsule_end(capsule: int) -> None:
    """A capsule that nobody took: consumers rename those that they take. Its object is being
    destroyed and must not be referred to, so it stays a plain address here."""
    for name, kind in ((_PLAIN, _Managed), (_VERSIONED, _ManagedVersioned)):
        if _capsule_is_valid(capsule, name):
            pointer = _capsule_pointer(capsule, name)
            _DELETER(kind.from_address(pointer).deleter)(pointer)


_capsule_gone = ctypes.PYFUNCTYPE(None, c_void_p)(_capsule_end)


# -- the lease ------------------------------------------------------------------------------------

class Job:
    """A job of the C library. Closed, it lives on there until its last batch is given back, but
    its texts must not be asked for."""

    __slots__ = ("pointer", "closed", "_close")

    def __init__(self, pointer: int):
        self.pointer = pointer
        self.closed = False
        self._close = library().job_close

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._close(self.pointer)

    def check(self, result: int) -> int:
        """Raises what a negative result stands for."""
        if result < 0 and self.closed:
            raise from_result(result, os.strerror(-result))
        return library().check(result, self.pointer)

    __del__ = close


class Lease:
    """What a Batch and its Tensors hold in common."""

    __slots__ = ("pointer", "job", "_release", "_streams", "__weakref__")

    def __init__(self, pointer: int, job: Job):
        self.pointer: Optional[int] = pointer
        self.job = job
        self._streams: Tuple[int, ...] = ()
        self._release = library().release

    def __del__(self) -> None:
        if self.pointer is not None:
            self._release(self.pointer, NO_STREAM)

    def live(self) -> int:
        if self.pointer is None:
            raise Error(22, "this batch was released already")
        return self.pointer

    def release(self, stream: Any) -> None:
        pointer = self.live()
        result = self._release(pointer, stream)
        if result != -16:  # EBUSY: the stream is being captured, and the lease stays
            self.pointer = None
        self.job.check(result)

    def follow(self, stream: int) -> None:
        """The batch goes behind what is on the stream when it goes."""
        if stream in self._streams:
            return
        self.job.check(library().batch_follow(self.live(), stream))
        self._streams += (stream,)


class StreamRecorder:
    """`record_stream` of a torch tensor that lies in a batch. PyTorch's own knows the memory of
    its allocator only. A copy of the tensor has memory of its own: nothing to record."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Optional[Lease] = None):
        self._lease = lease

    def __call__(self, stream: Any) -> None:
        if self._lease is not None and self._lease.pointer is not None:
            self._lease.follow(stream_number(stream))

    def __deepcopy__(self, memo: Any) -> "StreamRecorder":
        return StreamRecorder()

    def __reduce__(self) -> Tuple[Any, ...]:
        return StreamRecorder, ()


def stream_number(stream: Any) -> int:
    """The CUDA handle of a stream: of torch, of CuPy, by __cuda_stream__, or a number."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        number = getattr(stream, name, None)
        if isinstance(number, int):
            return number
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    raise TypeError(f"not a CUDA stream: {stream!r}")


# -- tensors --------------------------------------------------------------------------------------

class Layout(NamedTuple):
    """A tensor of every batch of a job, but for its address and its count of samples."""
    position: int
    name: str
    dtype: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    offset: int  # in bytes, from the batch's first tensor

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.shape[1:]) * _library.ITEM_BYTES[self.dtype]


class Place(NamedTuple):
    """Where a job's tensors lie, as DLPack counts."""
    kind: int
    number: int


def place_of(lease: Lease, name: str) -> Place:
    """Asked of the C library by an export: it knows which GPU of this process it is."""
    managed = c_void_p()
    lease.job.check(library().batch_dlpack(lease.live(), name.encode(), 0, byref(managed)))
    assert managed.value
    export = _Managed.from_address(managed.value)
    place = Place(export.kind, export.number)
    _DELETER(export.deleter)(managed.value)
    return place


def taken(lease: Lease, layout: Layout, take: Callable[[Any], Any], span: int = 0) -> Any:
    """What a library makes of a DLPack capsule of the tensor; with span, of so many bytes that
    begin where it does. The capsule needs no destructor in Python, which would be called for those
    that were taken, too."""
    managed = c_void_p()
    lease.job.check(library().batch_dlpack(lease.live(), layout.name.encode(), 0, byref(managed)))
    if span:
        export = _Managed.from_address(managed.value or 0)
        export.n_dims, export.dtype[0], export.dtype[1] = 1, _UINT, 8
        export.shape[0], export.strides = span, None
    capsule = _capsule_new(managed, _PLAIN, None)
    try:
        return take(capsule)
    except BaseException:
        _capsule_end(id(capsule))
        raise


class Tensor:
    """A tensor of a leased batch, in the memory where it is complete: on the GPU, or on the host.

    Other libraries take it without a copy: `torch.from_dlpack(t)`, `cupy.from_dlpack(t)`,
    `jax.dlpack.from_dlpack(t)`, `numpy.from_dlpack(t)`, and `numpy.asarray(t)` or
    `cupy.asarray(t)`. The memory is read-only, whether a library shows it or not: writing to it
    ends the process (host) or its CUDA context (GPU), so clone what is to be changed in place. The
    newer DLPack (`max_version` of 1 or more) and `__array_interface__` say that it is read-only;
    the older DLPack cannot, and `__cuda_array_interface__` does not, because PyTorch refuses what
    says so.

    Attributes: `name`; `shape`, the count of samples first; `strides` in bytes; `dtype`, a name
    like "uint8"; `device`, "cpu" or "cuda:N"; `nbytes`.
    """

    __slots__ = ("name", "shape", "strides", "dtype", "device", "nbytes", "pointer", "_kind",
                 "_device", "_lease")

    def __init__(self, lease: Lease, layout: Layout, place: Place):
        info = TensorInfo()
        result = library().batch_tensor_at(lease.live(), layout.position, byref(info))
        if result < 0:
            lease.job.check(result)
        self._lease = lease
        self._kind = layout.dtype
        self._device = place
        self.name = layout.name
        self.shape = (int(info.shape[0]),) + layout.shape[1:]
        self.strides = layout.strides
        self.dtype = _library.DTYPE_NAME[layout.dtype]
        self.device = "cpu" if place.kind == CPU else f"cuda:{place.number}"
        self.nbytes = int(info.bytes)
        self.pointer = int(info.data)

    def __repr__(self) -> str:
        return f"pinclient.Tensor({self.name}: {self.dtype}{list(self.shape)} on {self.device})"

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack_device__(self) -> Tuple[int, int]:
        """DLPack's kind of device (1 CPU, 2 CUDA) and its number in this process."""
        return self._device

    def __dlpack__(self, *, stream: Optional[int] = None,
                   max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """A DLPack capsule. The batch is complete, so the stream of the consumer has nothing to
        wait for; what the consumer queued on it passes before the batch is reused. None is the
        legacy default stream, -1 names none."""
        if copy:
            raise BufferError("pinclient makes no copies: the consumer is to make one")
        if dl_device is not None and tuple(dl_device) != self._device:
            raise BufferError(f"tensor {self.name} lies on {self.device}")
        if self._device[0] == CUDA and stream != -1:
            self._lease.follow(0 if stream is None or stream == 1 else stream)
        versioned = max_version is not None and max_version[0] >= 1
        managed = c_void_p()
        self._lease.job.check(
            library().batch_dlpack(self._lease.live(), self.name.encode(),
                                   DLPACK_VERSIONED if versioned else 0, byref(managed)))
        return _capsule_new(managed, _VERSIONED if versioned else _PLAIN, _capsule_gone)

    def _interface(self) -> Dict[str, Any]:
        typestr = _library.TYPESTR.get(self._kind)
        if typestr is None:
            raise AttributeError(f"NumPy's array interface has no type {self.dtype}")
        self._lease.live()
        return {"version": 3, "shape": self.shape, "typestr": typestr, "strides": self.strides}

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """NumPy's protocol, of tensors in host memory."""
        if self._device[0] != CPU:
            raise AttributeError(f"tensor {self.name} lies on {self.device}")
        return {**self._interface(), "data": (self.pointer, True)}

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        """The protocol of CuPy and Numba, of tensors on a GPU. The consumer names no stream with
        it: the batch goes behind the default stream and those of `Batch.use`."""
        if self._device[0] != CUDA:
            raise AttributeError(f"tensor {self.name} lies on the {self.device}")
        self._lease.follow(0)
        return {**self._interface(), "data": (self.pointer, False), "stream": None}


# -- batches --------------------------------------------------------------------------------------

class Batch(Mapping[str, Any]):
    """A step of an epoch: a mapping from names to tensors, in the order of the batch's layout.

    - `image`: uint8 [samples, height, width, 3], or what the loader's transform makes of it; or
      `data`, of sources of raw samples, in their shape and type; or `tokens`, int32 or int64
      [samples, seq + 1], with `position` and `document`, int64, where they were asked for
    - `label`: int64 [samples]; -1 where the source has no labels
    - `index`: int64 [samples], the samples' numbers in the dataset
    - `status`: uint8 [samples]: 0; 1 for padding, which repeats samples to fill the last batch; 2
      and 3 for bad samples that were replaced or left blank

    Attributes: `epoch`; `step`, in the epoch; `count` of samples.

    Without a transform the tensors lie in memory of pinserve's, which is read-only, and the batch
    is given back when it and all its tensors, and views of these, are gone.
    """

    def __init__(self, info: BatchInfo, names: Collection[str], tensors: Dict[str, Any],
                 lease: Optional[Lease] = None,
                 make: Optional[Callable[[Lease, str], Any]] = None):
        self.epoch, self.step, self.count = int(info.epoch), int(info.step), int(info.count)
        self._names = names
        self._tensors = tensors
        self._lease = lease
        self._make = make

    def __getitem__(self, name: str) -> Any:
        try:
            return self._tensors[name]
        except KeyError:
            if self._make is None or name not in self._names:
                raise KeyError(f"no tensor {name!r}: there are {', '.join(self._names)}") from None
        if self._lease is None:
            raise Error(22, "this batch was released already")
        tensor = self._tensors[name] = self._make(self._lease, name)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        """The number of tensors; of samples there are `count`."""
        return len(self._names)

    def __repr__(self) -> str:
        return (f"pinclient.Batch(epoch {self.epoch}, step {self.step}, {self.count} samples: "
                f"{', '.join(self._names)})")

    def use(self, stream: Any) -> None:
        """Says that a stream works on the batch: what is on it when the batch goes passes before
        the memory is reused. A stream of torch or CuPy, or a number. The stream that is current
        where a tensor is first taken from the batch needs no mention; nor has one an effect on
        batches in host memory, or behind a transform."""
        if self._lease is not None and self._lease.pointer is not None:
            self._lease.follow(stream_number(stream))

    def release(self) -> None:
        """Lets the tensors go before the batch itself is gone. Those that were taken from it stay
        valid, and keep the memory leased."""
        if self._make is not None:
            self._tensors = {}
        self._lease = None
