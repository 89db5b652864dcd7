#!/usr/bin/python3
"""Makes JPEG files that are like photos to a decoder: about 500 x 375 pixels and 100 KB each, in
class folders. The same arguments give the same pixels.

make_photos.py FOLDER [--count 2000] [--classes 10] [--jobs N]
"""

import argparse
import multiprocessing
import os

import numpy
from PIL import Image

# What photos of datasets come in, mostly; the last is rare.
SIZES = [(500, 375), (500, 375), (500, 333), (375, 500), (500, 400), (480, 360), (640, 480)]
# File sizes of photos differ; the sum is about 100 KB a file.
QUALITIES = [90, 92, 94]


def smooth(random, width, height, cells):
    """Colours that change slowly: a small random picture, enlarged."""
    small = random.integers(0, 256, (cells, cells, 3), dtype=numpy.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.BICUBIC)
    return numpy.asarray(picture, dtype=numpy.int16)


def photo(random, label):
    """Large shapes, finer ones, a class's tint, edges, and the noise of a sensor."""
    width, height = SIZES[random.integers(len(SIZES))]
    pixels = smooth(random, width, height, 4)
    for cells, weight in ((12, 3), (40, 5), (120, 8)):
        pixels = pixels + (smooth(random, width, height, cells) - 128) // weight
    for _ in range(6):
        x, y = random.integers(0, width - 40), random.integers(0, height - 40)
        w, h = random.integers(20, width // 2), random.integers(20, height // 2)
        pixels[y:y + h, x:x + w] += random.integers(-60, 60, 3, dtype=numpy.int16)
    tint = numpy.zeros(3, dtype=numpy.int16)
    tint[label % 3] = 10 + 4 * (label // 3)
    noise = random.integers(-20, 21, pixels.shape, dtype=numpy.int16)
    return Image.fromarray(numpy.clip(pixels + tint + noise, 0, 255).astype(numpy.uint8))


def make(task):
    folder, number, classes = task
    label = number % classes
    random = numpy.random.Generator(numpy.random.Philox(key=number))
    path = os.path.join(folder, f"class{label:02d}", f"photo{number:05d}.jpg")
    quality = QUALITIES[random.integers(len(QUALITIES))]
    photo(random, label).save(path, quality=quality, subsampling=2)
    return os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()

    for label in range(min(options.classes, options.count)):
        os.makedirs(os.path.join(options.folder, f"class{label:02d}"), exist_ok=True)
    tasks = [(options.folder, number, options.classes) for number in range(options.count)]
    with multiprocessing.Pool(options.jobs) as pool:
        size = sum(pool.imap_unordered(make, tasks, chunksize=16))
    print(f"{options.count} photos in {options.classes} classes, {size / 1e6:.0f} MB, "
          f"{size / 1e3 / options.count:.0f} KB each")


if __name__ == "__main__":
    main()
