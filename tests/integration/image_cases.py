#!/usr/bin/python3
"""Image files as people have them: what the decoder makes of each, against known values and Pillow.

usage: image_cases.py DECODE_TOOL [test...]
"""
import io
import itertools
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
from PIL import Image

RED = (255, 0, 0)


class Tool:
    def __init__(self, program, folder):
        # A sanitizer keeps freed memory for a while; no more than would hide growth.
        environment = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") +
                           ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment)
        self.folder = pathlib.Path(folder)

    def ask(self, request, data, name="x.jpg"):
        """The words of the answer, or the text of an error."""
        path = self.folder / name
        path.write_bytes(data)
        self.process.stdin.write(f"{request} {path}\n".encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        assert answer, "the decoder died"
        return answer.strip()

    def memory(self, what):
        """A line of /proc/PID/status, in KiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{what}:")[1].split()[0])

    def read(self, w, h):
        pixels = self.process.stdout.read(w * h * 3)
        return np.frombuffer(pixels, np.uint8).reshape(h, w, 3)

    def whole(self, data, name="x.jpg"):
        answer = self.ask("whole", data, name)
        assert not answer.startswith("error"), answer
        w, h, orientation, without_end, kind, *mode = answer.split(" ")
        facts = {"orientation": int(orientation), "without_end": int(without_end), "format": kind,
                 "mode": " ".join(mode)}
        return self.read(int(w), int(h)), facts

    def crop(self, data, size, crop="random-crop", resize=0, sample=0):
        answer = self.ask(f"{crop} {size} {resize} 0 7 1 {sample}", data)
        assert not answer.startswith("error"), answer
        x, y, w, h, _, scale = (int(v) for v in answer.split())
        return (x, y, x + w, y + h), scale, self.read(size, size)

    def error(self, data, name="x.jpg", crop=None):
        answer = self.ask(f"{crop} 8 0 0 7 1 0" if crop else "whole", data, name)
        assert answer.startswith("error "), f"was decoded: {answer}"
        assert name in answer, answer
        return answer[6:]


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def noise(w, h, channels=3, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (h, w, channels), dtype=np.uint8)


def smooth(w, h, seed=1):
    """What a JPEG encoder keeps nearly as it is."""
    small = noise(max(2, w // 24), max(2, h // 24), seed=seed)
    return Image.fromarray(small).resize((w, h), Image.BICUBIC)


def rgb(image):
    return np.asarray(image.convert("RGB"))


def equal(pixels, reference):
    assert pixels.shape == reference.shape, f"{pixels.shape}, not {reference.shape}"
    assert (pixels == reference).all(), \
        f"{int((pixels != reference).any(axis=2).sum())} pixels differ"


def near(pixels, value, by=2):
    difference = np.abs(pixels.astype(int) - np.array(value)).max()
    assert difference <= by, f"{pixels.reshape(-1, 3)[0]} is {difference} from {value}"


# -- PNG, made by hand: Pillow writes but few of its kinds ------------------------------------------

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def packed(values, depth):
    """Rows of samples as PNG stores them, filter 0 before each."""
    out = b""
    for row in values:
        row = row.reshape(-1)
        if depth == 16:
            data = row.astype(">u2").tobytes()
        elif depth == 8:
            data = row.astype(np.uint8).tobytes()
        else:
            bits = ((row[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8)
            data = np.packbits(bits.reshape(-1)).tobytes()
        out += b"\0" + data
    return out


def png(values, color, depth, interlaced=False, chunks=b"", behind=b""):
    h, w = values.shape[:2]
    if interlaced:
        passes = [values[y0::dy, x0::dx] for x0, y0, dx, dy in ADAM7]
        data = b"".join(packed(part, depth) for part in passes if part.size)
    else:
        data = packed(values, depth)
    header = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks +
            chunk(b"IDAT", zlib.compress(data)) + behind + chunk(b"IEND", b""))


PNG_KINDS = {0: (1, (1, 2, 4, 8, 16)), 2: (3, (8, 16)), 3: (1, (1, 2, 4, 8)), 4: (2, (8, 16)),
             6: (4, (8, 16))}


def png_right(values, color, depth, palette):
    if color == 3:
        return palette[values[:, :, 0]]
    eight = values >> 8 if depth == 16 else values * (255 // ((1 << depth) - 1))
    if color in (0, 4):
        eight = np.repeat(eight[:, :, :1], 3, axis=2)
    return eight[:, :, :3].astype(np.uint8)


def test_png_of_every_kind(tool):
    random = np.random.default_rng(5)
    for color, (channels, depths) in PNG_KINDS.items():
        for depth, interlaced, transparent in itertools.product(depths, (False, True), (False, True)):
            if transparent and color in (4, 6):
                continue
            values = random.integers(0, 1 << depth, (13, 19, channels))
            palette = random.integers(0, 256, (1 << min(depth, 8), 3)).astype(np.uint8)
            chunks = b""
            if color == 3:
                chunks += chunk(b"PLTE", palette.tobytes())
            if transparent:
                key = bytes(len(palette)) if color == 3 else values[0, 0].astype(">u2").tobytes()
                chunks += chunk(b"tRNS", key)
            data = png(values, color, depth, interlaced, chunks)
            pixels, facts = tool.whole(data, "x.png")
            try:
                equal(pixels, png_right(values, color, depth, palette))
            except AssertionError as wrong:
                raise AssertionError(f"type {color}, {depth} bits, interlaced {interlaced}, "
                                     f"transparent {transparent}: {wrong}") from None
            assert facts["format"] == "png" and f"{depth} bits" in facts["mode"], facts
            assert ("interlaced" in facts["mode"]) == interlaced, facts


def test_png_values(tool):
    """Palettes, alpha, 16 bits and gamma, as in the field's reports."""
    palette = Image.fromarray(np.array([[0, 1, 2, 3]], np.uint8), "P")
    palette.putpalette([9, 8, 7, 200, 100, 50, 1, 2, 3, 255, 0, 128])
    pixels, _ = tool.whole(encoded(palette, "PNG"), "p.png")
    assert pixels[0].tolist() == [[9, 8, 7], [200, 100, 50], [1, 2, 3], [255, 0, 128]]
    gray_alpha = np.array([[[77, 0]]])
    assert tool.whole(png(gray_alpha, 4, 8))[0].tolist() == [[[77, 77, 77]]]
    high = np.array([[[0xff00], [0x80ff], [0x0100]]])
    assert tool.whole(png(high, 0, 16))[0][0, :, 0].tolist() == [255, 128, 1]
    gamma = chunk(b"gAMA", struct.pack(">I", 2000))
    assert tool.whole(png(np.array([[[100, 150, 200]]]), 2, 8, chunks=gamma))[0].tolist() == \
        [[[100, 150, 200]]]


def test_malformed_headers(tool):
    data = png(noise(9, 9).astype(int), 2, 8)
    assert tool.error(b"") == f"{tool.folder}/x.jpg: empty file"
    for size in range(1, 8):
        assert f"PNG: cut off after {size} bytes" in tool.error(data[:size]), size
    for size in (8, 20, 33, len(data) // 2):
        assert "x.jpg: PNG: " in tool.error(data[:size]), size
    for size in (3, 4, 20):
        assert "JPEG: " in tool.error(encoded(smooth(50, 50), "JPEG")[:size]), size


# -- JPEG -------------------------------------------------------------------------------------------

def without_adobe(data):
    """The file without its APP14 segment."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:]


def flat_cmyk(values):
    # Pillow inverts what it writes as Adobe's: what is stored is 255 minus these.
    return Image.new("CMYK", (16, 16), values)


def test_inks(tool):
    """Adobe's CMYK of (100, 50, 25, 10) is (255 - C)(255 - K) / 255."""
    for values, right in (((100, 50, 25, 10), (149, 197, 221)), ((0, 0, 0, 255), (0, 0, 0))):
        data = encoded(flat_cmyk(values), "JPEG", quality=100)
        pixels, facts = tool.whole(data)
        near(pixels, right)
        assert facts["mode"] == "cmyk", facts
        # Without the marker the inks are plain: those stored are 255 minus the values.
        plain, _ = tool.whole(without_adobe(data))
        near(plain, tuple(v * values[3] // 255 for v in values[:3]), 3)


def test_every_coding(tool):
    """Each equals Pillow, bit for bit; what Pillow cannot make is in the unit test of jpeg.c."""
    image = smooth(133, 101)
    made = {}
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        for progressive in (False, True):
            made[f"{subsampling} {progressive}"] = encoded(
                image, "JPEG", subsampling=subsampling, progressive=progressive)
    made["gray"] = encoded(image.convert("L"), "JPEG")
    made["gray progressive"] = encoded(image.convert("L"), "JPEG", progressive=True)
    made["cmyk"] = encoded(image.convert("CMYK"), "JPEG")
    for name, data in made.items():
        pixels, facts = tool.whole(data)
        equal(pixels, rgb(Image.open(io.BytesIO(data))))
        assert ("progressive" in facts["mode"]) == ("True" in name or "progressive" in name), facts


def test_truncated(tool):
    """Half a file is bad whatever the crop; one without its end marker is whole, whatever the crop
    and the scale."""
    image = smooth(300, 300)
    for progressive in (False, True):
        data = encoded(image, "JPEG", quality=90, progressive=progressive)
        assert "JPEG: " in tool.error(data[:len(data) // 2], "cut.jpg")
        assert "JPEG: " in tool.error(data[:len(data) // 2] + b"\xff\xd9", "mended.jpg")
        for sample in range(8):
            answer = tool.ask(f"random-crop 8 0 0 7 1 {sample}", data[:len(data) // 2])
            assert answer.startswith("error "), f"progressive {progressive}, sample {sample}"
        assert data[-2:] == b"\xff\xd9"
        pixels, facts = tool.whole(data[:-2])
        assert facts["without_end"] == 1
        whole, facts = tool.whole(data)
        assert facts["without_end"] == 0
        equal(pixels, whole)
        scales = set()
        for size, sample in itertools.product((16, 100), range(6)):
            box, scale, pixels = tool.crop(data, size, sample=sample)
            assert tool.crop(data[:-2], size, sample=sample)[:2] == (box, scale)
            equal(tool.crop(data[:-2], size, sample=sample)[2], pixels)
            scales.add(scale)
        assert len(scales) > 2, scales


def test_wrong_extension(tool):
    image = smooth(40, 30)
    equal(tool.whole(encoded(image, "PNG"), "x.JPEG")[0], rgb(image))
    for data, word in ((encoded(image, "BMP"), "BMP"), (b"\x1f\x8b\x08" + bytes(20), "gzip"),
                       (b"\x28\xb5\x2f\xfd" + bytes(20), "zstd"), (encoded(image, "GIF"), "GIF"),
                       (encoded(image, "TIFF"), "TIFF")):
        assert f"is {word} data; only JPEG, PNG and WebP are decoded" in tool.error(data, "x.JPEG")


def bomb(side, progressive=False):
    """A small JPEG whose header says side x side."""
    data = bytearray(encoded(smooth(64, 64), "JPEG", progressive=progressive))
    at = data.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    data[at + 5:at + 9] = struct.pack(">HH", side, side)
    return bytes(data)


def large_png(side, interlaced):
    data = bytearray(png(np.zeros((4, 4, 3), int), 2, 8, interlaced))
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def test_bombs(tool):
    """Refused by what the header says, before anything is allocated: by the peak of all memory."""
    for crop in (None, "random-crop", "center-crop,exif"):
        tool.ask(f"{crop} 8 0 0 7 1 0" if crop else "whole", b"")
        before = tool.memory("VmPeak")
        for data, text in (
                (bomb(65500), "65500x65500 = 4290250000 pixels; the limit is 268435456"),
                (bomb(65500, True), "65500x65500 = 4290250000 pixels; the limit is "),
                (bomb(8193, True), "8193x8193 = 67125249 pixels; the limit is 67108864"),
                (large_png(65500, False), "65500x65500 = 4290250000 pixels; the limit is 268435456"),
                (large_png(8193, True), "8193x8193 = 67125249 pixels; the limit is 67108864")):
            got = tool.error(data, "bomb.jpg", crop)
            assert text in got, got
        assert tool.memory("VmPeak") < before + 4096, f"{tool.memory('VmPeak') - before} KiB more"
    webp = bytearray(encoded(Image.new("RGB", (16, 16)), "WEBP", lossless=True))
    # 14 bits each of width - 1 and height - 1 behind the signature byte.
    at = webp.index(b"\x2f", 20) + 1
    webp[at:at + 4] = struct.pack("<I", 16382 | 16382 << 14)
    text = tool.error(bytes(webp), "bomb.webp")
    assert "16383x16383 = 268402689 pixels; the limit is 67108864" in text, text


def test_no_growth(tool):
    """One malformed file 10,000 times."""
    data = encoded(smooth(200, 150), "JPEG")
    cut = data[:len(data) // 2]

    path = tool.folder / "bad.jpg"
    path.write_bytes(cut)
    for round_ in range(2):
        for _ in range(1000 if round_ == 0 else 10000):
            tool.process.stdin.write(f"random-crop 8 0 0 7 1 0 {path}\n".encode())
            tool.process.stdin.flush()
            assert tool.process.stdout.readline().startswith(b"error ")
        if round_ == 0:
            before = tool.memory("VmRSS")
    after = tool.memory("VmRSS")
    assert after < before + 1024, f"from {before} KiB to {after} KiB"
    equal(tool.whole(data)[0], rgb(Image.open(io.BytesIO(data))))


def test_no_growth_of_any_kind(tool):
    """What is wrong elsewhere: in chunks beside the image, and in other formats."""
    image = smooth(90, 70)
    small = np.zeros((4, 4, 3), int)
    text = zlib.compress(bytes(1 << 26), 1)
    heads = {b"zTXt": b"key\0\0", b"iCCP": b"key\0\0", b"iTXt": b"key\0\1\0\0\0"}
    for kind, head in heads.items():
        assert "PNG: " in tool.error(png(small, 2, 8, chunks=chunk(kind, head + text)))
    files = [png(small, 2, 8, chunks=chunk(kind, head + text[:1000]))
             for kind, head in heads.items()]
    files += [png(small, 2, 8, chunks=chunk(b"tEXt", b"k\0v") * 1000)[:9000],
              png(small, 2, 8, chunks=chunk(b"sPLT", b"key\0\x08" + bytes(5))),
              png(small[:, :, :1], 3, 8), png(small, 2, 8, True)[:60], bomb(65500), bomb(65500, True),
              encoded(image, "BMP")]
    for data in (encoded(image, "JPEG", progressive=True), encoded(image, "WEBP"),
                 encoded(image.convert("CMYK"), "JPEG"), encoded(image, "WEBP", lossless=True)):
        files.append(data[:len(data) // 2])
    for round_ in range(150):
        for data in files:
            if not tool.ask("whole", data).startswith("error"):
                tool.read(4, 4)
        if round_ == 50:
            before = tool.memory("VmRSS")
    after = tool.memory("VmRSS")
    assert after < before + 1024, f"from {before} KiB to {after} KiB"


# -- WebP ------------------------------------------------------------------------------------------

def test_webp(tool):
    pixels = noise(61, 47)
    got, facts = tool.whole(encoded(Image.fromarray(pixels), "WEBP", lossless=True), "x.webp")
    equal(got, pixels)
    assert facts["format"] == "webp" and facts["mode"] == "lossless", facts
    image = smooth(301, 203)
    lossy = encoded(image, "WEBP", quality=85)
    got, facts = tool.whole(lossy)
    equal(got, rgb(Image.open(io.BytesIO(lossy))))
    assert facts["mode"] == "lossy", facts
    alpha = np.concatenate([noise(33, 21), np.full((21, 33, 1), 128, np.uint8)], axis=2)
    got, facts = tool.whole(encoded(Image.fromarray(alpha), "WEBP", lossless=True, exact=True))
    equal(got, alpha[:, :, :3])
    assert facts["mode"] == "lossless, alpha", facts
    for sample in range(10):
        box, _, got = tool.crop(lossy, 64, sample=sample)
        equal(got, np.asarray(Image.open(io.BytesIO(lossy)).convert("RGB").crop(box).resize(
            (64, 64), Image.BILINEAR)))
    for size in (12, 16, 25, len(lossy) // 2, len(lossy) - 4):
        assert "WebP: " in tool.error(lossy[:size], "cut.webp"), size
    frames = [smooth(40, 40, seed) for seed in (1, 2)]
    animated = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    assert "animated; only still images are decoded" in tool.error(animated)


# -- EXIF and filters --------------------------------------------------------------------------------

def exif(orientation, little=False):
    order = "<" if little else ">"
    # Another tag before it, one behind.
    entries = struct.pack(order + "HHII", 0x0100, 4, 1, 24)
    entries += struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    entries += struct.pack(order + "HHII", 0x8769, 4, 1, 8)
    return ((b"II*\0" if little else b"MM\0*") + struct.pack(order + "IH", 8, 3) + entries + bytes(4))


def marked(kind, little=False, orientation=6, w=24, h=16):
    """Red at the top left of what is stored."""
    image = Image.new("RGB", (w, h), (0, 0, 255))
    image.paste(RED, (0, 0, 8, 8))
    data = exif(orientation, little)
    if kind == "PNG":
        return png(np.asarray(image).astype(int), 2, 8, chunks=chunk(b"eXIf", data))
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True}
    return encoded(image, kind, exif=b"Exif\0\0" + data, **options)


CORNERS = ("TL", "TR", "BR", "BL", "TL", "TR", "BR", "BL")


def corner(pixels):
    """Where the red is."""
    h, w = pixels.shape[:2]
    places = {"TL": pixels[1, 1], "TR": pixels[1, w - 2], "BL": pixels[h - 2, 1],
              "BR": pixels[h - 2, w - 2]}
    red = [name for name, pixel in places.items() if pixel[0] > 200 and pixel[2] < 60]
    assert len(red) == 1, red
    return red[0]


def test_orientation(tool):
    """The whole image is known through a crop of all of it: area 1, and its own size."""
    for kind, little, orientation in itertools.product(("JPEG", "PNG", "WEBP"), (False, True),
                                                       range(1, 9)):
        data = marked(kind, little, orientation)
        pixels, facts = tool.whole(data)
        assert pixels.shape == (16, 24, 3) and corner(pixels) == "TL"
        assert facts["orientation"] == orientation, (kind, facts)
        box, _, straight = tool.crop(data, 8, "center-crop", 8)
        assert box == (0, 0, 24, 16), box
        box, _, turned = tool.crop(data, 8, "center-crop,exif", 8)
        assert box == ((0, 0, 24, 16) if orientation <= 4 else (0, 0, 16, 24)), box
        assert (straight != turned).any() == (orientation > 1), (kind, orientation)
        square = marked(kind, little, orientation, 24, 24)
        _, _, turned = tool.crop(square, 24, "center-crop,exif", 24)
        assert corner(turned) == CORNERS[orientation - 1], (kind, orientation)
        _, _, straight = tool.crop(square, 24, "center-crop", 24)
        assert corner(straight) == "TL", (kind, orientation)


def turned(image, orientation):
    steps = (None, Image.FLIP_LEFT_RIGHT, Image.ROTATE_180, Image.FLIP_TOP_BOTTOM, Image.TRANSPOSE,
             Image.ROTATE_270, Image.TRANSVERSE, Image.ROTATE_90)
    step = steps[orientation - 1]
    return image if step is None else image.transpose(step)


def test_orientation_is_pillows(tool):
    """Crops of the upright image, resized: bit for bit, with both filters; and at a smaller scale."""
    image = smooth(201, 143, 3)
    large = smooth(1501, 1103, 4)
    scaled = 0
    for orientation in range(1, 9):
        for kind, options in (("JPEG", {"quality": 95}), ("WEBP", {"quality": 95}), ("PNG", {})):
            data = encoded(image, kind, exif=b"Exif\0\0" + exif(orientation), **options)
            stored = Image.open(io.BytesIO(data)).convert("RGB")
            for sample, (word, filter_) in enumerate(
                    (("", Image.BILINEAR), (",bicubic", Image.BICUBIC))):
                box, scale, pixels = tool.crop(data, 112, f"random-crop{word},exif",
                                               sample=sample + orientation)
                reference = turned(stored, orientation).crop(box).resize((112, 112), filter_)
                assert scale == 0
                equal(pixels, np.asarray(reference))
        data = encoded(large, "JPEG", quality=95, exif=b"Exif\0\0" + exif(orientation))
        stored = turned(Image.open(io.BytesIO(data)).convert("RGB"), orientation)
        for sample in range(4):
            box, scale, pixels = tool.crop(data, 64, "random-crop,exif", sample=sample)
            reference = np.asarray(stored.crop(box).resize((64, 64), Image.BILINEAR))
            difference = np.abs(pixels.astype(int) - reference)
            scaled += scale > 0
            assert difference.mean() < 0.75 and np.percentile(difference, 99.9) <= 8, \
                f"tag {orientation} at 1/{1 << scale}: {difference.mean()}, {difference.max()}"
    assert scaled > 10, scaled


def test_bicubic(tool):
    image = Image.fromarray(noise(333, 217))
    data = encoded(image, "PNG")
    for sample in range(12):
        for size in (8, 100, 400):
            box, _, pixels = tool.crop(data, size, "random-crop,bicubic", sample=sample)
            equal(pixels, np.asarray(image.crop(box).resize((size, size), Image.BICUBIC)))


def test_orientation_nonsense(tool):
    """Foreign bytes in EXIF never do more than leave the image as it is."""
    random = np.random.default_rng(9)
    for _ in range(300):
        data = bytearray(exif(6, bool(random.integers(2))))
        for _ in range(random.integers(1, 6)):
            data[random.integers(len(data))] = random.integers(256)
        data = bytes(data[:random.integers(1, len(data) + 1)])
        _, facts = tool.whole(png(noise(2, 2).astype(int), 2, 8, chunks=chunk(b"eXIf", data)))
        assert 1 <= facts["orientation"] <= 8
    for value in (0, 9, 65535):
        assert tool.whole(marked("JPEG", False, value))[1]["orientation"] == 1
    pixels = noise(2, 2).astype(int)
    broken = bytearray(chunk(b"eXIf", exif(6)))
    broken[-1] ^= 1
    assert tool.whole(png(pixels, 2, 8, chunks=bytes(broken)))[1]["orientation"] == 1
    assert tool.whole(png(pixels, 2, 8, behind=chunk(b"eXIf", exif(6))))[1]["orientation"] == 6


def main():
    tests = {name[5:]: test for name, test in globals().items() if name.startswith("test_")}
    chosen = sys.argv[2:] or tests
    failed = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            tool = Tool(sys.argv[1], folder)
            try:
                tests[name](tool)
                print(f"ok {name}")
            except AssertionError as wrong:
                failed += 1
                print(f"FAILED {name}: {wrong}")
            tool.process.stdin.close()
            if tool.process.wait() != 0:
                failed += 1
                print(f"FAILED {name}: the decoder ended with {tool.process.returncode}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
