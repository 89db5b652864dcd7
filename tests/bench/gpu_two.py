#!/usr/bin/env python3
"""Two GPUs at once: the same bytes as on one and on the host, the loss of one GPU's process is not
noticed on the other, and what both reach against what one does.

    PINSERVE_BIN=DIR PINSERVE_GPU=1 gpu_two.py PHOTOS

DIR has all programs; PHOTOS has class folders of JPEG files.
"""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_gather import RECORD, Files, daemon, gpus  # noqa: E402
from gpu_rates import CORES, SECONDS, program, run_json  # noqa: E402

ORDER = ["--batch", "64", "--last", "pad", "--epochs", "3", "--checksum"]


def start(serving, *spec):
    return subprocess.Popen([program("client", "pinctl", "pinctl"), "--socket", serving.socket,
                             "--json", "bench", *spec],
                            stdout=subprocess.PIPE, env=serving.env)


def end(job):
    out = job.communicate()[0]
    if job.returncode != 0:
        raise RuntimeError(f"{job.args}: {job.returncode}")
    return json.loads(out)


def ranks(serving, spec, devices):
    """Both ranks of a world of two at once, one on each device."""
    return [start(serving, *spec, "--rank", str(rank), "--world", "2", "--device", device)
            for rank, device in enumerate(devices)]


def device_process(serving, uuid):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode().split("\0")
        except OSError:
            continue
        if "pinserved-device" in words[0] and uuid in words:
            return int(pid)
    return None


def check_bytes(photos):
    sources = (["--source", f"folder:{photos}", "--image", "random-crop:224", "--flip", "0.5"],
               ["--source", "synthetic:3x64x64:f32:20000"])
    with daemon() as serving:
        for source in sources:
            spec = [*source, *ORDER]
            wanted = [end(job)["checksum"] for job in ranks(serving, spec, ("host", "host"))]
            for devices in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):
                got = [end(job)["checksum"] for job in ranks(serving, spec, devices)]
                if got != wanted:
                    raise RuntimeError(f"{source}: {got} on {devices}, {wanted} on the host")
            print(f"{source[1].split('/')[0]}: {wanted} on both GPUs and on the host", flush=True)


def check_loss():
    """Kills the process of the first GPU while both feed."""
    spec = ["--source", "synthetic:3x128x128:f32:60000", *ORDER]
    with daemon() as serving:
        wanted = [end(job)["checksum"] for job in ranks(serving, spec, ("host", "host"))]
        jobs = ranks(serving, spec, ("cuda:0", "cuda:1"))
        while not all(row["copied_bytes"] > 0 for row in gpus(serving)[:2]):
            pass
        os.kill(device_process(serving, gpus(serving)[0]["uuid"]), signal.SIGKILL)
        got = [end(job)["checksum"] for job in jobs]
        restarts = [row["restarts"] for row in gpus(serving)[:2]]
        if got != wanted or restarts != [1, 0]:
            raise RuntimeError(f"{got}, restarts {restarts}; {wanted} on the host")
        print(f"one process killed: restarts {restarts}, checksums as on the host", flush=True)


def rates(name, specs, serving, key, unit):
    one = end(start(serving, *specs[0]))[key]
    got = [end(job)[key] for job in [start(serving, *spec) for spec in specs]]
    print(f"{name}: one {one:.2f} {unit}; two {got[0]:.2f} + {got[1]:.2f}, "
          f"{sum(got) / one:.3f} x", flush=True)
    return sum(got)


def measure(photos):
    links = [subprocess.Popen([program("tests", "bench", "bench_link"), "--seconds", "3"],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": str(i)})
             for i in range(2)]
    link = sum(json.loads(job.communicate()[0])["gb_per_s"] for job in links)
    files = Files()
    try:
        source = files.raw(RECORD)
        spec = ["--source", source, "--batch", "256", "--seconds", str(SECONDS), "--device"]
        with daemon() as serving:
            both = rates("records, gathered", [[*spec, f"cuda:{i}"] for i in range(2)], serving,
                         "gb_per_s", "GB/s")
            print(f"  {both / link:.3f} of two plain pinned loops at once ({link:.1f})")
        with daemon("device.gather=off", f"workers.per_numa_node={CORES // 2}") as serving:
            rates("records, through slots", [[*spec, f"cuda:{i}"] for i in range(2)], serving,
                  "gb_per_s", "GB/s")
    finally:
        files.drop()
    spec = ["--source", f"folder:{photos}", "--image", "random-crop:224", "--flip", "0.5",
            "--batch", "256", "--last", "pad", "--seconds", str(2 * SECONDS), "--depth", "8"]
    bare = run_json(program("tests", "bench", "bench_decode"), "--json", "--threads", str(CORES),
                    "--seconds", str(SECONDS), photos)["images_per_s"]
    with daemon(f"workers.per_numa_node={CORES}") as serving:
        both = rates("photos", [[*spec, "--seed", str(i), "--device", f"cuda:{i}"]
                                for i in range(2)], serving, "samples_per_s", "img/s")
        print(f"  {both / bare:.3f} of bench_decode with {CORES} threads ({bare:.0f})")


def main():
    with daemon() as serving:
        if len(gpus(serving)) < 2:
            sys.exit("gpu_two.py: there are no two GPUs")
    check_bytes(sys.argv[1])
    check_loss()
    measure(sys.argv[1])


if __name__ == "__main__":
    main()
