#!/usr/bin/env python3
"""How long a job on tar shards takes to its first batch: indexed, from saved indexes, and again in
the same daemon.

    PINSERVE_BUILD=build/release tar_index.py [--shards 200] [--samples 500] [--dir DIR] [--turns 3]

Makes shards of small JPEG files with labels and captions beneath --dir; they stay in the page cache.
Each turn is a daemon of its own. Prints milliseconds, the daemon's CPU time and its memory, medians.
"""

import argparse
import io
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import images  # noqa: E402
from daemon import Daemon  # noqa: E402


def make_shard(path, shard, samples, jpeg):
    with tarfile.open(path, "w") as tar:
        for i in range(samples):
            for field, data in (("jpg", jpeg), ("cls", b"7"), ("txt", b"caption %d" % i)):
                info = tarfile.TarInfo(f"{shard:03}/{i:06}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def usage(daemon):
    """CPU seconds, and bytes of private memory."""
    with open(f"/proc/{daemon.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{daemon.process.pid}/status") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory * 1024


def first_batch(daemon, source):
    cpu, memory = usage(daemon)
    result = daemon.bench("--source", source, "--image", "center-crop:16", "--batch", "4",
                          "--batches", "1", "--device", "host", "--shuffle", "none")
    cpu_after, memory_after = usage(daemon)
    return result["first_batch_ms"], (cpu_after - cpu) * 1e3, (memory_after - memory) / 1e6


def measure(what, turns):
    medians = [statistics.median(column) for column in zip(*turns)]
    print(f"{what}: first batch after {medians[0]:.0f} ms ({min(t[0] for t in turns):.0f} to "
          f"{max(t[0] for t in turns):.0f}), {medians[1]:.0f} ms of CPU, {medians[2]:.1f} MB",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    path = tempfile.mkdtemp(prefix="pinserve-tars-", dir=options.dir)
    try:
        jpeg = images.jpeg(1, width=32, height=32)
        for shard in range(options.shards):
            make_shard(f"{path}/{shard:05}.tar", shard, options.samples, jpeg)
        time.sleep(3.5)  # what has just changed is not saved
        for fields in ("", ",fields=jpg+cls+txt:64"):
            source = f"tar:{path}/*.tar{fields}"
            turns = {"indexed": [], "indexed and saved": [], "from saved indexes": [],
                     "again in that daemon": []}
            for turn in range(options.turns):
                cache = f"{path}/cache{fields[1:4]}{turn}"
                with Daemon("daemon.cache=off") as daemon:
                    turns["indexed"].append(first_batch(daemon, source))
                with Daemon(f"daemon.cache={cache}") as daemon:
                    turns["indexed and saved"].append(first_batch(daemon, source))
                with Daemon(f"daemon.cache={cache}") as daemon:
                    turns["from saved indexes"].append(first_batch(daemon, source))
                    turns["again in that daemon"].append(first_batch(daemon, source))
                    if f"{options.shards} of its {options.shards} shards" not in daemon.log():
                        sys.exit(f"not all indexes were saved:\n{daemon.log()}")
            size = sum(entry.stat().st_size for entry in os.scandir(cache))
            print(f"{options.shards} shards of {options.samples} samples{fields}; saved: "
                  f"{size / 1e6:.2f} MB")
            for what, measured in turns.items():
                measure(f"  {what}", measured)
    finally:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
