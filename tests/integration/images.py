"""Small datasets for tests: JPEG folders and tar shards whose right answers are known."""

import io
import os
import tarfile

import numpy
from PIL import Image


def photo(seed, width=96, height=72):
    """Something smooth with a little noise, as photos are; a pure function of its arguments."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float32)
    planes = []
    for _ in range(3):
        a, b, c = random.uniform(0.01, 0.2, 3)
        planes.append(127 + 80 * numpy.sin(a * x + c) * numpy.cos(b * y))
    pixels = numpy.stack(planes, axis=2) + random.normal(0, 6, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def jpeg(seed, **size):
    out = io.BytesIO()
    photo(seed, **size).save(out, "JPEG", quality=90)
    return out.getvalue()


def make_folder(path, classes=3, each=9):
    """Class folders c0, c1, ...; sample i of the sorted files has label i // each."""
    for c in range(classes):
        os.makedirs(os.path.join(path, f"c{c}"))
        for i in range(each):
            with open(os.path.join(path, f"c{c}", f"{i:03}.jpg"), "wb") as file:
                file.write(jpeg(1000 * c + i))
    return classes * each


def make_tar(path, start, count, classes=5):
    """A WebDataset shard with keys start .. start + count - 1; label = key % classes."""
    with tarfile.open(path, "w") as tar:
        for key in range(start, start + count):
            for name, data in ((f"{key:05}.jpg", jpeg(key)),
                               (f"{key:05}.cls", str(key % classes).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
