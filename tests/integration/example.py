"""The example trainer of client/example, as it is installed: trains, validates, resumes."""

import os
import subprocess

import images
from daemon import PATIENCE, Daemon, expect, expect_equal, folder, have_driver, program, run, wait_for

TRAINER = program("client", "example-trainer")


def train(daemon, data, token, epochs):
    env = dict(daemon.env, PINSERVE_SOCKET=daemon.socket)
    result = subprocess.run(
        [TRAINER, f"folder:{data}/train", f"folder:{data}/val", token, str(epochs)],
        env=env, capture_output=True, text=True, timeout=PATIENCE * 3)
    expect_equal(result.returncode, 0, f"the trainer's exit status ({result.stderr.strip()})")
    return result.stdout.splitlines()


def train_twice(driver):
    with folder() as data:
        samples = images.make_folder(os.path.join(data, "train"), classes=3, each=23)
        held_back = images.make_folder(os.path.join(data, "val"), classes=3, each=4)
        line = f"trained on {samples} samples, validated on {held_back}"
        token = os.path.join(data, "token")
        with Daemon(driver=driver) as daemon:
            expect_equal(train(daemon, data, token, 2), [line] * 2, "what it printed")
            with open(token) as file:
                first = file.read().strip()
            expect(first.startswith("pinserve1:"), f"a token was saved: {first}")
            wait_for(lambda: not daemon.jobs(), "the end of its jobs")
        with Daemon(driver=driver) as daemon:
            expect_equal(train(daemon, data, token, 1), [line], "what it printed when resumed")
            with open(token) as file:
                expect(file.read().strip() != first, "the token moved on")
        # A token is for the data that it came from.
        os.remove(os.path.join(data, "train", "c0", "000.jpg"))
        with Daemon(driver=driver) as daemon:
            env = dict(daemon.env, PINSERVE_SOCKET=daemon.socket)
            result = subprocess.run(
                [TRAINER, f"folder:{data}/train", f"folder:{data}/val", token, "1"],
                env=env, capture_output=True, text=True, timeout=PATIENCE * 3)
            expect_equal(result.returncode, 1, "exit status with other data")
            expect("fingerprint" in result.stderr or "token" in result.stderr, result.stderr)


def test_host():
    train_twice(driver=False)


def test_gpu():
    if have_driver():
        train_twice(driver=True)


if __name__ == "__main__":
    run([test_host, test_gpu])
