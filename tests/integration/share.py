"""Jobs that want the same batches: each is decoded once, the bytes are those of a job alone, and
nobody waits for another."""

import json
import os
import signal
import threading
import time

from daemon import Daemon, expect, expect_equal, folder, have_driver, run, wait_for
from images import make_folder

N, BATCH = 96, 8
SPEC = ["--image", "random-crop:48", "--flip", "0.5", "--batch", str(BATCH), "--depth", "4"]


def spec_of(path, *more):
    return ["--source", f"folder:{path}", *SPEC, *more]


def decoded(daemon):
    return daemon.ask("stats")["stages"]["samples"]


def at_once(daemon, *specs):
    """Runs pinctl bench for each; their results."""
    results = [None] * len(specs)

    def one(i):
        results[i] = daemon.bench(*specs[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(specs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def places():
    yield "host", ["--device", "host"], ["--device", "host"], {}
    if have_driver():
        gpu = ["--device", "cuda:0", "--deliver"]
        two = {"PINSERVE_DRIVER_DEVICES": "2"}
        yield "fd", gpu + ["fd"], gpu + ["fd"], {}
        yield "copy", gpu + ["copy"], gpu + ["copy"], {}
        yield "two GPUs", gpu + ["fd"], ["--device", "cuda:1", "--deliver", "ipc"], two
        yield "host and copy", ["--device", "host"], gpu + ["copy"], {}


def test_each_batch_is_decoded_once():
    """They start at about the same time and take a step every 20 ms. A depth of 32 bears that one
    starts half a second later."""
    with folder() as path:
        make_folder(path, 3, N // 3)
        run_spec = spec_of(path, "--depth", "32", "--epochs", "3", "--step-ms", "20", "--checksum")
        for name, first, second, env in places():
            with Daemon("workers.per_numa_node=2", driver=have_driver(), env=env) as daemon:
                alone = [daemon.bench(*run_spec, *device)["checksum"]
                         for device in (first, second)]
                before = decoded(daemon)
                got = at_once(daemon, run_spec + first, run_spec + second)
                expect_equal([result["checksum"] for result in got], alone, name)
                expect_equal(alone[0], alone[1], name)
                made = decoded(daemon) - before
                # Each decodes ahead of what it delivers, too.
                expect(3 * N <= made < 0.8 * before,
                       f"{name}: {made} samples, one after the other {before}")
                print(f"{name}: {made} samples were decoded, one after the other {before}")


def test_a_little_later():
    """Where decoding is what they wait for, the one behind is served first until both are level."""
    with folder() as path:
        make_folder(path, 3, N // 3)
        spec = spec_of(path, "--device", "host", "--batch", str(N), "--seconds", "3")
        with Daemon("workers.per_numa_node=1") as daemon:
            first = threading.Thread(target=daemon.bench, args=spec)
            first.start()
            wait_for(lambda: [job for job in daemon.jobs() if job["delivered"] >= 3], "3 steps")
            second = daemon.bench(*spec)["samples"]
            first.join()
            made = decoded(daemon)
            print(f"two of which one begins later: {made} decoded, it has {second}")
            expect(second > made / 2 * 1.2, "most of what one decodes the other takes")


def test_others_decode_for_themselves():
    with folder() as path:
        make_folder(path, 3, N // 3)
        with Daemon("workers.per_numa_node=2") as daemon:
            for more in (["--seed", "1"], ["--flip", "0.25"], ["--rank", "1", "--world", "2"]):
                before = decoded(daemon)
                spec = spec_of(path, "--device", "host", "--epochs", "2", "--step-ms", "10")
                at_once(daemon, spec, spec + more)
                wanted = 2 * N + (N if "--rank" in more else 2 * N)
                expect(decoded(daemon) - before >= wanted, f"samples with {more}")


def events(process):
    for line in process.stdout:
        yield json.loads(line)


def test_a_client_that_stops_holds_nobody_up():
    """It holds all its leases, of slots that the other job brought; then it is killed."""
    with folder() as path:
        make_folder(path, 3, N // 3)
        with Daemon("workers.per_numa_node=2") as daemon:
            spec = spec_of(path, "--epochs", "1000", "--device", "host")
            first = daemon.consume(*spec, "--step-ms", "20")
            stream = events(first)
            for _ in range(5):
                next(stream)
            held = daemon.consume(*spec, "--start", "live", "--hold", "4", "--batches", "4",
                                  "--wait")
            wait_for(lambda: max(job["leased"] for job in daemon.jobs()) == 4, "four leases")
            rows = daemon.jobs()
            expect_equal([job["mates"] for job in rows], [1, 1], "mates")
            before = max(job["delivered"] for job in rows)
            wait_for(lambda: max(job["delivered"] for job in daemon.jobs()) > before + 20,
                     "the first goes on")
            expect(min(job["delivered"] for job in daemon.jobs()) == 4, "the other has stopped")
            held.send_signal(signal.SIGKILL)
            held.wait()
            wait_for(lambda: len(daemon.jobs()) == 1, "the killed one is gone")
            first.kill()
            first.wait()
            wait_for(lambda: not daemon.jobs(), "both are gone")


def test_start_live():
    with folder() as path:
        make_folder(path, 3, N // 3)
        with Daemon("workers.per_numa_node=2") as daemon:
            spec = spec_of(path, "--device", "host")
            alone = daemon.batches(*spec, "--start", "live", "--batches", "1")
            job = [event for event in alone if event["event"] == "job"][0]
            batch = [event for event in alone if event["event"] == "batch"][0]
            expect_equal((batch["epoch"], batch["step"]), (0, 0), f"without another: {job}")
            first = daemon.consume(*spec, "--step-ms", "30", "--epochs", "1000")
            wait_for(lambda: [row for row in daemon.jobs() if row["delivered"] > 30], "30 steps")
            joined = [event for event in daemon.batches(*spec, "--start", "live", "--batches", "6")
                      if event["event"] == "batch"]
            steps = N // BATCH
            place = [event["epoch"] * steps + event["step"] for event in joined]
            expect(place[0] >= 30 and place == list(range(place[0], place[0] + 6)),
                   f"where it joins: {place}")
            expect(daemon.ask("stats")["stages"]["samples"] < (place[-1] + 12) * BATCH,
                   "it shares what is there")
            first.kill()
            first.wait()


def test_regions_of_jobs_that_ended():
    """A client that goes on has them, so that their memory would not come back: the next jobs use
    them again. Each slot fills one."""
    spec = ["--source", "synthetic:1800000:u8:1000", "--batch", "1", "--depth", "4", "--device",
            "host", "--step-ms", "5", "--start", "live"]
    with Daemon("workers.per_numa_node=1", "pool.region=2MiB", "pool.idle=100ms") as daemon:
        first = daemon.consume(*spec, "--epochs", "1000")
        next(events(first))
        for _ in range(3):
            # It holds three of the first one's slots, which has to take its own.
            daemon.batches(*spec, "--batches", "40", "--hold", "3")
            wait_for(lambda: len(daemon.jobs()) == 1, "the other is gone")
            time.sleep(0.3)
        pinned = daemon.ask("status")["pinned_bytes"] >> 21
        expect(pinned <= 8, f"{pinned} regions of two jobs")
        first.kill()
        first.wait()
        wait_for(lambda: daemon.ask("status")["pinned_bytes"] == 0, "all is given back")


def test_bad_samples_are_listed_for_both():
    with folder() as path:
        make_folder(path, 2, 8)
        bad = sorted(os.path.join(parent, name) for parent, _, names in os.walk(path)
                     for name in names)[3]
        with open(bad, "wb") as file:
            file.write(b"no image")
        with Daemon("workers.per_numa_node=2") as daemon:
            spec = spec_of(path, "--bad", "blank", "--device", "host", "--batch", "8")
            jobs = [daemon.consume(*spec, "--batches", "2", "--hold", "2", "--wait")
                    for _ in range(2)]
            wait_for(lambda: sum(row["leased"] for row in daemon.jobs()) == 8, "four batches each")
            # Another order of the same data, of which the bad sample is no part yet.
            jobs.append(daemon.consume(*spec, "--depth", "1", "--shuffle", "none", "--start", "0:1",
                                       "--batches", "1", "--hold", "1", "--wait"))
            wait_for(lambda: sum(row["leased"] for row in daemon.jobs()) == 9, "one batch more")
            for row, wanted in zip(daemon.jobs(), ([bad], [bad], [])):
                listed = json.loads(daemon.pinctl("--json", "jobs", "--bad",
                                                  str(row["job"])).stdout)["bad"]
                expect_equal([os.path.basename(entry["name"]) for entry in listed],
                             [os.path.basename(name) for name in wanted], "the list")
            for job in jobs:
                job.communicate()


run([test_each_batch_is_decoded_once, test_a_little_later, test_others_decode_for_themselves,
     test_a_client_that_stops_holds_nobody_up, test_start_live,
     test_regions_of_jobs_that_ended, test_bad_samples_are_listed_for_both])
