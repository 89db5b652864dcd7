"""Batches from pinserve for PyTorch, JAX, CuPy and NumPy.

    loader = pinclient.Loader("folder:/data/train", 256, image="random-crop:224", flip=0.5,
                              shuffle=True, transform=pinclient.Normalize())
    for epoch in range(90):
        loader.set_epoch(epoch)
        for batch in loader:
            loss = criterion(model(batch["image"]), batch["label"])

The daemon of the machine, pinserved, reads and decodes; batches are complete in the GPU's memory
when they come. `Loader` tells all options.
"""

from typing import Any

from ._errors import AllLeased, BadSample, DaemonGone, Error, Forked, Timeout
from ._private import PrivateDaemon
from ._tensor import Batch, Tensor
from ._transform import IMAGENET_MEAN, IMAGENET_STD, Normalize
from .loader import Loader

__version__ = "0.1.0"

__all__ = ["AllLeased", "BadSample", "Batch", "DaemonGone", "Error", "Forked", "IMAGENET_MEAN",
           "IMAGENET_STD", "Loader", "Normalize", "PrivateDaemon", "Tensor", "Timeout"]


def __getattr__(name: str) -> Any:
    """`pinclient.torch`, which imports torch, when it is asked for."""
    if name == "torch":
        import importlib

        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
