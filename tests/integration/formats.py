#!/usr/bin/python3
"""Jobs on folders and shards of images of every format, with their pixels; EXIF and filters as asked
for; what is odd is counted."""

import io
import os
import tarfile

import numpy
from PIL import Image

import image_cases
from daemon import Daemon, expect, expect_equal, folder, run

SIZE = 32


def samples():
    """(name, bytes); each decodes to a square of SIZE pixels."""
    images = [image_cases.smooth(SIZE, SIZE, seed) for seed in range(8)]
    encoded = image_cases.encoded
    jpeg = encoded(images[0], "JPEG")
    inks = encoded(Image.merge("CMYK", [*images[7].split(), images[0].convert("L")]), "JPEG")
    return [
        ("a.jpg", jpeg),
        ("b.JPEG", encoded(images[1], "JPEG", progressive=True)),
        ("c.png", encoded(images[2], "PNG")),
        ("d.webp", encoded(images[3], "WEBP", quality=80)),
        ("e.WEBP", encoded(images[4], "WEBP", lossless=True)),
        ("f.png", encoded(images[5].convert("P"), "PNG")),
        ("g.jpg", encoded(images[6], "PNG")),
        ("h.jpg", jpeg[:-2]),
        ("i.jpg", image_cases.without_adobe(inks)),
        ("j.jpg", inks),
        ("k.jpg", encoded(images[7].convert("L"), "JPEG")),
    ]


def right_pixels(name, data):
    if name == "i.jpg":
        # Pillow takes inks for inverted without asking: what it shows is 255 minus what is stored.
        inks = numpy.asarray(Image.open(io.BytesIO(data))).astype(int)
        return (inks[:, :, :3] * inks[:, :, 3:] / 255).round()
    whole = data + b"\xff\xd9" * (name == "h.jpg")
    return numpy.asarray(Image.open(io.BytesIO(whole)).convert("RGB"))


def pixels(daemon, *arguments):
    """{index: pixels} of one epoch."""
    events = daemon.batches("--values", "--shuffle", "none", "--device", "host", "--last", "partial",
                            "--epochs", "1", *arguments)
    out = {}
    for event in events:
        expect(event["event"] != "error", event)
        if event["event"] != "batch":
            continue
        values = numpy.frombuffer(bytes.fromhex(event["values"]), numpy.uint8)
        for index, image in zip(event["index"], values.reshape(-1, *event["shape"][1:])):
            out[index] = image
    return out


def expect_images(got, all_samples):
    expect_equal(len(got), len(all_samples), "samples")
    for index, (name, data) in enumerate(all_samples):
        difference = numpy.abs(got[index] - right_pixels(name, data).astype(int)).max()
        expect(difference <= (name == "i.jpg"), f"{name}: pixels differ by {difference}")


def odd(daemon):
    """Images decoded so far, also ahead of what was consumed."""
    stats = daemon.ask("stats")
    return stats["without_end"], stats["plain_inks"]


def test_every_format():
    all_samples = samples()
    crop = ("--image", f"center-crop:{SIZE}:{SIZE}", "--batch", "4")
    with Daemon() as daemon, folder() as at:
        os.mkdir(os.path.join(at, "c"))
        for name, data in all_samples:
            with open(os.path.join(at, "c", name), "wb") as file:
                file.write(data)
        expect_equal(odd(daemon), (0, 0), "odd ones before any job")
        expect_images(pixels(daemon, "--source", f"folder:{at}", *crop), all_samples)
        first = odd(daemon)
        expect(min(first) >= 1, f"odd ones: {first}")
        text = daemon.pinctl("stats").stdout
        expect("JPEGs without end" in text and "plain CMYK" in text, text)
        shard = os.path.join(at, "a.tar")
        with tarfile.open(shard, "w") as tar:
            for name, data in all_samples:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        expect_images(pixels(daemon, "--source", f"tar:{shard}", *crop), all_samples)
        second = odd(daemon)
        expect(second[0] > first[0] and second[1] > first[1], f"odd ones: {first}, then {second}")


def test_upright():
    with Daemon() as daemon, folder() as at:
        os.mkdir(os.path.join(at, "c"))
        stored = []
        for tag in range(1, 9):
            data = image_cases.marked("JPEG", orientation=tag, w=SIZE, h=SIZE)
            stored.append(numpy.asarray(Image.open(io.BytesIO(data))))
            with open(os.path.join(at, "c", f"{tag}.jpg"), "wb") as file:
                file.write(data)
        source = ("--source", f"folder:{at}", "--batch", "4", "--image")
        got = pixels(daemon, *source, f"center-crop:{SIZE}:{SIZE}")
        for i in range(8):
            expect(numpy.array_equal(got[i], stored[i]), f"tag {i + 1} is turned unasked")
        got = pixels(daemon, *source, f"center-crop:{SIZE}:{SIZE},orient=exif")
        for i in range(8):
            right = image_cases.turned(Image.fromarray(stored[i]), i + 1)
            expect(numpy.array_equal(got[i], numpy.asarray(right)), f"tag {i + 1} is not upright")
            expect_equal(image_cases.corner(got[i]), image_cases.CORNERS[i], f"tag {i + 1}")


def test_pipelines_tell_their_options():
    """The text of a pipeline decides what may resume it: as ever without the options."""
    with Daemon() as daemon, folder() as at:
        os.mkdir(os.path.join(at, "c"))
        with open(os.path.join(at, "c", "a.png"), "wb") as file:
            file.write(image_cases.encoded(image_cases.smooth(70, 50), "PNG"))
        for image, text in (("random-crop:16", "random-crop:16 area=80000..1000000 "
                             "ratio=750000..1333333 flip=0 v1"),
                            ("center-crop:16,filter=bicubic,orient=exif",
                             "center-crop:16 resize=18 flip=0 filter=bicubic orient=exif v1")):
            process = daemon.consume("--source", f"folder:{at}", "--image", image, "--batch", "1",
                                     "--device", "host", "--batches", "1", "--hold", "1", "--wait")
            process.stdout.readline()
            expect_equal(daemon.jobs()[0]["pipeline"], text, image)
            process.communicate()
        checksums = [daemon.bench("--source", f"folder:{at}", "--image", image, "--batch", "1",
                                  "--device", "host", "--epochs", "1", "--checksum")["checksum"]
                     for image in ("random-crop:16", "random-crop:16,filter=bilinear",
                                   "random-crop:16,filter=bicubic")]
        expect(checksums[0] == checksums[1] != checksums[2], checksums)
        result = daemon.pinctl("bench", "--source", f"folder:{at}", "--image",
                               "random-crop:16,orient=up", "--batch", "1", check=False)
        expect("filter=bilinear, filter=bicubic or orient=exif" in result.stderr, result.stderr)


if __name__ == "__main__":
    run([test_every_format, test_upright, test_pipelines_tell_their_options])
