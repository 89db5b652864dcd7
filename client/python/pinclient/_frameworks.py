"""What PyTorch and NumPy are asked for. Neither is imported before it is needed, and PyTorch only
when the program has imported it or asked for its tensors."""

import os
import sys
from ctypes import byref
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

from ._library import DTYPE_NAME, NO_STREAM, library
from ._tensor import CUDA, Layout, Lease, Place, StreamRecorder, Tensor, taken
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

# What makes a batch's tensor in a framework.
Make = Callable[[Lease, Layout, Place], Any]


def _torch_stream(torch: Any) -> Callable[[int], int]:
    """The handle of a GPU's current stream."""
    raw: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda number: torch.cuda.current_stream(number).cuda_stream)


def _torch_maker() -> Make:
    import torch
    from torch.utils.dlpack import from_dlpack

    stream = _torch_stream(torch)

    def make(lease: Lease, layout: Layout, place: Place) -> Any:
        if place.kind != CUDA:
            return taken(lease, layout, from_dlpack)
        lease.follow(stream(place.number))
        made = taken(lease, layout, from_dlpack)
        made.record_stream = StreamRecorder(lease)
        return made

    return make


def _numpy_maker() -> Make:
    import numpy

    return lambda lease, layout, place: numpy.asarray(Tensor(lease, layout, place))


makers: Dict[str, Callable[[], Make]] = {"torch": _torch_maker, "numpy": _numpy_maker,
                                         "dlpack": lambda: Tensor}


def default_tensors() -> str:
    return "torch" if loaded_torch() is not None else "dlpack"


# -- transformed batches --------------------------------------------------------------------------

# What makes a step's tensors, of so many samples, and gives the batch back behind that.
Transform = Callable[[Lease, int], Dict[str, Any]]


class _Cut(Dict[str, Any]):
    """Tensors that are cut from one copy of all, when they are asked for. One that is changed in
    place is not a change of the others to autograd: each has a version of its own (`data`)."""

    __slots__ = ("_copy", "_count", "_layouts", "_torch")

    def __missing__(self, name: str) -> Any:
        layout = self._layouts.get(name)
        if layout is None:
            raise KeyError(name)
        begin = layout.offset - next(iter(self._layouts.values())).offset
        part = self._copy.data[begin:begin + layout.sample_bytes * self._count]
        self[name] = made = part.view(getattr(self._torch, DTYPE_NAME[layout.dtype]))
        return made

    def __init__(self, torch: Any, made: Dict[str, Any], copy: Any, count: int,
                 layouts: Dict[str, Layout]):
        super().__init__(made)
        self._torch, self._copy, self._count, self._layouts = torch, copy, count, layouts


def _lie_together(layouts: Sequence[Layout]) -> bool:
    """Numbers, one a sample, that one small copy can take along."""
    offsets = [layout.offset for layout in layouts]
    return offsets == sorted(offsets) and all(
        len(layout.shape) == 1 and layout.strides == (layout.sample_bytes,) and
        offsets[-1] - offsets[0] <= 4096 + 64 * layout.shape[0] for layout in layouts)


def _torch_transform(run: Callable[[Lease, int, int], None], transform: Normalize, image: Layout,
                     others: Dict[str, Layout], place: Place) -> Transform:
    import torch
    from torch.utils.dlpack import from_dlpack

    current, make = _torch_stream(torch), _torch_maker()
    _, height, width, channels = image.shape
    order = torch.contiguous_format if transform.layout == "NCHW" else torch.channels_last
    dtype = getattr(torch, transform.dtype_name)
    on_gpu = place.kind == CUDA
    device = torch.device("cuda", place.number) if on_gpu else torch.device("cpu")
    small = list(others.values())
    together = bool(small) and _lie_together(small)

    def transformed(lease: Lease, count: int) -> Dict[str, Any]:
        out = torch.empty((count, channels, height, width), device=device, dtype=dtype,
                          memory_format=order)
        stream = current(place.number) if on_gpu else 0
        run(lease, out.data_ptr(), stream)
        made = {image.name: out}
        if together:
            span = small[-1].offset - small[0].offset + small[-1].sample_bytes * count
            copy = taken(lease, small[0], from_dlpack, span).clone()
            made = _Cut(torch, made, copy, count, others)
        else:
            for layout in small:
                made[layout.name] = make(lease, layout, place).clone()
        lease.release(stream if on_gpu else NO_STREAM)
        return made

    return transformed


def _numpy_transform(run: Callable[[Lease, int, int], None], transform: Normalize, image: Layout,
                     others: Dict[str, Layout], place: Place) -> Transform:
    import numpy

    _, height, width, channels = image.shape
    sample = (channels, height, width) if transform.layout == "NCHW" else (height, width, channels)

    def transformed(lease: Lease, count: int) -> Dict[str, Any]:
        out = numpy.empty((count,) + sample, transform.dtype_name)
        run(lease, out.ctypes.data, 0)
        made = {image.name: out}
        for name, layout in others.items():
            made[name] = numpy.array(Tensor(lease, layout, place))
        lease.release(NO_STREAM)
        return made

    return transformed


def check_transform(kind: str, transform: Normalize) -> None:
    """Whether the framework can take what the transform makes."""
    if kind == "dlpack":
        raise ValueError("a transform writes into tensors of a framework: import torch, or give "
                         "tensors=\"torch\" or \"numpy\"")
    if kind == "numpy" and transform.dtype_name == "bfloat16":
        raise ValueError("NumPy has no bfloat16")


def transformer(kind: str, transform: Normalize, layouts: Dict[str, Layout],
                place: Place) -> Transform:
    """Makes tensors of the framework's own, and gives the batch back behind the work on the current
    stream."""
    others = dict(layouts)
    image = others.pop("image" if "image" in others else next(iter(others)))
    if image.dtype != 0 or len(image.shape) != 4:
        raise ValueError("a transform takes uint8 images, and here are "
                         f"{image.name}: {DTYPE_NAME[image.dtype]}{list(image.shape)}")
    name, spec, function = image.name.encode(), transform.spec(), library().transform

    def run(lease: Lease, out: int, stream: int) -> None:
        lease.job.check(function(lease.live(), name, out, byref(spec), stream))

    make = _torch_transform if kind == "torch" else _numpy_transform
    return make(run, transform, image, others, place)
