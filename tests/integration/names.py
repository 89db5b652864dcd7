"""Names as people have them, in folders and shards; shards as GNU tar writes them, in every dialect,
and as copies that broke off leave them."""

import gzip
import io
import json
import os
import subprocess
import tarfile

import numpy
from daemon import Daemon, expect, expect_equal, folder, run
from PIL import Image

LONG = "n" * 251 + ".png"
NAMES = ["-rf.png", "a b  c.png", "[1]*?.png", "quote'\"\\.png", "ä日本é.png", "ä" * 125 + ".png",
         "tab\there.png", "line\nbreak.png", os.fsdecode(b"latin \xe9.png"), LONG]
CROP = ["--image", "center-crop:16:16", "--shuffle", "none", "--batch", "4", "--last", "partial",
        "--epochs", "1", "--values"]


def gray(value):
    out = io.BytesIO()
    Image.new("L", (16, 16), value).save(out, "PNG")
    return out.getvalue()


def shown(name):
    """As pinctl's JSON tells it."""
    return os.fsencode(name).decode(errors="replace")


def of(events, what):
    return [event for event in events if event["event"] == what]


def values(events):
    """What the samples show, in order."""
    expect_equal(of(events, "error"), [], "errors")
    out = []
    for batch in of(events, "batch"):
        rows = numpy.frombuffer(bytes.fromhex(batch["values"]), "u1").reshape(batch["shape"][0], -1)
        for row in rows[:batch["count"]]:
            expect_equal(row.min(), row.max(), "an image of one gray")
            out.append(int(row[0]))
    return out


def bad_names(daemon, *arguments):
    """What pinctl lists of a job all of whose samples are bad, and the text of one that fails."""
    client = daemon.consume(*arguments, "--bad", "blank", "--wait")
    for line in client.stdout:
        if '"token"' in line:
            break
    job = daemon.jobs()[0]["job"]
    rows = json.loads(daemon.pinctl("--json", "jobs", "--bad", str(job)).stdout)["bad"]
    daemon.pinctl("jobs", "--bad", str(job))
    client.communicate()
    return [row["name"] for row in rows], of(daemon.batches(*arguments), "error")[0]["text"]


def test_names_in_a_folder():
    with folder() as path, Daemon() as daemon:
        names = sorted(NAMES, key=os.fsencode)
        for base in ("a class", "ünï"):
            os.makedirs(f"{path}/my photos/{base}")
            for i, name in enumerate(names):
                with open(f"{path}/my photos/{base}/{name}", "wb") as file:
                    file.write(gray(10 * i + len(base)))
        spec = ["--source", f"folder:{path}/my photos", *CROP]
        expect_equal(values(daemon.batches(*spec)),
                     [10 * i + n for n in (7, 3) for i in range(len(names))], "samples")
        for base, _, files in os.walk(path):
            for name in files:
                os.truncate(f"{base}/{name}", 0)
        listed, text = bad_names(daemon, *spec)
        expect_equal(listed, [f"{base}/{shown(name)}" for base in ("a class", "ünï")
                              for name in names], "names")
        expect(f"a class/{names[0]} is empty" in text, text)


def test_names_in_a_shard():
    """As Python writes them: long and foreign names in records of their own."""
    with folder() as path, Daemon() as daemon:
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            for full in (True, False):
                with tarfile.open(f"{path}/a b.tar", "w", format=form) as tar:
                    for i, name in enumerate(NAMES):
                        info = tarfile.TarInfo(f"my photos/{name}")
                        data = gray(10 * i) if full else b""
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
                with tarfile.open(f"{path}/a b.tar") as tar:
                    offsets = [member.offset_data for member in tar]
                spec = ["--source", f"tar:{path}/a b.tar", *CROP]
                if full:
                    expect_equal(values(daemon.batches(*spec)), [10 * i for i in range(len(NAMES))],
                                 "samples")
                    continue
                listed, text = bad_names(daemon, *spec)
                expect_equal(listed, [f"{path}/a b.tar:my photos/{shown(name)}@{offset}"
                                      for name, offset in zip(NAMES, offsets)], "names")
                expect("a b.tar: my photos/-rf.png at 512 is empty" in text, text)


def test_names_of_sources():
    """Nothing in a path is taken for a pattern or an option as long as there is such a file."""
    with folder() as path, Daemon() as daemon:
        for name in ("a b", "ä日", "a,b", "a:3:u8", "a=b[1]*?'\"\\"):
            at = f"{path}/{name}"
            os.mkdir(at)
            numpy.save(f"{at}/{name}.npy", numpy.arange(8, dtype="u1"))
            numpy.arange(65, dtype="u2").tofile(f"{at}/{name}.bin")
            make_files(at, ["1.png"])
            os.rename(gnu_tar(at, "gnu", ["1.png"]), f"{at}/{name}.tar")
            for source in ([f"records:{at}/{name}.npy,labels={at}/{name}.npy"],
                           [f"records:{at}/{name}.bin:1:u8"], [f"tokens:{at}/{name}.bin", "--seq", "8"],
                           [f"tar:{at}/{name}.tar", *CROP[:2]]):
                events = daemon.batches("--source", *source, "--batch", "1", "--batches", "1")
                expect_equal(len(of(events, "batch")), 1, f"batches of {source}: {events[-1]}")


def gnu_tar(path, form, names, *options):
    """A shard of the files of path/in, in this order."""
    subprocess.run(["tar", f"--format={form}", *options, "--no-recursion", "-C", f"{path}/in", "-cf",
                    f"{path}/{form}.tar", *names], check=True)
    return f"{path}/{form}.tar"


def make_files(path, names):
    for i, name in enumerate(names):
        os.makedirs(os.path.dirname(f"{path}/in/{name}"), exist_ok=True)
        with open(f"{path}/in/{name}", "wb") as file:
            file.write(gray(i) if name.endswith(".png") else str(i).encode())


def test_every_dialect_of_gnu_tar():
    """The same samples and labels; what stands in records of headers is no sample."""
    with folder() as path, Daemon() as daemon:
        names = ["a/001.png", "a/001.cls", "a/sub.dir/002.cls", "a/sub.dir/002.png", "b c/003.png"]
        long = ["d/" + "m" * 200 + ".png", "e/004.png"]
        make_files(path, names + long)
        for form in ("v7", "ustar", "oldgnu", "gnu", "pax", "posix"):
            dialect_has_long = form not in ("v7", "ustar")
            members = names + long * dialect_has_long
            shard = gnu_tar(path, form, ["a", *members])
            events = daemon.batches("--source", f"tar:{shard}", *CROP)
            expect_equal(values(events), [0, 3, 4] + [5, 6] * dialect_has_long, f"{form}: samples")
            labels = [label for batch in of(events, "batch") for label in batch["label"]]
            expect_equal(labels, [1, 2, -1] + [-1, -1] * dialect_has_long, f"{form}: labels")
        for form, option in (("gnu", "--label=x.png"), ("pax", "--label=x.png"),
                             ("pax", "--pax-option=comment=x.png"), ("gnu", "--blocking-factor=1")):
            shard = gnu_tar(path, form, ["a", *names], option)
            expect_equal(values(daemon.batches("--source", f"tar:{shard}", *CROP)), [0, 3, 4], option)


def test_shards_that_broke_off():
    with folder() as path, Daemon() as daemon:
        names = ["001.png", "002.png", "003.png"]
        make_files(path, [f"./{name}" for name in names])
        with open(gnu_tar(path, "ustar", names), "rb") as file:
            data = file.read()
        shard = f"{path}/cut.tar"

        def job(content):
            with open(shard, "wb") as file:
                file.write(content)
            return daemon.batches("--source", f"tar:{shard}", *CROP)

        with tarfile.open(f"{path}/ustar.tar") as tar:
            second, third = tar.getmember("002.png"), tar.getmember("003.png")
        cut = second.offset_data + second.size // 2
        text = of(job(data[:cut]), "error")[0]["text"]
        expect(f"cut.tar is cut off at {cut}: 002.png at {second.offset_data} has {second.size} bytes"
               in text and "samples before it: 1" in text, text)
        # Of the end nothing, a part, one block of zeros, and all of it.
        whole = third.offset + 512 + (third.size + 511) // 512 * 512
        for end in (third.offset_data + third.size, whole, whole + 512, whole + 1024, len(data)):
            before = daemon.log().count("without a tar's end marks")
            expect_equal(values(job(data[:end])), [0, 1, 2], f"samples of {end} bytes")
            warned = daemon.log().count("without a tar's end marks") - before
            expect_equal(warned, end < whole + 512, f"warnings for {end} bytes")
        for content, part in ((b"", "cut.tar is empty"), (bytes(10240), "no sample in its 1 shards"),
                              (data[:second.offset + 100], f"bad tar header at {second.offset}")):
            text = of(job(content), "error")[0]["text"]
            expect(part in text, f"{part}: {text}")


def test_members_out_of_order():
    """Never samples of parts."""
    with folder() as path, Daemon() as daemon:
        for names in (["001.png", "002.png", "001.cls"], ["001.cls", "002.png", "001.png"]):
            make_files(path, [f"./{name}" for name in names])
            shard = gnu_tar(path, "gnu", names)
            events = daemon.batches("--source", f"tar:{shard}", *CROP)
            expect_equal([event["event"] for event in events], ["error"], "events")
            expect("gnu.tar: key 001 " in events[0]["text"], events[0]["text"])


def test_keys_end_at_the_first_dot():
    """Of the base name: dots of directories are of the key. What lacks a field tells those it has."""
    with folder() as path, Daemon() as daemon:
        for name, key, field in (("a/22.0/1.1.png", "a/22.0/1", "1.png"),
                                 ("d.e/f.seg.png", "d.e/f", "seg.png")):
            make_files(path, [name])
            events = daemon.batches("--source", f"tar:{gnu_tar(path, 'gnu', [name])}", *CROP)
            text = of(events, "error")[0]["text"]
            expect(f"gnu.tar: sample {key} has no field jpg" in text
                   and text.endswith(f"its fields are: {field}"), text)


def test_compressed_shards_are_refused_in_words():
    with folder() as path, Daemon() as daemon:
        make_files(path, ["1.png"])
        with open(gnu_tar(path, "gnu", ["1.png"]), "rb") as file:
            data = file.read()
        for packed, name, what_to_do in ((gzip.compress(data), "gzip", "gunzip"),
                                         (b"\x28\xb5\x2f\xfd" + data, "zstd", "zstd -d")):
            with open(f"{path}/packed.tar", "wb") as file:
                file.write(packed)
            events = daemon.batches("--source", f"tar:{path}/packed.tar", *CROP)
            text = of(events, "error")[0]["text"]
            for part in ("packed.tar", name, what_to_do):
                expect(part in text, f"{part}: {text}")


run([test_names_in_a_folder, test_names_in_a_shard, test_names_of_sources, test_every_dialect_of_gnu_tar,
     test_shards_that_broke_off, test_members_out_of_order, test_keys_end_at_the_first_dot,
     test_compressed_shards_are_refused_in_words])
