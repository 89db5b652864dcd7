#!/usr/bin/env python3
"""What opening a job on 10^12 tokens takes, and how fast windows of warm files are, on the host device.

    PINSERVE_BUILD=build/release tokens.py [--dir DIR] [--times N] [--base BUILD]

Files are made in a folder of DIR (/dev/shm): 1,000 sparse ones of 10^9 uint16 tokens, as many of 2,000
tokens, and as many pairs of Megatron-LM. Opening is from pinctl's OpenJob to the first batch of 4
windows of 1,024, median of N (5) daemons that have seen no dataset, and once more in the same daemon;
memory is what the daemon's private memory grew by. Rates are of windows of 1,024 at random offsets, batch
64, as ratios to those of a bare file within one run, medians of N alternating turns; with --base another
build's on the bare file, too. Beside them the time of a read, which says more on a busy machine.
"""

import argparse
import os
import statistics
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import daemon as daemons  # noqa: E402
import text_files  # noqa: E402

FILES = 1000
TOKENS = 40_000_000


def private_bytes(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as file:
        return [int(line.split()[1]) for line in file if line.startswith("RssAnon")][0] * 1024


def bench(daemon, source, *options, build=None):
    own = daemons.PINCTL
    if build:
        daemons.PINCTL = os.path.join(build, "client", "pinctl", "pinctl")
    try:
        return daemon.bench("--source", source, "--seq", "1024", "--device", "host", *options)
    finally:
        daemons.PINCTL = own


def opening(what, source, times):
    first, again, grown = [], [], []
    for _ in range(times):
        with daemons.Daemon() as daemon:
            before = private_bytes(daemon)
            for took in (first, again):
                result = bench(daemon, source, "--batch", "4", "--batches", "1")
                took.append(result["first_batch_ms"])
            grown.append(private_bytes(daemon) - before)
    print(f"{what}: {statistics.median(first):.0f} ms ({min(first):.0f} to {max(first):.0f}), again "
          f"{statistics.median(again):.0f} ms, {statistics.median(grown) / 1e6:.1f} MB", flush=True)


def make_openings(path):
    """What it is and its source."""
    for name in ("large", "small", "pairs"):
        os.mkdir(f"{path}/{name}")
    for i in range(FILES):
        for name, size in (("large", 2 * 10**9), ("small", 4000)):
            with open(f"{path}/{name}/t{i:04}.bin", "wb") as file:
                file.truncate(size)
        text_files.write_megatron(f"{path}/pairs/p{i:04}", [[1500, 20], [700], [5], [1200]])
    return [("1,000 files of 10^9 tokens", f"tokens:{path}/large/*.bin"),
            ("1,000 files of 2,000 tokens", f"tokens:{path}/small/*.bin"),
            ("1,000 pairs of Megatron-LM", f"tokens:{path}/pairs/*.bin,documents=within")]


def make_rates(path):
    tokens = text_files.tokens_of(TOKENS, 1)
    text_files.write_bare(f"{path}/bare.bin", tokens)
    text_files.write_llmc(f"{path}/llmc.bin", tokens)
    lengths = numpy.random.default_rng(2).integers(100, 4000, TOKENS // 2050)
    text_files.write_megatron(f"{path}/pair", [[int(length)] for length in lengths])
    bare, pair = f"{path}/bare.bin", f"{path}/pair.bin"
    return [("bare", f"tokens:{bare},random,out=i64"),
            ("llm.c", f"tokens:{path}/llmc.bin,random,out=i64"),
            ("Megatron-LM, within documents", f"tokens:{pair},random,out=i64,documents=within"),
            ("blend of two", f"tokens:blend=0.7:{bare},0.3:{pair},random,out=i64"),
            ("with position and document", f"tokens:{pair},random,out=i64,position,document")]


def rates(sources, times, base):
    turns = [(what, source, None) for what, source in sources]
    if base:
        turns.insert(1, ("bare, the other build", sources[0][1], base))
    seen = {what: [] for what, _, _ in turns}
    with daemons.Daemon() as daemon:
        own = daemons.PINSERVED
        daemons.PINSERVED = os.path.join(base, "daemon", "pinserved") if base else own
        with daemons.Daemon() as other:
            daemons.PINSERVED = own
            for turn in range(times + 1):
                for what, source, build in turns:
                    result = bench(other if build else daemon, source, "--batch", "64", "--batches",
                                   "5000", build=build)
                    if turn:
                        seen[what].append((result["samples_per_s"], result["stages_us"]["read"]))
    for what, results in seen.items():
        ratio = statistics.median(one[0] / bare[0] for one, bare in zip(results, seen["bare"]))
        print(f"{what}: {statistics.median(r for r, _ in results):.0f} windows/s, {ratio:.3f} of bare, "
              f"a read {statistics.median(us for _, us in results):.2f} us", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--base")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as path:
        for what, source in make_openings(path):
            opening(what, source, options.times)
        rates(make_rates(path), options.times, options.base)


main()
