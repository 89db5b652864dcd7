"""Data for pinned.py: datasets of every kind, the same for ever. Made with integers and the
standard library alone: nothing here may depend on the version of an encoder or of a random
generator, so the one JPEG and the one WebP image are literals."""

import base64
import io
import os
import struct
import tarfile
import zlib

# 64 x 48 pixels, smooth; the JPEG's chroma is subsampled 2 x 2.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIs"
    "IxwcKDcpLDAxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
    "MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjL/wAARCAAwAEADASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAA"
    "BAYH/8QAFhABAQEAAAAAAAAAAAAAAAAAAwBh/8QAGAEBAQEBAQAAAAAAAAAAAAAABAUGBwP/xAAWEQEBAQAAAAAA"
    "AAAAAAAAAAADAAL/2gAMAwEAAhEDEQA/AMrMMlGGSDDJRhkE93mTxzDJRhkkwyUYZOPdTJ4xhkowySYZKMMnHupE"
    "8cwyUYZIMMlGGTj3UyeizDJRhkgwyUYZYs93MCeOYZKMMkGGSjDJp7qZPHMMlGGSDDJZhk491InjmGSjDJBhkowy"
    "ce6mTUUYZKMMkmGSjDLFnu5eTxzDJRhkgwyUYZOPdTJ45hkowyQYZLMMnHupk8YwyUYZJMMlGGTj3Uie/9k=")
WEBP = base64.b64decode(
    "UklGRqIAAABXRUJQVlA4IJYAAADwBACdASpAADAAPtFgpk4/pbAjKAqr8BoJQDCZvN+vhfaTYOyV1kOPf//zV3//"
    "6YAA/u5Xi6OuuyFxzMr0F0x+wBNi2kX4H8M1RTgNI17GqQA50W6QAlEz1JVdTT7Vr17Mavsiwe5HbN0SEr0oC5SC"
    "UJhVe8J3GhnQBB3f5cJWPxaoOYVqGj4R7qdA7SG4zRTcNYgAAAA=")


def numbers(count, below, seed):
    """A linear congruential generator: Knuth's MMIX."""
    state, out = seed, []
    for _ in range(count + 4):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 33) % below)
    return out[4:]


def write(path, *parts):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)


# -- images --------------------------------------------------------------------------------------


def png(width, height, seed, gray=False):
    """A gradient with noise, stored uncompressed."""
    noise = numbers(width * height, 64, seed)
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            n = noise[y * width + x]
            pixel = ((x * 3 + n) % 256, (y * 5 + n) % 256, (x + y + seed * 7 + n) % 256)
            rows += bytes(pixel[:1] if gray else pixel)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I",
                                                                        zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if gray else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + \
        chunk(b"IDAT", zlib.compress(bytes(rows), 0)) + chunk(b"IEND", b"")


def jpeg(orientation=1):
    """With an EXIF segment that says only how it is turned."""
    exif = b"Exif\0\0MM\0\x2a" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)
    return JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + JPEG[2:]


def image(i):
    """The i-th of a set: sizes both ways of every ratio, turned JPEGs, a WebP."""
    if i % 6 == 4:
        return jpeg(1 + i // 6 % 8)
    if i == 5:
        return WEBP
    return png(17 + 13 * i % 60, 19 + 29 * i % 50, i, gray=i % 5 == 3)


def make_folder(path, images=18, bad=()):
    """Three class folders, and a list of some of their files, in another order."""
    names = []
    for i in range(images):
        data = image(i)
        if i in bad:
            data = data[:len(data) // 3]
        names.append(f"c{i % 3}/{i:02}.png")
        write(os.path.join(path, names[-1]), data)
    lines = [f"{name} {i}\n" for i, name in enumerate(reversed(names)) if i % 4]
    write(f"{path}.txt", "".join(lines).encode())


def make_tar(path, first, count):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(first, first + count):
            for field, data in (("png", image(i)), ("cls", str(i % 5).encode()),
                                ("json", b"{\"i\": %d}" % i), ("npy", npy("<i2", (3,), i))):
                info = tarfile.TarInfo(f"{i:03}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


# -- records and tokens --------------------------------------------------------------------------

FORMATS = {"u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q"}


def array(dtype, values):
    return struct.pack(f"{dtype[0]}{len(values)}{FORMATS[dtype[1:]]}", *values)


def npy(dtype, shape, seed, fortran=False, below=100):
    count = 1
    for n in shape:
        count *= n
    text = f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + \
        array(dtype, numbers(count, below, seed))


def make_records(path):
    write(f"{path}/plain.npy", npy("<u2", (26, 3, 5), 1))
    write(f"{path}/large.npy", npy("<i4", (9, 10000), 2))
    write(f"{path}/swapped.npy", npy(">i4", (26, 7), 3))
    write(f"{path}/fortran.npy", npy("<u2", (26, 3, 5), 4, fortran=True))
    write(f"{path}/labels.npy", npy("<i8", (26,), 5))
    write(f"{path}/raw.bin", array("<u2", numbers(26 * 15, 65536, 6)))


def make_tokens(path):
    for i, count in enumerate((700, 9, 350)):
        write(f"{path}/t{i}.bin", array("<u2", numbers(count, 50000, 10 + i)))
    write(f"{path}/wide.bin", array("<u4", numbers(500, 100000, 13)))
    write(f"{path}/llmc.bin", array("<i4", [20240520, 1, 400] + [0] * 253),
          array("<u2", numbers(400, 50000, 14)))
    make_megatron(f"{path}/mega", [50, 3, 120, 1, 77])


def make_megatron(stem, lengths):
    begins = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    write(f"{stem}.bin", array("<u2", numbers(sum(lengths), 50000, 15)))
    write(f"{stem}.idx", b"MMIDIDX\0\0", struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1),
          array("<i4", lengths), array("<i8", begins), array("<i8", list(range(len(lengths) + 1))))


def make(path):
    make_folder(f"{path}/images")
    make_folder(f"{path}/bad", bad=(1, 6, 7, 13))
    for shard in range(3):
        make_tar(f"{path}/s-{shard}.tar", 7 * shard, 7)
    make_records(path)
    make_tokens(path)
