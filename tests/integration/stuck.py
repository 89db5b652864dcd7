"""A file system that does not answer costs its own job and nobody else: reads, the walk through a
folder, and the closing of what a client sent."""

import json
import os
import subprocess
import sys
import time

import images
from daemon import (PATIENCE, Daemon, expect, expect_equal, folder, run, wait_for)
from slowfs import SlowFs

HERE = os.path.dirname(os.path.abspath(__file__))
ON_HOST = ["--device", "host", "--image", "random-crop:16", "--batch", "4", "--shuffle", "none"]
OTHER = ["--source", "synthetic:64:u8", "--batch", "4", "--device", "host"]
# A client that sends the fd of a file, as a dataset or where none belongs, and stays.
SENDER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import rawpeer
from rawpeer import RawPeer, field, message
peer = RawPeer(sys.argv[2])
fd = os.open(sys.argv[3], os.O_RDONLY)
if sys.argv[4] == "dataset":
    peer.send(message(rawpeer.DATASET_FDS, (1, "a.tar")), [fd])
    peer.send(message(rawpeer.QUERY))
else:
    peer.send(b"\\xff" * 100 if sys.argv[4] == "garbage" else message(rawpeer.DONE, ident=3), [fd])
print(peer.gone(), flush=True)
sys.stdin.read()
os._exit(0)
"""


def client(daemon, path):
    return daemon.consume("--source", f"folder:{path}", *ON_HOST, "--epochs", "1")


def last_event(process, seconds):
    output, _ = process.communicate(timeout=seconds)
    return json.loads(output.splitlines()[-1])


def pools(daemon):
    return daemon.ask("pools")["pools"][0]


def test_a_stuck_read_fails_its_job():
    with folder() as path, Daemon("io.stuck=1s", "workers.per_numa_node=2") as daemon:
        images.make_folder(f"{path}/data", classes=2, each=8)
        with SlowFs(f"{path}/data", f"{path}/slow") as slow:
            slow.hold("read", "c0/005.jpg")
            began = time.monotonic()
            got = last_event(client(daemon, slow.path), PATIENCE)
            expect(1 <= time.monotonic() - began < 10, f"after {time.monotonic() - began:.1f} s")
            expect_equal((got["event"], got["code"]), ("error", -110), f"ETIMEDOUT: {got}")
            expect("c0/005.jpg" in got["text"], got["text"])
            expect_equal(daemon.bench(*OTHER, "--batches", "50")["batches"], 50, "others go on")
            expect(pools(daemon)["used_bytes"] > 0, "its slot is charged until the read returns")
            expect_equal(daemon.ask("status")["jobs"], 1, "and its job is there")
            slow.go()
            wait_for(lambda: not daemon.jobs(), "the job ends with the read")
            wait_for(lambda: pools(daemon)["used_bytes"] == 0, "and the slot is free")
            expect_equal(daemon.bench(*OTHER, "--batches", "50")["batches"], 50, "all workers")


def test_more_stuck_reads_than_workers():
    """Each is replaced, and the next job finds somebody who works."""
    with folder() as path, Daemon("io.stuck=300ms", "workers.per_numa_node=2") as daemon:
        images.make_folder(f"{path}/data", classes=2, each=8)
        with SlowFs(f"{path}/data", f"{path}/slow") as slow:
            for i in range(4):
                slow.hold("read", f"c0/00{i}.jpg")
            got = last_event(client(daemon, slow.path), PATIENCE)
            expect_equal((got["event"], got["code"]), ("error", -110), f"ETIMEDOUT: {got}")
            expect_equal(daemon.bench(*OTHER, "--batches", "50")["batches"], 50, "others go on")
            slow.go()
            wait_for(lambda: not daemon.jobs(), "the job ends with its reads")


def test_a_stuck_index_fails_its_job():
    """More of them than any pool has threads: others are indexed and get memory all the same."""
    with folder() as path, Daemon("io.stuck=1s") as daemon:
        images.make_folder(f"{path}/good", classes=2, each=4)
        for i in range(6):
            images.make_folder(f"{path}/data/d{i}", classes=2, each=4)
        with SlowFs(f"{path}/data", f"{path}/slow") as slow:
            slow.hold("readdir", "/c1")
            began = time.monotonic()
            stuck = [client(daemon, f"{slow.path}/d{i}") for i in range(6)]
            other = client(daemon, f"{path}/good")
            for process in stuck:
                got = last_event(process, PATIENCE)
                expect_equal(got["event"], "error", "a stuck index")
                expect("hung" in got["text"], got["text"])
                expect(slow.path in got["text"], f"by name: {got['text']}")
            expect(time.monotonic() - began < 15, f"after {time.monotonic() - began:.1f} s")
            expect(last_event(other, PATIENCE)["event"] != "error", "another folder is indexed")
            expect_equal(daemon.bench(*OTHER, "--batches", "50")["batches"], 50, "memory is made")
            wait_for(lambda: not daemon.jobs(), "no job is left")
            slow.go()
            expect(last_event(client(daemon, f"{slow.path}/d0"), PATIENCE)["event"] != "error",
                   "it is indexed when it answers")


def test_a_stuck_close_stops_nobody():
    with folder() as path, Daemon() as daemon:
        os.mkdir(f"{path}/data")
        images.make_tar(f"{path}/data/a.tar", 0, 4)
        with SlowFs(f"{path}/data", f"{path}/slow") as slow:
            slow.hold("flush", "a.tar")
            for way in ("dataset", "garbage", "fds"):
                process = subprocess.Popen(
                    [sys.executable, "-B", "-c", SENDER, HERE, daemon.socket, f"{slow.path}/a.tar",
                     way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                expect_equal(process.stdout.readline(), "True\n", f"{way}: the peer is dropped")
                expect_equal(daemon.bench(*OTHER, "--batches", "50", timeout=10)["batches"], 50,
                             f"{way}: others go on")
                expect(slow.waiting() > 0, f"{way}: a close hangs")
                process.stdin.close()
            slow.go()


def can_run():
    if os.geteuid() != 0:
        return "not root: no file system can be mounted"
    with folder() as path:
        os.mkdir(f"{path}/data")
        if not os.path.exists("/dev/fuse"):
            return "no /dev/fuse"
        with SlowFs(f"{path}/data", f"{path}/slow") as slow:
            return slow.refused


WHY_NOT = can_run()
if WHY_NOT:
    print("skipped:", WHY_NOT)
    sys.exit(77)
run([test_a_stuck_read_fails_its_job, test_more_stuck_reads_than_workers,
     test_a_stuck_index_fails_its_job, test_a_stuck_close_stops_nobody])
