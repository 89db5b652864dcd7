"""Batches of a daemon through pinclient_transform, in host memory and, with PINSERVE_GPU set, on a
GPU. The driver's stand-in runs no kernels: there the error has the words."""

import json
import subprocess

from daemon import GPU, Daemon, expect, expect_equal, have_driver, program, run

PROGRAM = program("tests", "integration", "transform")


def transform(daemon, device, delivery="auto"):
    got = subprocess.run([PROGRAM, "--socket", daemon.socket, "--device", device, "--deliver",
                          delivery], env=daemon.env, capture_output=True, text=True, timeout=60)
    expect_equal(got.returncode, 0, got.stderr)
    return json.loads(got.stdout)


def test_host():
    with Daemon() as daemon:
        expect_equal(transform(daemon, "host"),
                     {"batches": 12, "wrong": 0, "code": 0, "text": ""}, "on the CPU")


def test_gpu():
    if not have_driver():
        return
    with Daemon(driver=True) as daemon:
        for delivery in ("fd", "ipc", "copy", "mapped"):
            answer = transform(daemon, "cuda:0", delivery)
            if GPU:
                expect_equal(answer, {"batches": 12, "wrong": 0, "code": 0, "text": ""}, delivery)
            else:
                expect_equal((answer["batches"], answer["code"]), (0, -95), f"{answer}")
                expect("no kernel for GPU-" in answer["text"] or "nvcc" in answer["text"],
                       answer["text"])
        expect_equal(transform(daemon, "cuda:0", "host"),
                     {"batches": 12, "wrong": 0, "code": 0, "text": ""}, "a GPU's host memory")


if __name__ == "__main__":
    run([test_host, test_gpu])
