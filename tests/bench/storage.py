#!/usr/bin/env python3
"""What slow storage and the readers cost, as ratios within one run, on the host device.

    PINSERVE_BUILD=build/release storage.py PHOTOS [PAIRS] [--base BUILD]

PHOTOS has class folders of JPEG files. Prints, as medians of PAIRS (7) alternating pairs of
`pinctl bench` (random-crop:224, 2 workers): img/s with storage on which nothing is ever cached and
each open and each read takes 5 ms more, against the same from a warm page cache; then, with --base,
img/s from a warm page cache against another build's. CPU time is that of the daemon, an image: on a
machine that others use too it says more than the rate.
"""

import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import daemon as daemons  # noqa: E402

SLOWIO = daemons.program("tests", "integration", "slowio.so")
COLD = {"LD_PRELOAD": SLOWIO, "SLOWIO_MS": "5", "SLOWIO_ALWAYS": "1"}


class Side:
    """One of two things compared: a daemon of its own, all the time."""

    def __init__(self, options, build=None, env=None):
        names = ("PINSERVED", "PINCTL")
        own = [getattr(daemons, name) for name in names]
        if build:
            daemons.PINSERVED = os.path.join(build, "daemon", "pinserved")
            daemons.PINCTL = os.path.join(build, "client", "pinctl", "pinctl")
        self.programs = (daemons.PINSERVED, daemons.PINCTL)
        self.daemon = daemons.Daemon(f"workers.per_numa_node={options.workers}", env=env).start()
        daemons.PINSERVED, daemons.PINCTL = own
        self.spec = ["--source", f"folder:{os.path.abspath(options.photos)}", "--image",
                     "random-crop:224", "--flip", "0.5", "--batch", str(options.batch), "--device",
                     "host", "--seconds", str(options.seconds)]

    def rate(self):
        """img/s, then microseconds an image: of a read, of the daemon's CPU time."""
        own, daemons.PINCTL = daemons.PINCTL, self.programs[1]
        before = self.cpu_us()
        try:
            result = self.daemon.bench(*self.spec)
        finally:
            daemons.PINCTL = own
        return (result["samples_per_s"], result["stages_us"]["read"],
                (self.cpu_us() - before) / result["samples"])

    def cpu_us(self):
        with open(f"/proc/{self.daemon.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def compare(what, options, first, second):
    first.rate()
    second.rate()
    ratios, cpu_ratios, firsts, seconds = [], [], [], []
    for i in range(options.pairs):
        got = {}
        for side in (first, second) if i % 2 == 0 else (second, first):
            got[side] = side.rate()
        ratios.append(got[first][0] / got[second][0])
        cpu_ratios.append(got[first][2] / got[second][2])
        firsts.append(got[first])
        seconds.append(got[second])
    for side in (first, second):
        side.daemon.stop()

    def median(rows, column):
        return statistics.median(row[column] for row in rows)

    print(f"{what}: rate {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
          f"CPU time {statistics.median(cpu_ratios):.3f} ({min(cpu_ratios):.3f} to "
          f"{max(cpu_ratios):.3f}); {median(firsts, 0):.0f} / {median(seconds, 0):.0f} img/s, a read "
          f"{median(firsts, 1):.0f} / {median(seconds, 1):.0f} us, CPU {median(firsts, 2):.0f} / "
          f"{median(seconds, 2):.0f} us an image", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("photos")
    parser.add_argument("pairs", nargs="?", type=int, default=7)
    parser.add_argument("--base", metavar="BUILD")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    compare("5 ms a read / warm", options, Side(options, env=COLD), Side(options))
    if options.base:
        compare("warm / warm of the other build", options, Side(options),
                Side(options, build=options.base))


if __name__ == "__main__":
    main()
