#!/usr/bin/env python3
"""Records that the copy engine gathers from the page cache, against the same through slots.

    PINSERVE_BIN=DIR PINSERVE_GPU=1 gpu_gather.py [SECTION...]

Sections: sizes (from which size of a record on gathering pays: device.gather_min), steady (a file that
is registered already: rate, and CPU of the daemon and its device process), start (until a file of
1.2 GB is registered).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_rates  # noqa: E402
from gpu_rates import SECONDS, cpu_seconds, program, run_json  # noqa: E402

RECORD = 150528
TOTAL = int(os.environ.get("FILE_BYTES", str(8192 * RECORD)))
CHUNK = 1 << 24


def daemon(*settings):
    """With room for two such files."""
    return gpu_rates.daemon("pool.max=40%", f"device.gather_max={4 * TOTAL}", *settings)


class Files:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="pinserve-gather-")

    def raw(self, size, total=TOTAL):
        """A raw file of records of this size; what is in it does not matter, but it is no hole."""
        path = os.path.join(self.folder, f"records-{size}.bin")
        if not os.path.exists(path):
            block = os.urandom(CHUNK)
            with open(path, "wb") as file:
                for _ in range(total // CHUNK):
                    file.write(block)
                file.truncate(total // size * size)
        return f"records:{path}:{size}:u8"

    def drop(self):
        subprocess.run(["rm", "-rf", self.folder], check=False)


def gpus(serving):
    return [row for row in serving.ask("devices")["devices"] if row["uuid"] != "host"]


class Holder:
    """A job that takes one batch and stays, so that its file stays registered."""

    def __init__(self, serving, source, batch="16"):
        began = time.monotonic()
        self.process = serving.consume("--source", source, "--batch", batch, "--device",
                                       gpus(serving)[0]["uuid"], "--hold", "1", "--batches", "1",
                                       "--wait")
        self.process.stdout.readline()
        size = os.path.getsize(source.split(":")[1])
        while gpus(serving)[0]["gathered_bytes"] < size and time.monotonic() - began < 20:
            time.sleep(0.02)
        self.seconds = time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()


def measure(serving, *spec, seconds=SECONDS):
    before, began = cpu_seconds(serving), time.monotonic()
    got = serving.bench(*spec, "--seconds", str(seconds))
    cores = (cpu_seconds(serving) - before) / (time.monotonic() - began)
    return got["gb_per_s"], cores, got["stages_us"]["copy"]


def section_sizes(files):
    """A batch has 32 MiB at most and 1,024 records at most."""
    print(f"{'record':>9} {'batch':>6} | gathered: GB/s, cores | through slots: GB/s, cores")
    for size in (8192, 16384, 32768, 65536, 131072, RECORD, 262144, 1 << 20):
        batch = min(1024, (32 << 20) // size)
        source, results = files.raw(size), []
        for settings in (("device.gather_min=1",), ("device.gather=off",)):
            with daemon(*settings) as serving:
                spec = ["--source", source, "--batch", str(batch), "--device", "cuda:0"]
                if settings[0].endswith("=1"):
                    with Holder(serving, source):
                        results += measure(serving, *spec)[:2]
                else:
                    serving.bench(*spec, "--seconds", "1")
                    results += measure(serving, *spec)[:2]
        print(f"{size:9} {batch:6} | {results[0]:8.2f} {results[1]:8.2f}         |"
              f" {results[2]:8.2f} {results[3]:8.2f}", flush=True)


def section_steady(files):
    link = statistics.median(run_json(program("tests", "bench", "bench_link"), "--seconds",
                                      "3")["gb_per_s"] for _ in range(3))
    source = files.raw(RECORD)
    with daemon() as serving, Holder(serving, source):
        for depth in (2, 4, 8):
            for shuffle in ("full", "none"):
                rate, cores, copy = measure(serving, "--source", source, "--batch", "256",
                                            "--depth", str(depth), "--shuffle", shuffle,
                                            "--device", "cuda:0")
                print(f"depth {depth}, shuffle {shuffle}: {rate:.2f} GB/s, {rate / link:.3f} of the "
                      f"link's {link:.2f}; {cores:.2f} cores; copy {copy:.0f} us", flush=True)
        row = gpus(serving)[0]
        print(json.dumps({key: row[key] for key in row if "link" in key or "gather" in key}))


def section_start(files):
    source = files.raw(RECORD)
    for _ in range(3):
        with daemon() as serving, Holder(serving, source) as holder:
            print(f"{os.path.getsize(source.split(':')[1]) / 1e9:.2f} GB registered after "
                  f"{holder.seconds:.2f} s, the process's start included", flush=True)
            with Holder(serving, files.raw(RECORD * 2)) as second:
                print(f"a second file after {second.seconds:.2f} s", flush=True)


def main():
    sections = {name[8:]: function for name, function in globals().items()
                if name.startswith("section_")}
    files = Files()
    try:
        for name in sys.argv[1:] or sections:
            print(f"== {name}", flush=True)
            sections[name](files)
    finally:
        files.drop()


if __name__ == "__main__":
    main()
