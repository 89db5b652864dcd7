"""Data that changes while a job reads it: cut, replaced, appended to, rewritten in place. What the
running job makes of it, that a new job sees the data as it is now, and which tokens still count."""

import io
import json
import os
import tarfile

import images
import numpy
from daemon import PATIENCE, Daemon, expect, expect_equal, folder, run

N, BATCH, PAUSE, DEPTH = 40, 2, 3, 2
# Before the pause, and certainly not until after it: behind depth and what is decoded ahead. What has
# just been written is in the page cache, and is not read ahead.
BEFORE, AFTER = PAUSE * BATCH, (PAUSE + DEPTH + 5) * BATCH
HALF = N // 2
OK, BLANK = 0, 3


def array(first, n=N):
    """Record i is all first + i."""
    return numpy.repeat(numpy.arange(first, first + n, dtype=numpy.uint8), 5000).reshape(n, 5000)


class Records:
    """What the test needs to know of a kind of data: how to write it, what samples look like."""

    def __init__(self, path, raw=False):
        self.path = f"{path}/a.{'bin' if raw else 'npy'}"
        self.raw = raw
        self.place = "record {}"

    def spec(self):
        return ["--source", f"records:{self.path}" + ":5000:u8" * self.raw]

    def write(self, path, first, n=N):
        if self.raw:
            array(first, n).tofile(path)
        else:
            with open(path, "wb") as file:
                numpy.save(file, array(first, n))

    def rewrite(self, first):
        """In place, without a moment at which the file is shorter."""
        with open(self.path, "r+b") as file:
            file.seek(-N * 5000, os.SEEK_END)
            file.write(array(first).tobytes())

    def append(self, first, n):
        with open(self.path, "ab") as file:
            file.write(array(first, n).tobytes())

    def cut(self):
        os.truncate(self.path, os.path.getsize(self.path) - HALF * 5000 + 100)

    # As many samples as a new job finds after append() of n more; npy's header tells how many.
    def appended(self, n):
        return N + n if self.raw else N

    def first_of(self, sample):
        expect_equal(sample.min(), sample.max(), "a record of one piece")
        return int(sample[0])


class Tokens(Records):
    """Windows of 32 and the token behind them; those of sample i are 1000 + first + i, but for the
    ones at both ends: what is appended begins one token late."""

    def __init__(self, path):
        super().__init__(path)
        self.path = f"{path}/t.bin"
        self.place = "the window at token {}"

    def spec(self):
        return ["--source", f"tokens:{self.path}", "--seq", "32"]

    def tokens(self, first, n):
        return numpy.repeat(numpy.arange(first, first + n, dtype="<u2") + 1000, 32)

    def write(self, path, first, n=N):
        numpy.append(self.tokens(first, n), numpy.uint16(7)).tofile(path)

    def rewrite(self, first):
        with open(self.path, "r+b") as file:
            file.write(self.tokens(first, N).tobytes())

    def append(self, first, n):
        with open(self.path, "ab") as file:
            file.write(self.tokens(first, n).tobytes())

    def cut(self):
        os.truncate(self.path, HALF * 64 + 2)

    def appended(self, n):
        return N + n

    def first_of(self, sample):
        tokens = sample.view("<i4")[1:-1]
        expect_equal(tokens.min(), tokens.max(), "a window of one piece")
        return int(tokens[0]) - 1000


def gray(value):
    """A PNG of one color; all of them are as long."""
    out = io.BytesIO()
    images.Image.new("RGB", (16, 16), (value, 255 - value, 7)).save(out, "PNG", compress_level=0)
    return out.getvalue()


class Shard(Records):
    """A tar of PNGs, each of its own color."""

    def __init__(self, path):
        super().__init__(path)
        self.path = f"{path}/s.tar"

    def spec(self):
        return ["--source", f"tar:{self.path}", "--image", "center-crop:16:16"]

    def members(self, first, n, start=0):
        for i in range(n):
            info = tarfile.TarInfo(f"{start + i:05}.png")
            data = gray(first + i)
            info.size = len(data)
            yield info, io.BytesIO(data)

    def write(self, path, first, n=N):
        with tarfile.open(path, "w") as tar:
            for member in self.members(first, n):
                tar.addfile(*member)

    def rewrite(self, first):
        self.write(f"{self.path}.new", first)
        with open(f"{self.path}.new", "rb") as new, open(self.path, "r+b") as file:
            file.write(new.read())

    def append(self, first, n):
        with tarfile.open(self.path, "a") as tar:
            for member in self.members(first, n, N):
                tar.addfile(*member)

    def cut(self):
        with tarfile.open(self.path) as tar:
            os.truncate(self.path, tar.getmember(f"{HALF:05}.png").offset_data + 100)

    def appended(self, n):
        return N + n

    def first_of(self, sample):
        pixels = sample.reshape(-1, 3)
        expect((pixels == pixels[0]).all(), "an image of one color")
        return int(pixels[0][0])


class Folder(Shard):
    """The same images as files."""

    def __init__(self, path):
        super().__init__(path)
        self.path = f"{path}/d"

    def spec(self):
        return ["--source", f"folder:{self.path}", "--image", "center-crop:16:16"]

    def write(self, path, first, n=N, start=0):
        os.makedirs(f"{path}/c", exist_ok=True)
        for info, data in self.members(first, n, start):
            with open(f"{path}/c/{info.name}.new", "wb") as file:
                file.write(data.read())
            os.rename(f"{path}/c/{info.name}.new", f"{path}/c/{info.name}")

    def rewrite(self, first):
        for info, data in self.members(first, N):
            with open(f"{self.path}/c/{info.name}", "r+b") as file:
                file.write(data.read())

    def append(self, first, n):
        self.write(self.path, first, n, N)

    def cut(self):
        for i in range(HALF, N):
            os.truncate(f"{self.path}/c/{i:05}.png", 100)


KINDS = [Records, lambda path: Records(path, raw=True), Tokens, Shard, Folder]


def samples(kind, events):
    """{index: what it shows}, {index: status} of one epoch."""
    shown, status = {}, {}
    for event in events:
        if event["event"] != "batch":
            continue
        rows = numpy.frombuffer(bytes.fromhex(event["values"]), "u1").reshape(event["shape"][0], -1)
        for i in range(event["count"]):
            status[event["index"][i]] = event["status"][i]
            if event["status"][i] == OK:
                shown[event["index"][i]] = kind.first_of(rows[i])
    return shown, status


def arguments(kind, *more):
    return [*kind.spec(), "--batch", str(BATCH), "--depth", str(DEPTH), "--shuffle", "none",
            "--last", "partial", "--epochs", "1", "--values", *more]


def of(events, what):
    return [event for event in events if event["event"] == what]


def paused(daemon, kind, change, *more):
    """The events of a job during which the data changes."""
    client = daemon.consume(*arguments(kind, *more), "--pause", str(PAUSE))
    events = []
    while len(of(events, "batch")) < PAUSE:
        events.append(json.loads(client.stdout.readline()))
        expect(events[-1]["event"] != "error", f"{events[-1]}")
    change()
    output, _ = client.communicate("\n", timeout=PATIENCE)
    return events + [json.loads(line) for line in output.splitlines()]


def each_kind(test):
    with Daemon() as daemon:
        for make in KINDS:
            with folder() as path:
                kind = make(path)
                kind.write(kind.path, 0)
                test(daemon, kind)


def token_after(daemon, kind, batches):
    return of(daemon.batches(*arguments(kind, "--batches", str(batches))), "token")[0]["token"]


def numbers(first, n=N):
    return {i: first + i for i in range(n)}


def test_cut():
    """What is left arrives; what was cut off is bad, by name; a job fails on it only if asked to."""
    def check(daemon, kind):
        saved = token_after(daemon, kind, 1)
        shown, status = samples(kind, paused(daemon, kind, kind.cut, "--bad", "blank"))
        expect_equal(status, {i: OK if i < HALF else BLANK for i in range(N)}, "status")
        expect_equal(shown, numbers(0, HALF), "what is left")
        kind.write(kind.path, 0)
        events = paused(daemon, kind, kind.cut)
        expect_equal(samples(kind, events)[0], numbers(0, HALF), "until then")
        failed = of(events, "error")[0]
        name = f"{HALF:05}.png" if isinstance(kind, Shard) else os.path.basename(kind.path)
        place = kind.place.format(HALF * (32 if isinstance(kind, Tokens) else 1))
        expect(failed["code"] == -74 and name in failed["text"], f"EBADMSG: {failed}")
        expect(isinstance(kind, Shard) or place in failed["text"], f"{place}: {failed}")
        # Later jobs see what is there.
        got = daemon.batches(*arguments(kind))
        if isinstance(kind, (Folder, Tokens)):
            refused = of(daemon.batches(*arguments(kind, "--token", saved)), "error")[0]
            expect("the token is for dataset" in refused["text"], refused["text"])
        if isinstance(kind, Folder):
            expect(name in of(got, "error")[0]["text"], f"{got[-1]}")
        elif isinstance(kind, Tokens):
            expect_equal(samples(kind, got)[0], numbers(0, HALF), "a new job")
        else:
            text = of(got, "error")[0]["text"]
            expect(os.path.basename(kind.path) in text, f"a new job: {text}")
    each_kind(check)


def test_replaced():
    """A job reads on in the file that it was given; a file of a folder is opened when it is read."""
    def check(daemon, kind):
        saved = token_after(daemon, kind, 1)
        longer = N + 6

        def replace():
            other = kind.path if isinstance(kind, Folder) else f"{kind.path}.other"
            kind.write(other, 100, longer)
            os.rename(other, kind.path)

        shown, status = samples(kind, paused(daemon, kind, replace))
        expect_equal(set(status.values()), {OK}, "status")
        expect_equal(sorted(shown), list(range(N)), "its samples")
        expect_equal([shown[i] for i in range(BEFORE)], list(range(BEFORE)), "before")
        new = 100 if isinstance(kind, Folder) else 0
        expect_equal([shown[i] for i in range(AFTER, N)], list(range(new + AFTER, new + N)), "after")
        expect_equal(samples(kind, daemon.batches(*arguments(kind)))[0], numbers(100, longer),
                     "a new job")
        refused = of(daemon.batches(*arguments(kind, "--token", saved)), "error")[0]
        expect("the token is for dataset" in refused["text"], refused["text"])
    each_kind(check)


def test_replaced_by_as_much():
    """Names and sizes are the same: a token counts, and no job is served from before."""
    def check(daemon, kind):
        saved = token_after(daemon, kind, 1)

        def replace():
            other = kind.path if isinstance(kind, Folder) else f"{kind.path}.other"
            kind.write(other, 100)
            os.rename(other, kind.path)
            # While the other job still runs.
            expect_equal(samples(kind, daemon.batches(*arguments(kind)))[0], numbers(100),
                         "a new job")

        paused(daemon, kind, replace)
        shown, _ = samples(kind, daemon.batches(*arguments(kind, "--token", saved)))
        expect_equal(shown, {i: 100 + i for i in range(BATCH, N)}, "by the token")
    each_kind(check)


def test_appended():
    """A job does not see it; a new one does, where the data itself does not tell its end."""
    def check(daemon, kind):
        saved = token_after(daemon, kind, 1)
        shown, _ = samples(kind, paused(daemon, kind, lambda: kind.append(60, 4)))
        expect_equal(shown, numbers(0), "the running job")
        shown, _ = samples(kind, daemon.batches(*arguments(kind)))
        wanted = {**numbers(0), **{N + i: 60 + i for i in range(kind.appended(4) - N)}}
        expect_equal(shown, wanted, "a new job")
        events = daemon.batches(*arguments(kind, "--token", saved))
        expect_equal(len(of(events, "error")), kind.appended(4) > N, f"the token: {events[-1]}")
    each_kind(check)


def test_rewritten_in_place():
    """Nobody notices: what is read from then on is new."""
    def check(daemon, kind):
        shown, status = samples(kind, paused(daemon, kind, lambda: kind.rewrite(100)))
        expect_equal(set(status.values()), {OK}, "status")
        expect_equal([shown[i] for i in range(BEFORE)], list(range(BEFORE)), "before")
        expect_equal([shown[i] for i in range(AFTER, N)], list(range(100 + AFTER, 100 + N)), "after")
        expect(all(shown[i] in (i, 100 + i) for i in range(N)), f"either: {shown}")
        expect_equal(samples(kind, daemon.batches(*arguments(kind)))[0], numbers(100), "a new job")
    each_kind(check)


def test_a_shard_rewritten_with_other_members():
    """The running job finds no images where they were; the next one has a new index."""
    with folder() as path, Daemon() as daemon:
        kind = Shard(path)
        kind.write(kind.path, 0)

        def rewrite():
            with open(kind.path, "r+b") as file, io.BytesIO() as new:
                with tarfile.open(fileobj=new, mode="w") as tar:
                    padding = tarfile.TarInfo("readme")
                    padding.size = 1500
                    tar.addfile(padding, io.BytesIO(bytes(1500)))
                    for member in kind.members(100, N):
                        tar.addfile(*member)
                file.write(new.getvalue())

        saved = token_after(daemon, kind, 1)
        shown, status = samples(kind, paused(daemon, kind, rewrite, "--bad", "blank"))
        expect_equal([shown[i] for i in range(BEFORE)], list(range(BEFORE)), "before")
        expect_equal([status[i] for i in range(AFTER, N)], [BLANK] * (N - AFTER), "after")
        expect_equal(samples(kind, daemon.batches(*arguments(kind)))[0], numbers(100), "a new job")
        shown, _ = samples(kind, daemon.batches(*arguments(kind, "--token", saved)))
        expect_equal(len(shown), N - BATCH, "by the token: the samples are named and sized as before")


def test_labels_of_a_new_index():
    """Labels are read once, with the index: a running job keeps them, a new one has the new ones, and
    another dataset it is."""
    with folder() as path, Daemon() as daemon:
        numpy.save(f"{path}/a.npy", array(0))
        numpy.save(f"{path}/l.npy", numpy.arange(N))
        kind = Records(path)
        spec = arguments(kind, "--source", f"records:{path}/a.npy,labels={path}/l.npy")
        saved = of(daemon.batches(*spec, "--batches", "1"), "token")[0]["token"]
        events = paused(daemon, kind, lambda: numpy.save(f"{path}/l.npy", numpy.arange(N) + 500),
                        "--source", f"records:{path}/a.npy,labels={path}/l.npy")
        expect_equal([label for event in of(events, "batch") for label in event["label"]],
                     list(range(N)), "labels of the running job")
        expect_equal([label for event in of(daemon.batches(*spec), "batch")
                      for label in event["label"]], list(range(500, 500 + N)), "of a new one")
        refused = of(daemon.batches(*spec, "--token", saved), "error")[0]
        expect("the token is for dataset" in refused["text"], refused["text"])


run([test_cut, test_replaced, test_replaced_by_as_much, test_appended, test_rewritten_in_place,
     test_a_shard_rewritten_with_other_members, test_labels_of_a_new_index])
