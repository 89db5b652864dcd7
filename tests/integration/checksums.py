"""A batch is a pure function of its spec: the same checksum whatever the number of workers, the
depth, the device, the delivery and the run."""

import os
import random
import signal
import threading
import time

import arrays
import images
import numpy
from daemon import Daemon, expect, expect_equal, folder, have_driver, run, wait_for

IMAGE = ["--image", "random-crop:32", "--flip", "0.5"]


def sources(path):
    images.make_folder(os.path.join(path, "folder"))
    for shard in range(3):
        images.make_tar(os.path.join(path, f"s-{shard:03}.tar"), 10 * shard, 10)
    return {
        "folder": ["--source", f"folder:{path}/folder", *IMAGE, "--batch", "4", "--last", "pad"],
        "center": ["--source", f"folder:{path}/folder", "--image", "center-crop:32:40",
                   "--batch", "5", "--last", "partial"],
        "tar": ["--source", f"tar:{path}/s-{{000..002}}.tar", *IMAGE, "--batch", "7"],
        "fields": ["--source", f"tar:{path}/s-*.tar,fields=cls:4+jpg+cls", *IMAGE, "--batch", "7"],
        "bytes": ["--source", f"tar:{path}/s-*.tar,fields=cls:4+jpg:9000", "--batch", "7", "--last",
                  "partial"],
        "u8": ["--source", "synthetic:3x16x16:u8:50", "--batch", "8", "--last", "partial"],
        "f32": ["--source", "synthetic:7x5:f32:50", "--batch", "8"],
        **plain_sources(path),
    }


def plain_sources(path):
    """Records and tokens: in the file as they are delivered, or not."""
    arrays.make_arrays(f"{path}/arrays")
    arrays.make_tokens(f"{path}/tokens", [5000, 40, 2001])
    numpy.save(f"{path}/labels.npy", numpy.arange(26)[::-1])
    return {
        "records": ["--source", f"records:{path}/arrays/large.npy,labels={path}/labels.npy",
                    "--batch", "4", "--last", "pad"],
        "big-endian": ["--source", f"records:{path}/arrays/big.npy", "--batch", "4"],
        "fortran": ["--source", f"records:{path}/arrays/fortran.npy", "--batch", "5", "--last",
                    "partial"],
        "raw": ["--source", f"records:{path}/tokens/t0.bin:5x10:bf16", "--batch", "6"],
        "tokens": ["--source", f"tokens:{path}/tokens/t{{0..2}}.bin", "--seq", "64", "--batch",
                   "7"],
        "random": ["--source", f"tokens:{path}/tokens/t*.bin,stride=random,out=i64", "--seq", "64",
                   "--batch", "7"],
    }


def checksum(daemon, *arguments):
    return daemon.bench(*arguments, "--epochs", "2", "--checksum")["checksum"]


def reference(path, wanted):
    with Daemon("workers.per_numa_node=1") as daemon:
        return {name: checksum(daemon, *spec, "--device", "host")
                for name, spec in wanted.items()}


def test_workers_depth_and_runs():
    with folder() as path:
        wanted = sources(path)
        first = reference(path, wanted)
        expect_equal(len(set(first.values())), len(first), "different specs, different checksums")
        with Daemon("workers.per_numa_node=4") as daemon:
            for name, spec in wanted.items():
                for depth in ("2", "16"):
                    expect_equal(checksum(daemon, *spec, "--device", "host", "--depth", depth),
                                 first[name], f"{name}, 4 workers, depth {depth}")
                expect(checksum(daemon, *spec, "--device", "host", "--seed", "1") != first[name],
                       f"{name}: another seed gives the same bytes")


def test_devices_and_deliveries():
    if not have_driver():
        return
    with folder() as path:
        wanted = sources(path)
        first = reference(path, wanted)
        with Daemon("workers.per_numa_node=2", driver=True) as daemon:
            for name, spec in wanted.items():
                for delivery in ("auto", "fd", "ipc", "copy", "host", "mapped"):
                    result = daemon.bench(*spec, "--device", "cuda:0", "--deliver", delivery,
                                          "--epochs", "2", "--checksum")
                    expect_equal(result["delivery"], "fd" if delivery == "auto" else delivery,
                                 f"delivery asked as {delivery}")
                    expect_equal(result["checksum"], first[name], f"{name}, {delivery}")


def test_several_jobs_at_once():
    with folder() as path:
        wanted = sources(path)
        first = reference(path, wanted)
        with Daemon("workers.per_numa_node=2", driver=have_driver()) as daemon:
            device = "cuda:0" if have_driver() else "host"
            got = daemon.bench(*wanted["folder"], "--device", device, "--epochs", "2",
                               "--checksum", "--jobs", "3")["checksum"]
            expect_equal(got, [first["folder"]] * 3, "three jobs at once")


def device_processes(daemon):
    out = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, rest = file.read().rsplit(") ", 1)
            if rest.split()[1] == str(daemon.process.pid) and "pinserved-devic" in name:
                out.append(int(pid))
        except OSError:
            continue
    return out


def test_kill_of_the_device_process_changes_no_byte():
    if not have_driver():
        return
    with folder() as path:
        spec = sources(path)["folder"]
        first = reference(path, {"folder": spec})["folder"]
        with Daemon("workers.per_numa_node=2", driver=True) as daemon:
            for delivery in ("fd", "ipc"):
                results = []
                thread = threading.Thread(target=lambda how=delivery: results.append(
                    checksum(daemon, *spec, "--device", "cuda:0", "--deliver", how,
                             "--step-ms", "40")))
                thread.start()
                for _ in range(2):
                    wait_for(lambda: device_processes(daemon), "a device process")
                    time.sleep(random.uniform(0.1, 0.2))
                    for pid in device_processes(daemon):
                        os.kill(pid, signal.SIGKILL)
                thread.join()
                expect_equal(results, [first], f"checksum after two kills, {delivery}")
            gpu = [d for d in daemon.ask("devices")["devices"] if d["uuid"] != "host"][0]
            expect(gpu["restarts"] >= 2, f"pinctl tells of the restarts: {gpu}")


run([test_workers_depth_and_runs, test_devices_and_deliveries, test_several_jobs_at_once,
     test_kill_of_the_device_process_changes_no_byte])
