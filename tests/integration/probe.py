#!/usr/bin/python3
"""pinctl probe: what a real daemon makes of image files and tar members, without a job."""

import io
import json
import os
import struct
import tarfile
import time

import numpy
from PIL import Image

import image_cases
import rawpeer
from daemon import SANITIZED, Daemon, expect, expect_equal, folder, run, wait_for

PROBE, PROBED = 14, 34


def probe(daemon, *words, status=0):
    result = daemon.pinctl("--json", "probe", *words, check=False)
    expect_equal(result.returncode, status, f"exit status of {words}: {result.stderr}")
    return json.loads(result.stdout)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def jpeg(w=60, h=40, **options):
    return image_cases.encoded(image_cases.smooth(w, h), "JPEG", **options)


def test_what_files_are():
    with Daemon() as daemon, folder() as at:
        small = numpy.zeros((3, 4, 1), int)
        files = {
            "a.jpg": (jpeg(), ("jpeg", 60, 40, "ycbcr 2x2", 1)),
            "gray.jpg": (image_cases.encoded(image_cases.smooth(20, 30).convert("L"), "JPEG"),
                         ("jpeg", 20, 30, "gray", 1)),
            "inks.jpg": (image_cases.encoded(image_cases.smooth(20, 30).convert("CMYK"), "JPEG"),
                         ("jpeg", 20, 30, "cmyk", 1)),
            "progressive.jpg": (jpeg(progressive=True),
                                ("jpeg", 60, 40, "ycbcr 2x2, progressive", 1)),
            "lying.jpg": (image_cases.marked("JPEG", orientation=6), ("jpeg", 24, 16, "ycbcr 1x1", 6)),
            "bits.png": (image_cases.png(small, 0, 1, True),
                         ("png", 4, 3, "gray, 1 bits, interlaced", 1)),
            "deep.png": (image_cases.png(numpy.zeros((3, 4, 4), int), 6, 16),
                         ("png", 4, 3, "rgb and alpha, 16 bits", 1)),
            "x.webp": (image_cases.encoded(image_cases.smooth(33, 22), "WEBP"),
                       ("webp", 33, 22, "lossy", 1)),
            # By what they are, not by what they are called; names of any kind.
            "really a png.JPEG": (image_cases.png(small, 0, 8), ("png", 4, 3, "gray, 8 bits", 1)),
            "ä:日 x.jpg": (jpeg(), ("jpeg", 60, 40, "ycbcr 2x2", 1)),
            "n" * 251 + ".jpg": (jpeg(), ("jpeg", 60, 40, "ycbcr 2x2", 1)),
        }
        paths = [write(os.path.join(at, name), data) for name, (data, _) in files.items()]
        for path, got, (data, right) in zip(paths, probe(daemon, *paths), files.values()):
            expect_equal(got["name"], path, "name")
            expect(got["readable"] and got["reason"] is None, f"{path}: {got}")
            expect_equal((got["format"], got["width"], got["height"], got["mode"],
                          got["orientation"]), right, path)
            expect_equal(got["bytes"], len(data), path)
            expect_equal(got["without_end"], False, path)
        text = daemon.pinctl("probe", paths[0]).stdout
        expect("jpeg" in text and "60x40" in text and "good" in text, text)
        expect_equal(daemon.jobs(), [], "jobs")


def test_what_is_wrong_with_files():
    data = jpeg(200, 150)
    bomb = bytearray(jpeg())
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5:at + 9] = struct.pack(">HH", 65500, 65500)
    png = image_cases.png(image_cases.noise(9, 9).astype(int), 2, 8)
    bad = {
        "empty.jpg": (b"", "empty.jpg: empty file"),
        "half.jpg": (data[:len(data) // 2], "half.jpg: JPEG: "),
        "half2.jpg": (jpeg(200, 150, progressive=True)[:2000], "half2.jpg: JPEG: "),
        "prefix.png": (png[:5], "prefix.png: PNG: cut off after 5 bytes"),
        "cut.png": (png[:-30], "cut.png: PNG: "),
        "bmp.JPEG": (image_cases.encoded(image_cases.smooth(8, 8), "BMP"), "is BMP data"),
        "gzip.JPEG": (b"\x1f\x8b\x08" + bytes(30), "is gzip data"),
        "bomb.jpg": (bytes(bomb), "65500x65500 = 4290250000 pixels; the limit is 268435456"),
        "words.txt": (b"hello, world", "neither JPEG, PNG nor WebP"),
    }
    with Daemon() as daemon, folder() as at:
        paths = [write(os.path.join(at, name), content) for name, (content, _) in bad.items()]
        good = write(os.path.join(at, "good.jpg"), data)
        for path, got, (_, text) in zip(paths, probe(daemon, *paths, status=1), bad.values()):
            expect(not got["readable"] and text in got["reason"], f"{path}: {got}")
        expect_equal(got["format"], None, "format of no image")
        # What the header says is known all the same.
        got, whole, missing, directory, pipe = probe(
            daemon, paths[1], good, os.path.join(at, "nothing.jpg"), at, make_pipe(at), status=1)
        expect_equal((got["width"], got["height"], got["mode"]), (200, 150, "ycbcr 2x2"), "half")
        expect(whole["readable"], whole)
        expect("No such file" in missing["reason"], missing)
        expect(not directory["readable"] and "not a regular file" in directory["reason"], directory)
        expect(not pipe["readable"] and "not a regular file" in pipe["reason"], pipe)
        result = daemon.pinctl("probe", paths[0], good, check=False)
        expect_equal(result.returncode, 1, "exit status")
        expect("1 of 2 is not readable" in result.stderr, result.stderr)
        expect("bad: " in result.stdout and "good" in result.stdout, result.stdout)
        end = probe(daemon, write(os.path.join(at, "end.jpg"), data[:-2]))[0]
        expect(end["readable"] and end["without_end"], end)


def make_pipe(at):
    path = os.path.join(at, "pipe.jpg")
    os.mkfifo(path)
    return path


def test_members_of_tars():
    data = jpeg(50, 70)
    with Daemon() as daemon, folder() as at:
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            shard = os.path.join(at, f"a:{form}.tar")
            long = "d/" + "m" * 200 + ".jpg" if form != tarfile.USTAR_FORMAT else "d/m.jpg"
            with tarfile.open(shard, "w", format=form) as tar:
                for name, content in (("first.cls", b"3"), (long, data), ("b ä:c.jpg", data[:900]),
                                      ("./dot.png", image_cases.png(numpy.zeros((2, 5, 1), int), 0, 8))):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
            good, cut, dot, none = probe(daemon, f"{shard}:{long}", f"{shard}:b ä:c.jpg",
                                         f"{shard}:dot.png", f"{shard}:no.jpg", status=1)
            expect_equal((good["readable"], good["width"], good["height"], good["bytes"]),
                         (True, 50, 70, len(data)), long)
            expect(not cut["readable"] and f"{shard}:b ä:c.jpg: JPEG: " in cut["reason"], cut)
            expect_equal((dot["readable"], dot["format"]), (True, "png"), "dot.png")
            expect(f"shard {shard}: there is no member no.jpg" in none["reason"], none)
        with open(shard, "r+b") as file:
            file.truncate(2048)
        got = probe(daemon, f"{shard}:{long}", status=1)[0]
        expect(not got["readable"] and "shard " in got["reason"], got)
        gzip = write(os.path.join(at, "z.tar"), b"\x1f\x8b\x08" + bytes(2000))
        got = probe(daemon, f"{gzip}:a.jpg", status=1)[0]
        for words in (f"shard {gzip} is compressed with gzip", "unpack it with gunzip"):
            expect(not got["readable"] and words in got["reason"], got)


def test_pixels():
    with Daemon() as daemon, folder() as at:
        out = os.path.join(at, "out.ppm")
        cases = {
            "a.jpg": jpeg(61, 47),
            "lying.jpg": image_cases.marked("JPEG", orientation=6),
            "inks.jpg": image_cases.encoded(image_cases.flat_cmyk((100, 50, 25, 10)), "JPEG", quality=100),
            "palette.png": image_cases.encoded(image_cases.smooth(20, 10).convert("P"), "PNG"),
            "x.webp": image_cases.encoded(image_cases.smooth(33, 21), "WEBP"),
        }
        for name, data in cases.items():
            path = write(os.path.join(at, name), data)
            daemon.pinctl("probe", "--output", out, path)
            got = Image.open(out)
            expect_equal(got.format, "PPM", "format")
            right = numpy.asarray(Image.open(path).convert("RGB"))
            if name == "inks.jpg":
                image_cases.near(numpy.asarray(got), (149, 197, 221))
            else:
                expect(numpy.array_equal(numpy.asarray(got), right), f"{name}: other pixels")
        os.unlink(out)
        bad = write(os.path.join(at, "bad.jpg"), cases["a.jpg"][:500])
        result = daemon.pinctl("probe", "--output", out, bad, check=False)
        expect_equal((result.returncode, os.path.exists(out)), (1, False), "a bad file's pixels")
        result = daemon.pinctl("probe", "--output", "/nowhere/x.ppm", path, check=False)
        expect("/nowhere/x.ppm: No such file" in result.stderr, result.stderr)


def test_command_line():
    with Daemon() as daemon:
        for words, text in ((["probe"], "a FILE or SHARD:MEMBER is missing"),
                            (["probe", "--output", "x", "a", "b"], "pixels of one file, not 2"),
                            (["status", "--output", "x"], "unknown option --output")):
            result = daemon.pinctl(*words, check=False)
            expect_equal(result.returncode, 2, words)
            expect(text in result.stderr, result.stderr)


def raw_probe(path, name="x.jpg", pixels=0, ident=9):
    return rawpeer.message(PROBE, (1, name), (3, pixels), ident=ident)


def test_hostile_probes():
    with Daemon() as daemon, folder() as at:
        path = write(os.path.join(at, "a.jpg"), jpeg(3000, 2000))
        before = daemon.fds()
        fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        for data, sent in ((raw_probe(path), []), (raw_probe(path), fds),
                           (raw_probe(path, ident=0), fds[:1]),
                           (raw_probe(path, name="n" * 5000), fds[:1])):
            peer = rawpeer.RawPeer(daemon.socket)
            peer.send(data, sent)
            expect(peer.gone(), "a wrong Probe is survived by its peer")
            peer.close()
        # A second one before the first is answered.
        peer = rawpeer.RawPeer(daemon.socket)
        peer.send(raw_probe(path, ident=5), fds[:1])
        peer.send(raw_probe(path, ident=6), fds[:1])
        bodies = sorted(peer.receive()[0] for _ in range(2))
        expect_equal(bodies, [rawpeer.ERROR, PROBED], "answers to two at once")
        # One that is not waited for.
        peer.send(raw_probe(path, pixels=1, ident=7), fds[:1])
        peer.close()
        # An fd for writing only.
        peer = rawpeer.RawPeer(daemon.socket)
        write_only = os.open(path, os.O_WRONLY)
        peer.send(raw_probe(path), [write_only])
        body, fields = peer.receive()
        expect(body == PROBED and 1 not in fields and b"not open for plain reading" in fields[2][0],
               f"{body}: {fields}")
        peer.close()
        for fd in (*fds, write_only):
            os.close(fd)
        wait_for(lambda: daemon.fds() == before, "the daemon's fds are closed")
        expect(probe(daemon, path)[0]["readable"], "the daemon is well")


def test_many_bad_ones_cost_nothing():
    """One malformed file, again and again, on one connection."""
    with Daemon(env={"ASAN_OPTIONS": "quarantine_size_mb=1"}) as daemon, folder() as at:
        path = write(os.path.join(at, "bad.jpg"), jpeg(200, 150)[:2000])
        fd = os.open(path, os.O_RDONLY)
        peer = rawpeer.RawPeer(daemon.socket)

        def ask(times):
            for i in range(times):
                peer.send(raw_probe(path, ident=i + 1), [fd])
                expect_equal(peer.receive()[0], PROBED, "answer")

        def resident():
            with open(f"/proc/{daemon.process.pid}/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        ask(1000)
        time.sleep(0.1)
        before = resident()
        ask(2000)
        time.sleep(0.1)
        # A sanitizer keeps books of its own for each thread.
        expect(resident() < before + ((16 if SANITIZED else 1) << 20), f"grew from {before} to {resident()} bytes")
        os.close(fd)
        peer.close()


if __name__ == "__main__":
    run([test_what_files_are, test_what_is_wrong_with_files, test_members_of_tars, test_pixels,
         test_command_line, test_hostile_probes, test_many_bad_ones_cost_nothing])
