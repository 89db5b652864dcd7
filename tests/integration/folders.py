"""Folders with file lists, of many files, and with files that change while they are in use."""

import io
import json
import os

import large_folder
from daemon import (PATIENCE, SANITIZED, Daemon, expect, expect_equal, folder, program, run,
                    wait_for)
from large_folder import Opening
from PIL import Image

SIZE = 8
HOST = ["--image", f"center-crop:{SIZE}:16", "--device", "host", "--shuffle", "none", "--values"]
ONE_BY_ONE = [*HOST, "--batch", "1", "--depth", "1"]
BLANK = 3


def plain(number, side=20):
    """An image of one colour, by which it is known."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (number, 255 - number, 7)).save(out, "PNG")
    return out.getvalue()


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def put_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def of(events, what):
    return [event for event in events if event["event"] == what]


def column(events, name):
    return [value for batch in of(events, "batch") for value in batch[name][:batch["count"]]]


def numbers(events):
    """Of the images; None: zeros, or what else plain() does not make."""
    found = []
    for batch in of(events, "batch"):
        values = bytes.fromhex(batch["values"])
        for i in range(batch["count"]):
            image = values[i * SIZE * SIZE * 3:(i + 1) * SIZE * SIZE * 3]
            known = image == bytes([image[0], 255 - image[0], 7]) * (SIZE * SIZE)
            found.append(image[0] if known else None)
    return found


def token_of(events):
    return of(events, "token")[0]["token"]


class Paused:
    """A client that holds its first batch until it is told to go on."""

    def __init__(self, daemon, *arguments):
        self.process = daemon.consume(*arguments, "--pause", "1")
        self.lines = [self.process.stdout.readline() for _ in range(2)]
        expect('"event": "batch"' in self.lines[1], f"its first batch: {self.lines}")

    def go_on(self):
        """Everything that it got, its first batch too."""
        output, _ = self.process.communicate("\n", timeout=PATIENCE * 3)
        return [json.loads(line) for line in [*self.lines, *output.splitlines()]]


def test_a_list():
    """Its order, its labels, names of every kind, a file twice; any file, by its bytes."""
    names = ["b/z.png", "a/with a space.jpg", "ä/ö ü.bin", "a/12", "top.png", "b/z.png", "a/n 7"]
    labels = [5, -2, 0, 1 << 40, 5, 6, 3]
    with folder() as path, Daemon() as daemon:
        for number, name in enumerate(dict.fromkeys(names)):
            put(f"{path}/d/{name}", plain(10 * number))
        put(f"{path}/d/a/unlisted.png", plain(200))
        put_text(f"{path}/l.txt", "".join(f"{n} {l}\r\n" for n, l in zip(names, labels)))
        spec = ["--source", f"folder:{path}/d,list={path}/l.txt", *HOST, "--batch", "3", "--last",
                "partial", "--epochs", "2"]
        got = daemon.batches(*spec)
        order = [0, 10, 20, 30, 40, 0, 50]
        expect_equal(of(got, "job")[0]["samples"], 7, "samples")
        expect_equal(numbers(got), order * 2, "the images")
        expect_equal(column(got, "label"), labels * 2, "the labels")
        expect_equal(column(got, "index"), list(range(7)) * 2, "their numbers")

        # Another order, no labels.
        put_text(f"{path}/m.txt", "\n".join(reversed(names[:-1])))
        other = ["--source", f"folder:{path}/d,list={path}/m.txt", *spec[2:]]
        got = daemon.batches(*other)
        expect_equal(numbers(got)[:6], list(reversed(order[:-1])), "the images")
        expect_equal(set(column(got, "label")), {-1}, "no labels")

        bench = daemon.bench(*[o for o in spec if o != "--values"], "--checksum")
        expect_equal(bench["samples"], 14, "what pinctl bench consumes")
        with Daemon() as second:
            expect_equal(second.bench(*[o for o in spec if o != "--values"],
                                      "--checksum")["checksum"], bench["checksum"], "checksums")


def test_a_token_of_another_list_is_refused():
    with folder() as path, Daemon() as daemon:
        for i in range(6):
            put(f"{path}/d/{i}.png", plain(i))
        lines = [f"{i}.png {i}\n" for i in range(6)]
        put_text(f"{path}/l.txt", "".join(lines))
        spec = ["--source", f"folder:{path}/d,list={path}/l.txt", *HOST, "--batch", "2"]
        token = token_of(daemon.batches(*spec, "--batches", "1"))
        rest = daemon.batches(*spec, "--token", token, "--epochs", "1")
        expect_equal(numbers(rest), [2, 3, 4, 5], "behind the token")

        for changed in (["1.png 0\n", "0.png 1\n", *lines[2:]], [*lines[:5], "5.png 6\n"],
                        lines[:4]):
            put_text(f"{path}/l.txt", "".join(changed))
            refused = of(daemon.batches(*spec, "--token", token, "--epochs", "1"), "error")
            expect_equal([e["code"] for e in refused], [-22], f"with the list {changed}")
            expect("token" in refused[0]["text"], refused[0]["text"])
        put_text(f"{path}/l.txt", "".join(lines))
        rest = daemon.batches(*spec, "--token", token, "--epochs", "1")
        expect_equal(numbers(rest), [2, 3, 4, 5], "behind the token, with the old list again")


def test_wrong_lists_are_named():
    with folder() as path, Daemon() as daemon:
        put(f"{path}/d/1.png", plain(1))
        put(f"{path}/out.png", plain(2))
        spec = ["--source", f"folder:{path}/d,list={path}/l.txt", *HOST, "--batch", "1"]
        for text, words in (("1.png\n2.png\n", "l.txt:2: 2.png is missing"),
                            ("1.png\n../out.png\n", "l.txt:2: ../out.png leads out of the folder"),
                            (f"{path}/d/1.png\n", f"l.txt:1: {path}/d/1.png is an absolute path"),
                            ("1.png 1\n1.png\n", "l.txt:2: has no label"),
                            ("", "l.txt: names no file")):
            put_text(f"{path}/l.txt", text)
            error = of(daemon.batches(*spec, "--epochs", "1"), "error")[0]["text"]
            expect(words in error, f"{text!r}: {error}")
        os.remove(f"{path}/l.txt")
        os.mkfifo(f"{path}/l.txt")
        error = of(daemon.batches(*spec, "--epochs", "1"), "error")[0]["text"]
        expect(f"{path}/l.txt: not a regular file" in error, error)


def test_bad_samples_are_named():
    with folder() as path, Daemon() as daemon:
        put(f"{path}/d/a/1.png", plain(1))
        put(f"{path}/d/a/no image.txt", b"text")
        put_text(f"{path}/l.txt", "a/no image.txt 4\na/1.png 5\n")
        spec = ["--source", f"folder:{path}/d,list={path}/l.txt", *HOST, "--batch", "2"]
        error = of(daemon.batches(*spec, "--epochs", "1"), "error")[0]["text"]
        expect("a/no image.txt" in error, error)
        client = Paused(daemon, *spec, "--bad", "blank", "--batches", "1")
        job = str(json.loads(client.lines[0])["id"])
        rows = json.loads(daemon.pinctl("--json", "jobs", "--bad", job).stdout)["bad"]
        expect_equal([row["name"] for row in rows], ["a/no image.txt"], "pinctl jobs --bad")
        expect_equal(column(client.go_on(), "label"), [4, 5], "labels")


def change(path):
    """What may become of files 1 to 7 of the eight at path."""
    put(f"{path}/new", plain(101))
    os.rename(f"{path}/new", f"{path}/c0/1.png")  # replaced
    os.truncate(f"{path}/c0/2.png", os.path.getsize(f"{path}/c0/2.png") // 2)
    os.truncate(f"{path}/c0/3.png", 0)
    with open(f"{path}/c1/0.png", "ab") as file:  # appended to
        file.write(b"garbage" * 1000)
    put(f"{path}/c1/1.png", plain(105, side=60))  # rewritten
    os.remove(f"{path}/c1/3.png")


def test_changes_while_a_job_runs():
    """The job goes on, in its order, with the bytes that are there; the next has a new index."""
    for with_list in (False, True):
        with folder() as path, Daemon() as daemon:
            names = [f"c{i // 4}/{i % 4}.png" for i in range(8)]
            for number, name in enumerate(names):
                put(f"{path}/d/{name}", plain(number))
            put_text(f"{path}/l.txt", "".join(f"{n} {i // 4}\n" for i, n in enumerate(names)))
            source = f"folder:{path}/d" + (f",list={path}/l.txt" if with_list else "")
            spec = ["--source", source, *ONE_BY_ONE, "--bad", "blank"]
            first = Paused(daemon, *spec, "--epochs", "1")
            change(f"{path}/d")
            put(f"{path}/d/c2/0.png", plain(108))
            put_text(f"{path}/l.txt", "c2/0.png 7\n" + "".join(f"{n} 1\n" for n in names[4:7]))
            second = daemon.batches(*spec, "--epochs", "1")
            got = first.go_on()

            expect_equal(numbers(got), [0, 101, None, None, 4, 105, 6], "the first job's images")
            expect_equal(column(got, "status"), [0, 0, BLANK, BLANK, 0, 0, 0], "their status")
            expect_equal(column(got, "label"), [0, 0, 0, 0, 1, 1, 1], "their labels")
            errors = of(got, "error")
            expect_equal([error["code"] for error in errors], [-2], "it ends with the eighth")
            expect("c1/3.png" in errors[0]["text"], errors[0]["text"])
            if with_list:
                wanted = ([108, 4, 105, 6], [7, 1, 1, 1])
            else:
                wanted = ([0, 101, None, None, 4, 105, 6, 108], [0, 0, 0, 0, 1, 1, 1, 2])
            expect_equal((numbers(second), column(second, "label")), wanted, "the second job's")
            expect_equal(of(second, "error"), [], "errors of the second")


def test_a_change_in_place_is_other_data():
    """Only a file's size changes: its directory and the list do not tell."""
    for with_list in (False, True):
        with folder() as path, Daemon() as daemon:
            for i in range(4):
                put(f"{path}/d/c/{i}.png", plain(i))
            put_text(f"{path}/l.txt", "".join(f"c/{i}.png\n" for i in range(4)))
            source = f"folder:{path}/d" + (f",list={path}/l.txt" if with_list else "")
            spec = ["--source", source, *ONE_BY_ONE]
            token = token_of(daemon.batches(*spec, "--batches", "1"))
            with open(f"{path}/d/c/3.png", "ab") as file:
                file.write(b"more")
            refused = of(daemon.batches(*spec, "--token", token, "--epochs", "1"), "error")
            expect_equal([error["code"] for error in refused], [-22], "the token is refused")


CLASSES, EACH = 100, 200
BYTES_A_FILE = 64


def test_many_files():
    """Indexing tells how far it is, ends at once when it is not wanted any more, and is done once, in
    bounded memory."""
    slow = {"LD_PRELOAD": program("tests", "integration", "slowio.so"), "SLOWIO_DIR_MS": "15",
            "SLOWIO_MS": "200",
            # The sanitizers want to be the first library.
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    files = CLASSES * EACH
    with folder() as path, Daemon(f"limits.index={files * BYTES_A_FILE}", env=slow) as daemon:
        large_folder.make(f"{path}/d", CLASSES, EACH)
        large_folder.write_list(f"{path}/l.txt", CLASSES, EACH)
        for paths in ([f"{path}/d"], [f"{path}/d", f"{path}/l.txt"]):
            name = f"folder:{len(paths)}"
            cancelled = Opening(daemon, paths, name).cancel()
            wait_for(lambda: not daemon.jobs(), "the job is gone")
            before = large_folder.anonymous_bytes(daemon)
            opening = Opening(daemon, paths, name)
            told, first, samples = opening.finish()
            grown = large_folder.anonymous_bytes(daemon) - before
            opening.close()
            opening = Opening(daemon, paths, name)
            again, second, _ = opening.finish()
            opening.close()

            expect_equal(samples, files, "samples")
            expect(len(told) >= 2, f"{name}: too little is told: {told}")
            expect(told == sorted(set(told)) and told[-1] <= files, f"{name}: it rises: {told}")
            expect_equal(again, [], f"{name}: what is told of the second job's indexing")
            expect(second < first / 3, f"{name}: the second job takes {second} s, not {first}")
            expect(cancelled < first / 3, f"{name}: {cancelled} s to cancel, {first} to index")
            if not SANITIZED:
                expect(grown < files * BYTES_A_FILE + (2 << 20), f"{name}: {grown} bytes more")


run([test_a_list, test_a_token_of_another_list_is_refused, test_wrong_lists_are_named,
     test_bad_samples_are_named, test_changes_while_a_job_runs,
     test_a_change_in_place_is_other_data, test_many_files])
