"""What PyTorch and NumPy are asked for. Neither is imported before it is needed, and PyTorch only
when the program has imported it or asked for its tensors."""

import os
import sys
from ctypes import byref
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

from ._library import NO_STREAM, library
from ._tensor import CUDA, Lease, StreamRecorder, Tensor
from ._transform import Normalize


def loaded_torch() -> Any:
    """PyTorch when the program uses it, else None."""
    return sys.modules.get("torch")


# -- where this process stands --------------------------------------------------------------------

def device_name(device: Any, kind: str) -> str:
    """As pinclient_spec_device() takes it: from "cuda", "cuda:1", 1, a torch.device, "cpu", "host",
    "auto", or a GPU's UUID; from None, where the framework can use the tensors."""
    torch = loaded_torch()
    if isinstance(device, int):
        return f"cuda:{device}"
    text = "" if device is None else str(device)
    if text in ("cpu", "host"):
        return "host"
    if text not in ("", "cuda"):
        return text
    if kind == "numpy" and not text:
        return "host"
    if torch is not None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    if text:
        return "cuda:0"
    return "host" if kind == "torch" else "auto"


def _mesh_place(mesh: Any, dims: Union[None, str, int, Sequence[Union[str, int]]]) -> Tuple[int,
                                                                                         int]:
    if dims is None:
        names = getattr(mesh, "mesh_dim_names", None) or ()
        if mesh.ndim == 1:
            dims = 0
        elif "dp" in names:
            dims = "dp"
        else:
            raise ValueError(f"mesh_dim: which of the mesh's dimensions {names or mesh.ndim} is "
                             "data-parallel?")
    rank, world = 0, 1
    for dim in [dims] if isinstance(dims, (str, int)) else dims:
        number = mesh.mesh_dim_names.index(dim) if isinstance(dim, str) else dim
        size = mesh.size(number)
        rank, world = rank * size + mesh.get_local_rank(dim), world * size
    return rank, world


def rank_and_world(rank: Optional[int], world_size: Optional[int], mesh: Any,
                   mesh_dim: Any) -> Tuple[int, int]:
    """This process's share: as given, of the mesh, of torch.distributed, or of the environment."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size belong together")
    if mesh is not None:
        if rank is not None:
            raise ValueError("mesh tells rank and world_size")
        return _mesh_place(mesh, mesh_dim)
    if rank is not None and world_size is not None:
        return rank, world_size
    torch = loaded_torch()
    if torch is not None and torch.distributed.is_available() and \
            torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


# -- tensors --------------------------------------------------------------------------------------

def _to_torch(tensor: Tensor, lease: Lease) -> Any:
    import torch
    from torch.utils.dlpack import from_dlpack

    kind, number = tensor.__dlpack_device__()
    if kind != CUDA:
        return from_dlpack(tensor.__dlpack__())
    made: Any = from_dlpack(tensor.__dlpack__(stream=torch.cuda.current_stream(number).cuda_stream))
    made.record_stream = StreamRecorder(lease)
    return made


def _to_numpy(tensor: Tensor, lease: Lease) -> Any:
    import numpy

    return numpy.asarray(tensor)


def _to_itself(tensor: Tensor, lease: Lease) -> Any:
    return tensor


converters: Dict[str, Callable[[Tensor, Lease], Any]] = {"torch": _to_torch, "numpy": _to_numpy, "dlpack": _to_itself}


def default_tensors() -> str:
    return "torch" if loaded_torch() is not None else "dlpack"


# -- transformed batches --------------------------------------------------------------------------

def _run(transform: Normalize, lease: Lease, image: Tensor, out: int, stream: int) -> None:
    lease.job.check(library().transform(lease.live(), image.name.encode(), out,
                                        byref(transform.spec()), stream))


def _transform_torch(transform: Normalize, lease: Lease, image: Tensor,
                     others: Dict[str, Tensor]) -> Dict[str, Any]:
    import torch

    kind, number = image.__dlpack_device__()
    samples, height, width, channels = image.shape
    order = torch.contiguous_format if transform.layout == "NCHW" else torch.channels_last
    out = torch.empty((samples, channels, height, width), device=image.device,
                      dtype=getattr(torch, transform.dtype_name), memory_format=order)
    stream = torch.cuda.current_stream(number).cuda_stream if kind == CUDA else 0
    _run(transform, lease, image, out.data_ptr(), stream)
    made = {name: _to_torch(tensor, lease).clone() for name, tensor in others.items()}
    lease.release(stream if kind == CUDA else NO_STREAM)
    return {image.name: out, **made}


def _transform_numpy(transform: Normalize, lease: Lease, image: Tensor,
                     others: Dict[str, Tensor]) -> Dict[str, Any]:
    import numpy

    samples, height, width, channels = image.shape
    shape = (samples, channels, height, width)
    if transform.layout == "NHWC":
        shape = (samples, height, width, channels)
    out = numpy.empty(shape, transform.dtype_name)
    _run(transform, lease, image, out.ctypes.data, 0)
    made = {name: numpy.array(tensor) for name, tensor in others.items()}
    lease.release(NO_STREAM)
    return {image.name: out, **made}


def check_transform(kind: str, transform: Normalize) -> None:
    """Whether the framework can take what the transform makes."""
    if kind == "dlpack":
        raise ValueError("a transform writes into tensors of a framework: import torch, or give "
                         "tensors=\"torch\" or \"numpy\"")
    if kind == "numpy" and transform.dtype_name == "bfloat16":
        raise ValueError("NumPy has no bfloat16")


def transformed(kind: str, transform: Normalize, lease: Lease,
                tensors: Dict[str, Tensor]) -> Dict[str, Any]:
    """Tensors of the framework's own; the batch is given back behind the work on the current
    stream."""
    image = tensors.pop("image" if "image" in tensors else "data")
    if image.dtype != "uint8" or len(image.shape) != 4:
        raise ValueError(f"a transform takes uint8 images, and here are {image!r}")
    make = _transform_torch if kind == "torch" else _transform_numpy
    return make(transform, lease, image, tensors)
