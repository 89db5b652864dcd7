"""libpinclient, called through ctypes.

The library is `$PINCLIENT_LIBRARY`, or libpinclient.so.0 where the dynamic loader finds it, or in
one of the places where it is installed. It is loaded when it is first needed.
"""

import ctypes
import ctypes.util
import errno
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint32, c_uint64
from ctypes import c_void_p
from typing import Any, Dict, Iterator, List, Optional

from ._errors import Error, from_result

SONAME = "libpinclient.so.0"
PLACES = ("/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/x86_64-linux-gnu",
          "/usr/local/lib/aarch64-linux-gnu")

EPOCH_END = 1
NO_STREAM = c_void_p(-1)
DLPACK_VERSIONED = 1
DIMS_MAX = 8
CHANNELS_MAX = 4
TOKEN_MAX = 8192

# enum pinclient_dtype, as NumPy's array interface writes types. Sample numbers (uint64) are far
# below 2**63, and not every library knows unsigned ones: they are presented as int64, as the C
# library does for DLPack. bfloat16 has no such name.
TYPESTR = {0: "|u1", 1: "<f4", 2: "<i8", 3: "<i8", 4: "|i1", 5: "<u2", 6: "<i2", 7: "<u4",
           8: "<i4", 9: "<f2", 10: "<f8"}
DTYPE_NAME = {0: "uint8", 1: "float32", 2: "int64", 3: "int64", 4: "int8", 5: "uint16",
              6: "int16", 7: "uint32", 8: "int32", 9: "float16", 10: "float64", 11: "bfloat16"}

ITEM_BYTES = {0: 1, 1: 4, 2: 8, 3: 8, 4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 2, 10: 8, 11: 2}


class TensorInfo(ctypes.Structure):
    """struct pinclient_tensor"""
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("dtype", c_int), ("n_dims", c_uint32),
                ("shape", c_uint64 * DIMS_MAX), ("strides", c_uint64 * DIMS_MAX),
                ("bytes", c_uint64)]


class BatchInfo(ctypes.Structure):
    """struct pinclient_batch_info"""
    _fields_ = [("epoch", c_uint64), ("step", c_uint64), ("count", c_uint32)]


class JobInfo(ctypes.Structure):
    """struct pinclient_job_info"""
    _fields_ = [("id", c_uint64), ("steps", c_uint64), ("samples", c_uint64), ("batch", c_uint32),
                ("depth", c_uint32), ("n_tensors", c_uint32), ("device", c_char_p),
                ("delivery", c_char_p)]


class Slot(ctypes.Structure):
    """struct pinclient_slot"""
    _fields_ = [("number", c_uint32), ("generation", c_uint32), ("epoch", c_uint64),
                ("step", c_uint64), ("count", c_uint32), ("data", c_void_p), ("bytes", c_uint64),
                ("fd", c_int), ("offset", c_uint64), ("region", c_uint32),
                ("region_bytes", c_uint64)]


class TransformSpec(ctypes.Structure):
    """struct pinclient_transform"""
    _fields_ = [("dtype", c_int), ("layout", c_int), ("channels", c_uint32), ("flags", c_uint32),
                ("mean", c_double * CHANNELS_MAX), ("std", c_double * CHANNELS_MAX),
                ("flip", c_void_p)]


_handle = c_void_p
_out = POINTER(c_void_p)
_prototypes: Dict[str, List[Any]] = {
    "version": [],
    "connect": [c_char_p, _out],
    "close": [_handle],
    "spec_new": [_out],
    "spec_free": [_handle],
    "spec_source": [_handle, c_char_p],
    "spec_image": [_handle, c_char_p],
    "spec_flip": [_handle, c_double],
    "spec_seq": [_handle, c_uint32],
    "spec_batch": [_handle, c_uint32],
    "spec_device": [_handle, c_char_p],
    "spec_delivery": [_handle, c_char_p],
    "spec_depth": [_handle, c_uint32],
    "spec_seed": [_handle, c_uint64],
    "spec_shuffle": [_handle, c_char_p],
    "spec_last": [_handle, c_char_p],
    "spec_bad": [_handle, c_char_p],
    "spec_shard": [_handle, c_uint32, c_uint32],
    "spec_start": [_handle, c_uint64, c_uint64],
    "spec_token": [_handle, c_char_p],
    "spec_name": [_handle, c_char_p],
    "job_open": [_handle, _handle, _out],
    "job_info": [_handle, POINTER(JobInfo)],
    "job_token": [_handle, c_char_p, POINTER(c_size_t)],
    "job_close": [_handle],
    "spec_push": [_handle, c_char_p, c_uint64],
    "spec_push_tensor": [_handle, c_char_p, c_int, c_uint32, POINTER(c_uint64)],
    "slot_acquire": [_handle, c_int, POINTER(Slot)],
    "slot_tensor": [_handle, POINTER(Slot), c_uint32, POINTER(TensorInfo)],
    "slot_commit": [_handle, POINTER(Slot), c_char_p],
    "next": [_handle, c_int, _out],
    "get_fd": [_handle],
    "batch_info": [_handle, POINTER(BatchInfo)],
    "batch_tensor_at": [_handle, c_uint32, POINTER(TensorInfo)],
    "batch_use": [_handle, c_void_p],
    "batch_follow": [_handle, c_void_p],
    "batch_dlpack": [_handle, c_char_p, c_uint, _out],
    "release": [_handle, c_void_p],
    "transform": [_handle, c_char_p, c_void_p, POINTER(TransformSpec), c_void_p],
    "error": [_handle],
}
_results = {"version": c_char_p, "error": c_char_p, "close": None, "spec_free": None,
            "job_close": None}


def _candidates() -> Iterator[str]:
    named = os.environ.get("PINCLIENT_LIBRARY")
    if named:
        yield named
        return
    yield SONAME
    found = ctypes.util.find_library("pinclient")
    if found and found != SONAME:
        yield found
    for place in PLACES:
        yield os.path.join(place, SONAME)


class Library:
    """The C functions without their prefix: `library().next(...)`."""

    def __init__(self, dll: ctypes.CDLL):
        for name, arguments in _prototypes.items():
            function = getattr(dll, "pinclient_" + name, None)
            if function is None:
                continue
            function.argtypes = arguments
            function.restype = _results.get(name, c_int)
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        if name not in _prototypes:
            raise AttributeError(name)
        raise Error(errno.ENOSYS, f"libpinclient {self.version().decode()} is older than this "
                    f"package: it has no pinclient_{name}")

    def check(self, result: int, handle: Optional[int]) -> int:
        """Raises what a negative result stands for; the text is the handle's."""
        if result < 0:
            raise from_result(result, self.error(handle).decode(errors="replace"))
        return result

    def token(self, job: int) -> str:
        size = c_size_t(TOKEN_MAX)
        text = ctypes.create_string_buffer(TOKEN_MAX)
        self.check(self.job_token(job, text, byref(size)), job)
        return text.value.decode()


@functools.lru_cache(maxsize=None)
def library() -> Library:
    """The library, loaded once. Error when it is not there, naming where it was looked for."""
    said = []
    for path in _candidates():
        try:
            return Library(ctypes.CDLL(path))
        except OSError as error:
            said.append(str(error))
    raise Error(errno.ENOENT, "libpinclient is not there; install pinserve or set PINCLIENT_LIBRARY: "
                + "; ".join(said))
