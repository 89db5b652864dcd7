"""What becomes of images on the trainer's own stream."""

from dataclasses import dataclass
from typing import Any, Sequence, Tuple

from ._library import CHANNELS_MAX, TransformSpec

DTYPES = {"float32": 1, "float16": 9, "bfloat16": 11}
LAYOUTS = {"NCHW": 0, "NHWC": 1}

IMAGENET_MEAN: Tuple[float, ...] = (0.485, 0.456, 0.406)
IMAGENET_STD: Tuple[float, ...] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Normalize:
    """(x / 255 - mean) / std of each channel, as torchvision's ToTensor and Normalize do, rounded
    once to `dtype`: one kernel on the current stream, into a tensor of the framework's own.

    - `mean`, `std`: a number a channel, of values from 0 to 1; the defaults are ImageNet's
    - `dtype`: "float32", "float16", "bfloat16", or a torch or NumPy dtype
    - `layout`: "NCHW", or "NHWC". With PyTorch the shape is [samples, channels, height, width]
      either way, and NHWC is memory format `channels_last`
    """

    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    dtype: Any = "float32"
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not 1 <= len(self.mean) <= CHANNELS_MAX:
            raise ValueError(f"mean and std have {len(self.mean)} and {len(self.std)} channels: "
                             f"as many, and 1 to {CHANNELS_MAX}, are possible")
        if 0 in self.std:
            raise ValueError("std is 0")
        if self.dtype_name not in DTYPES:
            raise ValueError(f"dtype {self.dtype}: there are {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout {self.layout}: there are {', '.join(LAYOUTS)}")

    @property
    def dtype_name(self) -> str:
        name = getattr(self.dtype, "__name__", None) or str(self.dtype)
        return name.rpartition(".")[2]

    def spec(self) -> TransformSpec:
        """As the C library wants it."""
        spec = TransformSpec(dtype=DTYPES[self.dtype_name], layout=LAYOUTS[self.layout],
                             channels=len(self.mean))
        for i, (mean, std) in enumerate(zip(self.mean, self.std)):
            spec.mean[i], spec.std[i] = mean, std
        return spec
