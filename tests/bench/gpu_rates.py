#!/usr/bin/env python3
"""What a GPU machine reaches, each figure against its baseline in the same run. Prints one table.

    PINSERVE_BIN=DIR PINSERVE_GPU=1 gpu_rates.py PHOTOS [SECTION...]

DIR has all programs (pinserved, pinserved-device, pinctl, bench_decode, bench_link); PHOTOS has class
folders of JPEG files of about 110 KB. Sections: records tokens wait first train images workers; all
of them by default. The comparisons need PyTorch and torchvision.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from daemon import PINCTL, Daemon, program  # noqa: E402

SECONDS = float(os.environ.get("SECONDS_EACH", "5"))
CORES = os.cpu_count()
rows = []


def row(what, got, unit, baseline=None, wanted=None, at_most=None, of=""):
    """One line: a figure, the share of its baseline, and what was wanted of it."""
    share = got / baseline if baseline else None
    judged = share if baseline else got
    verdict = ""
    if wanted is not None:
        verdict = f">= {wanted:g} {'ok' if judged >= wanted else 'MISSED'}"
    if at_most is not None:
        verdict = f"<= {at_most:g} {'ok' if judged <= at_most else 'MISSED'}"
    against = f"{share:8.3f} x {baseline:.1f} {of}" if baseline else ""
    rows.append(f"| {what} | {got:.2f} {unit} | {against.strip()} | {verdict} |")
    print(rows[-1], flush=True)


def run_json(*command, **options):
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if out.returncode != 0:
        raise RuntimeError(f"{command}: {out.returncode}\n{out.stdout}\n{out.stderr}")
    return json.loads(out.stdout.strip().splitlines()[-1])


def torch(case, **options):
    arguments = [value for key, text in options.items() for value in (f"--{key}", str(text))]
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    if os.environ.get("TORCH_LIBRARY_PATH"):
        env["LD_LIBRARY_PATH"] = os.environ["TORCH_LIBRARY_PATH"]
    return run_json(sys.executable, os.path.join(HERE, "torch_loaders.py"), case, "--seconds",
                    str(SECONDS), *arguments, env=env)["value"]


def cpu_seconds(daemon):
    """Of the daemon and its device processes."""
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if int(pid) == daemon.process.pid or int(fields[1]) == daemon.process.pid:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Data:
    """Files that the sections share, made when first asked for."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="pinserve-rates-")

    def records(self):
        path = os.path.join(self.folder, "records.npy")
        if not os.path.exists(path):
            rng = numpy.random.default_rng(0)
            numpy.save(path, rng.integers(0, 256, (8192, 3, 224, 224), dtype=numpy.uint8))
        return path

    def tokens(self):
        path = os.path.join(self.folder, "tokens.bin")
        if not os.path.exists(path):
            rng = numpy.random.default_rng(0)
            rng.integers(0, 50257, 100_000_000, dtype=numpy.uint16).tofile(path)
        return path


def daemon(*settings):
    return Daemon(*settings, driver=True, check_exit=False)


def section_records(data, _photos):
    path = data.records()
    link = [run_json(program("tests", "bench", "bench_link"), "--seconds", "3")["gb_per_s"]
            for _ in range(3)]
    link = statistics.median(link)
    spec = ["--source", f"records:{path}", "--batch", "256", "--device", "cuda:0"]
    with daemon() as serving:
        for delivery in ("fd", "ipc", "copy"):
            serving.bench(*spec, "--deliver", delivery, "--seconds", "2")  # the page cache is warm
            before, began = cpu_seconds(serving), time.monotonic()
            got = serving.bench(*spec, "--deliver", delivery, "--seconds", str(SECONDS))
            cores = (cpu_seconds(serving) - before) / (time.monotonic() - began)
            must = delivery != "copy"
            row(f"records, {delivery}", got["gb_per_s"], "GB/s", link, 0.93 if must else None,
                of="GB/s pinned loop")
            row(f"records, {delivery}: daemon", cores, "cores", at_most=0.5 if must else None)
    row("records, DataLoader", torch("records", records=path) * 150528 / 1e9, "GB/s", link)


def section_tokens(data, _photos):
    path = data.tokens()
    baseline = torch("tokens", tokens=path)
    with daemon(f"workers.per_numa_node={CORES}") as serving:
        for delivery in ("fd", "ipc", "copy"):
            got = serving.bench("--source", f"tokens:{path},stride=random,out=i64", "--seq", "1024",
                                "--batch", "64", "--depth", "16", "--device", "cuda:0", "--deliver",
                                delivery, "--seconds", str(SECONDS))
            row(f"tokens, {delivery}", got["samples_per_s"], "windows/s", baseline, 5,
                of="DataLoader")


def section_wait(_data, _photos):
    with daemon() as serving:
        for delivery in ("fd", "ipc", "copy", "host"):
            got = serving.bench("--source", "synthetic:3x224x224:u8", "--batch", "16", "--step-ms",
                                "5", "--deliver", delivery, "--device", "cuda:0", "--seconds",
                                str(SECONDS))["wait_us"]
            row(f"wait, {delivery}, p50", got["p50"], "us", at_most=15)
            row(f"wait, {delivery}, p99", got["p99"], "us", at_most=100)


def section_first(_data, photos):
    spec = ["--source", f"folder:{photos}", "--image", "random-crop:224", "--flip", "0.5",
            "--batch", "256", "--last", "pad", "--device", "cuda:0", "--batches"]
    cold, warm = [], []
    for _ in range(3):
        with daemon(f"workers.per_numa_node={CORES}") as serving:
            cold.append(serving.bench(*spec, "1")["first_batch_ms"])
            serving.bench(*spec, "8")
            warm += [serving.bench(*spec, "1")["first_batch_ms"] for _ in range(3)]
    row("first batch, nothing up", statistics.median(cold), "ms", at_most=1000)
    row("first batch, warm", statistics.median(warm), "ms", at_most=60)


def section_train(data, _photos):
    path = data.records()
    with daemon() as serving:
        for case, wanted in (("train", 0.99), ("matmul", None)):
            alone, beside = [torch(case)], []
            for _ in range(2):
                feed = subprocess.Popen([PINCTL, "--socket", serving.socket, "--json", "bench",
                                         "--source", f"records:{path}", "--batch", "256",
                                         "--device", "cuda:0", "--seconds", "300"],
                                        stdout=subprocess.PIPE)
                time.sleep(2)
                beside.append(torch(case))
                feed.terminate()
                feed.communicate()
                alone.append(torch(case))
            row(f"{case} beside a full-rate feed", statistics.median(beside), "steps/s",
                statistics.median(alone), wanted, of="alone")


def images(serving, photos, seconds=SECONDS):
    return serving.bench("--source", f"folder:{photos}", "--image", "random-crop:224", "--flip",
                         "0.5", "--batch", "256", "--last", "pad", "--device", "cuda:0",
                         "--seconds", str(seconds))


def bare(photos, threads):
    return run_json(program("tests", "bench", "bench_decode"), "--threads", str(threads),
                    "--seconds", str(SECONDS), "--json", photos)["images_per_s"]


def section_images(_data, photos):
    with daemon(f"workers.per_numa_node={CORES}") as serving:
        images(serving, photos, 2)
        pairs = [(images(serving, photos)["samples_per_s"], bare(photos, CORES))
                 for _ in range(3)]
        got = statistics.median(whole for whole, _ in pairs)
        row("images", got, "img/s", statistics.median(loop for _, loop in pairs), 0.9,
            of="bench_decode")
        row("images", got, "img/s", torch("images-pil", photos=photos), 3, of="DataLoader, Pillow")
        row("images", got, "img/s", torch("images-u8", photos=photos), 2,
            of="DataLoader, torchvision")


def section_workers(_data, photos):
    one = None
    for n in (1, 2, 4, 8, 16):
        if n > CORES:
            break
        with daemon(f"workers.per_numa_node={n}") as serving:
            got = images(serving, photos)["samples_per_s"]
        one = one or got
        row(f"images, {n} workers", got, "img/s", one * n, 0.9, of="linear")
        row(f"images, {n} workers", got, "img/s", bare(photos, n), 0.9,
            of=f"bench_decode, {n} threads")


def main():
    photos = os.path.abspath(sys.argv[1])
    sections = {name[8:]: function for name, function in globals().items()
                if name.startswith("section_")}
    data = Data()
    failed = False
    for name in sys.argv[2:] or sections:
        try:
            sections[name](data, photos)
        except Exception as error:  # a section that fails must not hide the others
            failed = True
            print(f"section {name}: {type(error).__name__}: {error}", flush=True)
    print("\n| what | figure | against | wanted |\n| --- | --- | --- | --- |")
    print("\n".join(rows))
    subprocess.run(["rm", "-rf", data.folder], check=False)
    sys.exit(failed)


if __name__ == "__main__":
    main()
