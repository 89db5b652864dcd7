#!/usr/bin/env python3
"""What jobs over the same data gain from each other: N jobs at once that want the same batches,
against as many that do not (another seed each), where decoding is what all wait for.

    PINSERVE_BUILD=DIR share.py PHOTOS [SECONDS]

On the host device, or with PINSERVE_GPU=1 and PINSERVE_BIN=DIR on all GPUs in turn. PHOTOS has class
folders of JPEG files.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from daemon import GPU, PINCTL, Daemon  # noqa: E402

CORES = os.cpu_count()


def devices(daemon):
    uuids = [row["uuid"] for row in daemon.ask("devices")["devices"] if row["uuid"] != "host"]
    return uuids if GPU else ["host"]


def rate(n, seeds, photos, seconds):
    """Images a second over all jobs."""
    with Daemon(f"workers.per_numa_node={CORES}", "pool.max=20%", driver=GPU) as daemon:
        where = devices(daemon)
        jobs = [subprocess.Popen(
            [PINCTL, "--socket", daemon.socket, "--json", "bench", "--source", f"folder:{photos}",
             "--image", "random-crop:224", "--flip", "0.5", "--batch", "64", "--last", "pad",
             "--depth", "8", "--seconds", seconds, "--seed", str(i if seeds else 0), "--device",
             where[i % len(where)]], env=daemon.env, stdout=subprocess.PIPE) for i in range(n)]
        results = [json.loads(job.communicate()[0]) for job in jobs]
        return sum(result["samples_per_s"] for result in results)


def main():
    photos, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "4"
    one = rate(1, False, photos, seconds)
    print(f"{CORES} workers, one job: {one:.0f} img/s\n")
    print("| jobs | the same batches | of one job | other batches each | of one job |")
    print("| ---: | ---: | ---: | ---: | ---: |", flush=True)
    for n in (2, 4, 8):
        same, other = rate(n, False, photos, seconds), rate(n, True, photos, seconds)
        print(f"| {n} | {same:.0f} img/s | {same / one:.2f} x | {other:.0f} img/s | "
              f"{other / one:.2f} x |", flush=True)


if __name__ == "__main__":
    main()
