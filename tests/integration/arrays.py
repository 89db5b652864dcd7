"""Arrays and token files for tests, and what a client should see of them."""

import os

import numpy

TYPES = ["u1", "f4", "i8", "u8", "i1", "u2", "i2", "u4", "i4", "f2", "f8"]  # as the protocol counts


def numbers(count, dtype, seed=0):
    """Bit patterns of a type: NaNs and all; a pure function of its arguments."""
    random = numpy.random.default_rng(seed)
    size = numpy.dtype(dtype).itemsize
    return random.integers(0, 256, count * size).astype("u1").view(dtype)


def make_arrays(path):
    """Name -> array in several layouts, each saved as path/NAME.npy."""
    os.makedirs(path, exist_ok=True)
    arrays = {f"{t}": numbers(26 * 15, f"<{t}").reshape(26, 3, 5) for t in TYPES}
    arrays["big"] = numbers(26 * 15, ">f4", 1).reshape(26, 3, 5)
    arrays["fortran"] = numpy.asfortranarray(numbers(26 * 60, "<u2", 2).reshape(26, 3, 5, 4))
    arrays["big-fortran"] = numpy.asfortranarray(numbers(26 * 7, ">i8", 3).reshape(26, 7))
    arrays["flat"] = numbers(26, "<f4", 4)
    arrays["large"] = numbers(26 * 70000, "u1", 5).reshape(26, 70000)
    for name, array in arrays.items():
        numpy.save(f"{path}/{name}.npy", array)
    return arrays


def make_tokens(path, sizes, dtype="<u2", high=50000):
    """Token files t0.bin, t1.bin ...; returns their arrays."""
    os.makedirs(path, exist_ok=True)
    files = []
    for i, size in enumerate(sizes):
        files.append(numpy.random.default_rng(i).integers(0, high, size).astype(dtype))
        files[-1].tofile(f"{path}/t{i}.bin")
    return files


def windows(files, seq, stride):
    """Every window of seq + 1 tokens, in order; none spans two files."""
    return [file[i:i + seq + 1] for file in files
            for i in range(0, len(file) - seq, stride)]
