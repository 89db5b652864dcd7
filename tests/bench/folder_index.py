#!/usr/bin/env python3
"""What it takes to index a folder of very many files, and to open a job on it again.

    PINSERVE_BUILD=build/release folder_index.py [--files 1280000] [--classes 1000] [--dir /dev/shm]

Makes empty files beneath --dir, and prints for class folders, for a list in their order, and for a
shuffled one: seconds until the job is ready, the events Progress, the daemon's private memory when it
was most and afterwards, in all and a file; then seconds for a second job, and how long it takes
until nothing is left of a job that is closed while its folder is indexed.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import large_folder  # noqa: E402
from daemon import Daemon  # noqa: E402
from large_folder import Opening, anonymous_bytes  # noqa: E402


class Peak(threading.Thread):
    """The most private memory that the daemon has at a time."""

    def __init__(self, daemon):
        super().__init__()
        self.daemon_process, self.most, self.ended = daemon, 0, False
        self.start()

    def run(self):
        while not self.ended:
            self.most = max(self.most, anonymous_bytes(self.daemon_process))
            time.sleep(0.01)

    def end(self):
        self.ended = True
        self.join()
        return self.most


def cpu_seconds(daemon):
    with open(f"/proc/{daemon.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(what, files, paths):
    with Daemon() as daemon:
        before, cpu = anonymous_bytes(daemon), cpu_seconds(daemon)
        peak = Peak(daemon)
        opening = Opening(daemon, paths, "folder:x")
        told, first, samples = opening.finish()
        most = peak.end() - before
        cpu = cpu_seconds(daemon) - cpu
        kept = anonymous_bytes(daemon) - before
        opening.close()
        opening = Opening(daemon, paths, "folder:x")
        again, second, _ = opening.finish()
        opening.close()
        cancelled = Opening(daemon, paths, "folder:y").cancel()
    if samples != files or again or told != sorted(set(told)):
        sys.exit(f"{what}: {samples} samples, {told}, then {again}")
    print(f"{what}: indexed in {first:.2f} s ({cpu:.2f} s of CPU), {len(told)} x Progress; memory "
          f"{most / 1e6:.1f} MB at most, {kept / 1e6:.1f} MB after, {kept / files:.1f} bytes a file; "
          f"second job {second * 1e3:.1f} ms; cancelled in {cancelled * 1e3:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=1280000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--dir", default="/dev/shm")
    options = parser.parse_args()
    path = tempfile.mkdtemp(prefix="pinserve-many-", dir=options.dir)
    try:
        each = options.files // options.classes
        files = large_folder.make(f"{path}/d", options.classes, each)
        large_folder.write_list(f"{path}/l.txt", options.classes, each)
        with open(f"{path}/l.txt") as file:
            lines = file.readlines()
        random.Random(1).shuffle(lines)
        with open(f"{path}/s.txt", "w") as file:
            file.writelines(lines)
        measure("class folders", files, [f"{path}/d"])
        measure("list", files, [f"{path}/d", f"{path}/l.txt"])
        measure("shuffled list", files, [f"{path}/d", f"{path}/s.txt"])
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
