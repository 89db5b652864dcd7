#!/usr/bin/env python3
"""What the whole path costs beyond its parts, as ratios within one run, on the host device.

    PINSERVE_BUILD=build/release path.py PHOTOS [PAIRS]

PHOTOS has class folders of JPEG files. Prints, as medians of PAIRS (7) alternating pairs:
img/s of `pinctl bench` (random-crop:224, 2 workers) against the same decode function in a bare loop
of two threads; that loop against one with a full decode and the same resize; then the wait for a
batch that is ready, and small batches a second.
"""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from daemon import Daemon, program  # noqa: E402

BENCH_DECODE = program("tests", "bench", "bench_decode")


def loop(photos, *options, seconds=5):
    out = subprocess.run([BENCH_DECODE, "--threads", "2", "--seconds", str(seconds), "--json",
                          *options, photos], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def rate(result):
    return result["images_per_s"] if "images_per_s" in result else result["samples_per_s"]


def pairs(n, first, second):
    ratios, firsts, seconds = [], [], []
    for i in range(n):
        order = (first, second) if i % 2 == 0 else (second, first)
        got = {run: rate(run()) for run in order}
        ratios.append(got[first] / got[second])
        firsts.append(got[first])
        seconds.append(got[second])
    return [statistics.median(values) for values in (ratios, firsts, seconds)]


def main():
    photos = sys.argv[1]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with Daemon("workers.per_numa_node=2") as daemon:
        spec = ["--source", f"folder:{photos}", "--image", "random-crop:224", "--flip", "0.5",
                "--batch", "32", "--device", "host"]

        def whole():
            return daemon.bench(*spec, "--seconds", "5")

        def bare():
            return loop(photos)

        def full():
            return loop(photos, "--full")

        daemon.bench(*spec, "--batches", "4")
        print("pinctl bench / bare loop:      {:.3f}  ({:.0f} / {:.0f} img/s)".format(
            *pairs(n, whole, bare)), flush=True)
        print("bare loop / full decode:       {:.3f}  ({:.0f} / {:.0f} img/s)".format(
            *pairs(n, bare, full)), flush=True)
        waits = [daemon.bench("--source", "synthetic:3x224x224:u8", "--image", "none", "--batch",
                              "16", "--step-ms", "5", "--seconds", "3", "--device", "host")
                 for _ in range(3)]
        print("wait for a ready batch, us:    p50 {:.1f}  p99 {:.1f}".format(
            *[statistics.median(w["wait_us"][p] for w in waits) for p in ("p50", "p99")]),
              flush=True)
        small = [daemon.bench("--source", "synthetic:1024:u8", "--batch", "4", "--depth", "16",
                              "--seconds", "3", "--device", "host") for _ in range(3)]
        print("batches of 4 x 1,024 bytes /s: {:.0f}".format(
            statistics.median(s["batches"] / s["seconds"] for s in small)), flush=True)


if __name__ == "__main__":
    main()
