"""Storage that is slow: the same bytes as from the page cache, read many at a time and ahead; a read
that hangs costs its own job only; nothing of what was read ahead is left."""

import json
import os
import time

import arrays
import images
import numpy
from daemon import (PATIENCE, SANITIZED, Daemon, expect, expect_equal, folder, program, run,
                    wait_for)

SLOWIO = program("tests", "integration", "slowio.so")
ON_HOST = ["--device", "host", "--image", "random-crop:16", "--flip", "0.5"]
OTHER = ["--source", "synthetic:64:u8", "--batch", "4", "--device", "host"]


def slow(ms, **more):
    """The environment of a daemon whose storage takes ms a read."""
    env = {"LD_PRELOAD": SLOWIO, "SLOWIO_MS": str(ms), **more}
    # The sanitizers want to be the first library.
    env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return env


def readers(daemon):
    names = []
    for thread in os.listdir(f"/proc/{daemon.process.pid}/task"):
        with open(f"/proc/{daemon.process.pid}/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names.count("pinserve-reader")


def make_sources(path):
    images.make_folder(f"{path}/photos", classes=3, each=17)
    for i in range(2):
        images.make_tar(f"{path}/shard-{i}.tar", i * 20, 20)
    return [f"folder:{path}/photos", f"tar:{path}/shard-*.tar,fields=cls:3+image+cls"]


def make_plain(path):
    """Records and tokens, as they lie in the file and not; bytes of tar members."""
    numpy.save(f"{path}/a.npy", arrays.numbers(60 * 5000, "u1").reshape(60, 5000))
    numpy.save(f"{path}/f.npy", numpy.asfortranarray(arrays.numbers(60 * 40, ">f4").reshape(60, 40)))
    arrays.make_tokens(path, [6000, 4001])
    images.make_tar(f"{path}/s.tar", 0, 40)
    return [["--source", f"records:{path}/a.npy"], ["--source", f"records:{path}/f.npy"],
            ["--source", f"tar:{path}/s.tar,fields=cls:2+jpg:9000"],
            ["--source", f"tokens:{path}/t*.bin,stride=random", "--seq", "128"],
            ["--source", f"tokens:{path}/t*.bin,out=i64", "--seq", "128"]]


def plain_sums(daemon, spec, *more):
    return daemon.bench(*spec, "--device", "host", "--epochs", "3", "--last", "partial",
                        "--checksum", *more)["checksum"]


def sums(daemon, source, *more):
    return daemon.bench("--source", source, *ON_HOST, "--epochs", "3", "--last", "partial",
                        "--checksum", *more)["checksum"]


def test_the_same_bytes():
    with folder() as path:
        sources = make_sources(path)
        with Daemon() as daemon:
            wanted = {(source, batch): sums(daemon, source, "--batch", batch)
                      for source in sources for batch in ("1", "7", "64")}
            expect_equal(readers(daemon), 0, "readers for what is in the page cache")
        for settings, env in (((), slow(2)),
                              (("io.threads=1",), slow(0)),
                              (("io.ahead=1MiB", "workers.per_numa_node=3"),
                               slow(1, SLOWIO_ALWAYS="1"))):
            with Daemon(*settings, env=env) as daemon:
                for (source, batch), checksum in wanted.items():
                    expect_equal(sums(daemon, source, "--batch", batch), checksum,
                                 f"{source} in batches of {batch}, {settings}")
                expect(readers(daemon) > 0, "there are readers")


def test_the_same_bytes_of_records_and_tokens():
    with folder() as path:
        specs = make_plain(path)
        with Daemon() as daemon:
            wanted = [plain_sums(daemon, spec, "--batch", "7") for spec in specs]
            expect_equal(readers(daemon), 0, "readers for what is in the page cache")
        for settings, env in (((), slow(2)), (("io.ahead=1MiB", "workers.per_numa_node=3"),
                                              slow(1, SLOWIO_ALWAYS="1"))):
            with Daemon(*settings, env=env) as daemon:
                for spec, checksum in zip(specs, wanted):
                    expect_equal(plain_sums(daemon, spec, "--batch", "7"), checksum,
                                 f"{spec}, {settings}")
                expect(readers(daemon) > 0, "there are readers")


def test_reads_of_records_overlap():
    """60 reads of 20 ms each: 1.2 s one after the other."""
    with folder() as path:
        spec = make_plain(path)[0]
        with Daemon("workers.per_numa_node=1", env=slow(20)) as daemon:
            began = time.monotonic()
            daemon.bench(*spec, "--device", "host", "--batch", "3", "--epochs", "1")
            took = time.monotonic() - began
            expect(took < 0.8 or SANITIZED, f"{took:.2f} s")


def test_several_jobs():
    with folder() as path:
        source = make_sources(path)[0]
        with Daemon() as daemon:
            wanted = sums(daemon, source, "--batch", "8")
        with Daemon("io.threads=4", env=slow(1, SLOWIO_ALWAYS="1")) as daemon:
            got = sums(daemon, source, "--batch", "8", "--jobs", "4")
            expect_equal(got, [wanted] * 4, "four jobs")


def test_reads_overlap():
    """51 opens and reads of 20 ms each: 2 s one after the other."""
    with folder() as path:
        source = make_sources(path)[0]
        with Daemon("workers.per_numa_node=1", env=slow(20)) as daemon:
            began = time.monotonic()
            daemon.bench("--source", source, *ON_HOST, "--batch", "3", "--epochs", "1")
            took = time.monotonic() - began
            expect(took < 1 or SANITIZED, f"{took:.2f} s")


def test_nothing_is_left():
    """Clients that close or die with reads ahead under way."""
    with folder() as path:
        source = make_sources(path)[0]
        spec = ["--source", source, *ON_HOST, "--batch", "4"]
        with Daemon("io.stuck=60s", env=slow(100, SLOWIO_ALWAYS="1")) as daemon:
            for _ in range(3):
                daemon.batches(*spec, "--batches", "2")
                client = daemon.consume(*spec)
                client.stdout.readline()
                client.kill()
                client.communicate()
            wait_for(lambda: not daemon.jobs(), "no job")
            daemon.stop()
            expect("left over" not in daemon.log(), daemon.log())


def test_a_read_hangs():
    with folder() as path:
        source, tar = make_sources(path)
        held = f"{path}/held"
        env = slow(1, SLOWIO_HELD=held, SLOWIO_ALWAYS="1")
        spec = ["--source", source, *ON_HOST, "--batch", "4", "--shuffle", "none"]
        with Daemon("io.stuck=1s", "workers.per_numa_node=2", env=env) as daemon:
            with open(held, "w") as file:
                file.write("c1/005.jpg")
            began = time.monotonic()
            client = daemon.consume(*spec, "--epochs", "1")
            output, _ = client.communicate(timeout=PATIENCE)
            events = [json.loads(line) for line in output.splitlines()]
            expect(1 <= time.monotonic() - began < 10, f"after {time.monotonic() - began:.1f} s")
            expect_equal((events[-1]["event"], events[-1]["code"]), ("error", -110), f"{events}")
            expect("c1/005.jpg" in events[-1]["text"], events[-1]["text"])
            expect_equal([e["step"] for e in events if e["event"] == "batch"], list(range(5)),
                         "the batches before it arrive")
            expect_equal(daemon.bench(*OTHER, "--batches", "50")["batches"], 50, "others go on")
            result = daemon.bench("--source", tar, *ON_HOST, "--batch", "4", "--epochs", "2")
            expect_equal(result["samples"], 80, "also others that read")
            expect(daemon.ask("pools")["pools"][0]["used_bytes"] > 0, "its slot is charged")
            os.unlink(held)
            wait_for(lambda: not daemon.jobs(), "the job ends with the read")
            expect_equal(daemon.ask("pools")["pools"][0]["used_bytes"], 0, "and the slot is free")


def test_a_bad_sample_is_named():
    with folder() as path:
        source = make_sources(path)[0]
        for name in ("c0/009.jpg", "c0/011.jpg"):
            with open(f"{path}/photos/{name}", "wb") as file:
                file.write(b"no image")
        with Daemon(env=slow(2)) as daemon:
            events = daemon.batches("--source", source, *ON_HOST, "--batch", "4", "--shuffle",
                                    "none", "--epochs", "1")
            expect_equal([e["step"] for e in events if e["event"] == "batch"], [0, 1], "before it")
            expect("c0/009.jpg" in events[-1]["text"], events[-1]["text"])


run([test_the_same_bytes, test_the_same_bytes_of_records_and_tokens, test_reads_of_records_overlap,
     test_several_jobs, test_reads_overlap, test_nothing_is_left, test_a_read_hangs,
     test_a_bad_sample_is_named])
