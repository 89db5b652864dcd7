"""Indexes of tar shards that are saved: the next daemon uses them, of shards that are as they were
and for the user whom they were made for, and whatever is wrong with them costs time only."""

import io
import os
import re
import shutil
import tarfile
import time

import images
from daemon import Daemon, expect, expect_equal, folder, no_other_users, run

COUNT, SHARDS = 8, 3
ANNA = 64002
SETTLE_S = 3.1  # what changed later than this before it is indexed, is not saved


def shards_at(path):
    return f"tar:{path}/{{0..{SHARDS - 1}}}.tar"


def make_shards(path):
    os.makedirs(path)
    os.chmod(path, 0o755)
    for i in range(SHARDS):
        images.make_tar(f"{path}/{i}.tar", COUNT * i, COUNT)
        os.chmod(f"{path}/{i}.tar", 0o644)


def labels(daemon, source, **options):
    """Of all samples, in order."""
    process = daemon.consume("--source", source, "--image", "center-crop:16", "--batch", "4",
                             "--device", "host", "--shuffle", "none", "--epochs", "1", **options)
    output = process.communicate(timeout=60)[0]
    expect(process.returncode == 0, output)
    rows = re.findall(r'"label": \[([-0-9, ]+)\]', output)
    return [int(label) for row in rows for label in row.split(",")]


RIGHT = [key % 5 for key in range(COUNT * SHARDS)]


def saved_ones(daemon):
    """How many indexes of each dataset that was opened were saved ones."""
    return [int(n) for n in re.findall(rf"the indexes of (\d+) of its {SHARDS} shards", daemon.log())]


def opened(cache, data, fields="", **options):
    """Opens the dataset in a daemon of its own: how many indexes were saved ones, and its log."""
    with Daemon(f"daemon.cache={cache}") as daemon:
        expect_equal(labels(daemon, shards_at(data) + fields, **options), RIGHT, "labels")
        return saved_ones(daemon), daemon.log()


def test_the_next_daemon_uses_them():
    with folder() as path:
        shutil.copytree(DATA, f"{path}/data")  # whose times are new
        expect_equal(opened(f"{path}/cache", f"{path}/data")[0], [0], "at first")
        expect_equal(os.listdir(f"{path}/cache"), [], "shards that have just changed")
        expect_equal(opened(f"{path}/cache", DATA)[0], [0], "the first daemon")
        expect_equal(len(os.listdir(f"{path}/cache")), SHARDS, "files")
        for name in os.listdir(f"{path}/cache"):
            mode = os.stat(f"{path}/cache/{name}").st_mode & 0o7777
            expect_equal((mode, name[16:]), (0o600, ".index"), "a saved index")
        expect_equal(opened(f"{path}/cache", DATA)[0], [SHARDS], "the second")
        fields = ",fields=cls+jpg"
        expect_equal(opened(f"{path}/cache", DATA, fields)[0], [0], "another choice of fields")
        expect_equal(opened(f"{path}/cache", DATA, fields)[0], [SHARDS], "that one again")
        expect_equal(opened("off", DATA)[0], [], "without")


def turn_members(path):
    """Rewrites a shard with its members in another order, and the same size and time."""
    before = os.stat(path)
    with tarfile.open(path) as tar:
        members = [(info, tar.extractfile(info).read()) for info in tar]
    with tarfile.open(path, "w") as tar:
        for image, label in zip(members[::2], members[1::2]):
            for info, data in (label, image):
                tar.addfile(info, io.BytesIO(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    expect_equal(os.stat(path).st_size, before.st_size, "the size")


def test_a_shard_that_changed_is_indexed_anew():
    with folder() as path:
        cache = f"{path}/cache"
        opened(cache, CHANGING)
        os.utime(f"{CHANGING}/0.tar", (1, 1))
        saved, log = opened(cache, CHANGING)
        expect_equal(saved, [SHARDS - 1], "one was touched")
        expect("0.tar: its saved index is of an earlier state of the file" in log, log)
        turn_members(f"{CHANGING}/1.tar")
        shutil.copy(f"{CHANGING}/2.tar", f"{CHANGING}/new")
        os.rename(f"{CHANGING}/new", f"{CHANGING}/2.tar")
        expect_equal(opened(cache, CHANGING)[0], [0], "the others were rewritten and replaced")


def test_damage_costs_time_only():
    with folder() as path:
        cache = f"{path}/cache"
        opened(cache, DATA)
        for damage in (lambda data: data[:100], lambda data: bytes(len(data)),
                       lambda data: data[:200] + b"\xff" * 64 + data[264:]):
            for name in os.listdir(cache):
                with open(f"{cache}/{name}", "r+b") as file:
                    data = damage(file.read())
                    file.truncate(0)
                    file.seek(0)
                    file.write(data)
            saved, log = opened(cache, DATA)
            expect_equal(saved, [0], "damaged ones")
            expect_equal(log.count("it is made anew"), SHARDS, log)
            expect_equal(opened(cache, DATA)[0], [SHARDS], "they were saved anew")


def test_places_that_cannot_be_used():
    with folder() as path:
        open(f"{path}/file", "w").close()
        for cache in (f"{path}/none/deeper", f"{path}/file"):
            with Daemon(f"daemon.cache={cache}") as daemon:
                expect_equal(labels(daemon, shards_at(DATA)), RIGHT, "labels")
                warnings = daemon.ask("status")["warnings"]
                expect(any("indexes are not saved" in w and cache in w for w in warnings), warnings)
        # One that goes away.
        with Daemon(f"daemon.cache={path}/cache") as daemon:
            os.rmdir(f"{path}/cache")
            expect_equal(labels(daemon, shards_at(DATA)), RIGHT, "labels")
            expect_equal(daemon.log().count("indexes cannot be saved"), 1, "warnings")


def test_where_systemd_says():
    with folder() as path:
        for i in range(2):
            with Daemon(env={"CACHE_DIRECTORY": f"{path}/cache:{path}/other"}) as daemon:
                expect_equal(labels(daemon, shards_at(DATA)), RIGHT, "labels")
                expect_equal(saved_ones(daemon), [SHARDS * i], "saved ones")
        expect_equal(os.listdir(path), ["cache"], "the first directory is taken")
        with Daemon() as daemon:
            expect_equal(labels(daemon, shards_at(DATA)), RIGHT, "labels")
            expect_equal(saved_ones(daemon), [], "nobody says")


def test_users_have_their_own():
    if no_other_users():
        return
    with folder() as path:
        for user in ({}, {"user": ANNA, "group": ANNA, "extra_groups": []}):
            for wanted in (0, SHARDS):
                with Daemon(f"daemon.cache={path}/cache", "daemon.socket_mode=0666") as daemon:
                    os.chmod(daemon.folder, 0o755)
                    expect_equal(labels(daemon, shards_at(DATA), **user), RIGHT, "labels")
                    expect_equal(saved_ones(daemon), [wanted], f"saved ones of {user}")
        expect_equal(len(os.listdir(f"{path}/cache")), 2 * SHARDS, "files")


if __name__ == "__main__":
    with folder() as DATA_FOLDER:
        os.chmod(DATA_FOLDER, 0o755)
        DATA = f"{DATA_FOLDER}/data"
        CHANGING = f"{DATA_FOLDER}/changing"
        make_shards(DATA)
        make_shards(CHANGING)
        time.sleep(SETTLE_S)
        run([test_the_next_daemon_uses_them, test_a_shard_that_changed_is_indexed_anew,
             test_damage_costs_time_only, test_places_that_cannot_be_used, test_where_systemd_says,
             test_users_have_their_own])
