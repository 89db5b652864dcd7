#!/usr/bin/python3
"""Compares decoded pixels with Pillow's.

usage: pixels.py DECODE_TOOL

random-crop has to equal crop(box).resize((S, S), BILINEAR), center-crop resize of the shorter side
to R (BILINEAR) and then crop, each mirrored where the decoder says so: bit for bit where the JPEG was
decoded at its full size, else a mean absolute difference of at most 0.75 and a 99.9th percentile of
at most 8 for every photo.

The photos are made here; PINSERVE_PHOTOS may name a folder DIR/<class>/<file> of real ones instead.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE, RESIZE = 224, 256
MEAN_MAX, PERCENTILE_MAX = 0.75, 8.0


def make_photo(random, w, h):
    """Something like a photo: smooth light, shapes with edges, texture, grain."""
    y, x = np.mgrid[0:h, 0:w].astype(np.float32)
    light = np.zeros((h, w, 3), np.float32)
    for channel in range(3):
        for _ in range(4):
            fx, fy, phase = random.uniform(-9, 9) / w, random.uniform(-9, 9) / h, random.uniform(0, 6)
            light[:, :, channel] += random.uniform(10, 35) * np.sin(fx * x + fy * y + phase)
    image = Image.fromarray(np.clip(light + 128, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(random.integers(8, 25)):
        x0, y0 = random.uniform(-0.2, 1) * w, random.uniform(-0.2, 1) * h
        box = [x0, y0, x0 + random.uniform(0.02, 0.5) * w, y0 + random.uniform(0.02, 0.5) * h]
        color = tuple(int(v) for v in random.integers(0, 256, 3))
        draw.ellipse(box, color) if random.random() < 0.5 else draw.rectangle(box, color)
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.6, 2.0)))
    # Texture whose strength varies over the image, and a little grain.
    texture = np.asarray(
        Image.fromarray(random.integers(0, 256, (h, w), dtype=np.uint8)).filter(
            ImageFilter.GaussianBlur(1.5)), np.float32) - 128
    strength = 0.6 * (1 + np.sin(x * 7 / w + y * 5 / h))
    pixels = np.asarray(image, np.float32) + (texture * strength)[:, :, None]
    pixels += random.normal(0, 2, (h, w, 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def make_large_photo(random, w, h):
    """Cheaper: a smaller one, enlarged, with grain."""
    image = make_photo(random, w // 4, h // 4).resize((w, h), Image.BICUBIC)
    grain = random.normal(0, 3, (512, 512)).astype(np.int16)
    grain = np.tile(grain, (h // 512 + 1, w // 512 + 1))[:h, :w, None]
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def make_photos(folder, n):
    random = np.random.default_rng(1)
    sizes = [(500, 375), (375, 500), (640, 480), (333, 500), (500, 333), (1024, 768), (97, 131),
             (225, 224), (800, 601), (300, 801), (2048, 1536), (449, 447)]
    for i in range(n):
        size = sizes[i % len(sizes)] if i not in (40, 60, 84) else (4608, 3456)
        image = (make_photo if size[0] < 1500 else make_large_photo)(random, *size)
        if i % 10 == 7:
            image = image.convert(("L", "RGB", "P")[i // 10 % 3])
            image.save(folder / f"{i:03}.png")
            continue
        if i % 10 == 3:
            image = image.convert("L")
        image.save(folder / f"{i:03}.jpg", quality=int(random.integers(60, 97)),
                   subsampling=("4:2:0", "4:2:0", "4:2:2", "4:4:4")[i // 2 % 4],
                   progressive=i % 5 == 1)
    return sorted(folder.iterdir())


class Decoder:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, crop, resize, flip_ppm, sample, path):
        request = f"{crop} {SIZE} {resize} {flip_ppm} 7 1 {sample} {path}\n"
        self.process.stdin.write(request.encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        if not answer or answer.startswith("error"):
            raise SystemExit(f"{path}: {answer.strip() or 'the decoder died'}")
        x, y, w, h, flip, scale = (int(v) for v in answer.split())
        pixels = self.process.stdout.read(SIZE * SIZE * 3)
        return (x, y, x + w, y + h), flip, scale, np.frombuffer(pixels, np.uint8).reshape(
            SIZE, SIZE, 3)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("the decoder failed")


def center_crop(image):
    """As torchvision's Resize(RESIZE) and CenterCrop(SIZE)."""
    w, h = image.size
    short, long = min(w, h), max(w, h)
    size = [RESIZE, int(RESIZE * long / short)]
    image = image.resize(size if w <= h else size[::-1], Image.BILINEAR)
    left, top = (int(round((side - SIZE) / 2.0)) for side in image.size)
    return image.crop((left, top, left + SIZE, top + SIZE))


def compare(decoder, crop, path, sample, counts):
    """Returns what is wrong with the photo, if anything."""
    image = Image.open(path).convert("RGB")
    box, flip, scale, pixels = decoder.decode(
        crop, RESIZE if crop == "center-crop" else 0, 500000, sample, path)
    if crop == "random-crop":
        reference = image.crop(box).resize((SIZE, SIZE), Image.BILINEAR)
    else:
        reference = center_crop(image)
    reference = np.asarray(reference)[:, ::-1] if flip else np.asarray(reference)
    difference = np.abs(pixels.astype(np.int16) - reference)
    mean, percentile = difference.mean(), np.percentile(difference, 99.9)
    counts["scale"][scale] += 1
    counts["flip"][flip] += 1
    if scale == 0:
        if difference.any():
            return f"{crop} {box}: not identical: mean {mean:.3f}, max {difference.max()}"
        return None
    counts["mean"] = max(counts["mean"], mean)
    counts["percentile"] = max(counts["percentile"], percentile)
    if mean > MEAN_MAX or percentile > PERCENTILE_MAX:
        return (f"{crop} {box} at 1/{1 << scale}: mean {mean:.3f}, "
                f"99.9th percentile {percentile:.1f}")
    return None


def main():
    decoder = Decoder(sys.argv[1])
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        photos = os.environ.get("PINSERVE_PHOTOS")
        if photos:
            paths = sorted(p for p in pathlib.Path(photos).glob("*/*") if p.is_file())
        else:
            paths = make_photos(pathlib.Path(temporary), 100)
        if len(paths) < 100:
            raise SystemExit(f"{len(paths)} photos: at least 100 are needed")
        for crop in ("random-crop", "center-crop"):
            counts = {"scale": [0] * 4, "flip": [0] * 2, "mean": 0.0, "percentile": 0.0}
            for sample, path in enumerate(paths):
                wrong = compare(decoder, crop, path, sample, counts)
                if wrong:
                    failures += 1
                    print(f"{path}: {wrong}")
            print(f"{crop}: {len(paths)} photos; at scale 1, 1/2, 1/4, 1/8: {counts['scale']}; "
                  f"mirrored: {counts['flip'][1]}; worst of the scaled: mean {counts['mean']:.3f}, "
                  f"99.9th percentile {counts['percentile']:.1f}")
            if counts["scale"][0] == 0 or sum(counts["scale"][1:]) == 0 or 0 in counts["flip"]:
                failures += 1
                print(f"{crop}: scaled and unscaled, mirrored and unmirrored are wanted all")
    decoder.close()
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
