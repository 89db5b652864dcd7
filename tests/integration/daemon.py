"""A daemon of its own for a test: started on a private socket, asked through pinctl, ended in order.

The build folder comes from $PINSERVE_BUILD, or one folder with all programs from $PINSERVE_BIN.
Nothing here knows CUDA: with driver=True the tests' stand-in for the driver is put where the dynamic
loader finds it; with $PINSERVE_GPU set the machine's own driver serves instead.
"""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("PINSERVE_BUILD", "")
BIN = os.environ.get("PINSERVE_BIN", "")
GPU = os.environ.get("PINSERVE_GPU", "") != ""


def program(*path):
    return os.path.join(BIN, path[-1]) if BIN else os.path.join(BUILD, *path)


PINSERVED = program("daemon", "pinserved")
PINCTL = program("client", "pinctl", "pinctl")
CONSUME = program("tests", "integration", "consume")
RING = program("tests", "integration", "ring")
DRIVER = os.path.join(BUILD, "tests", "driver")
SANITIZED = os.environ.get("PINSERVE_SANITIZED", "") != ""
# Everything waits this long at most before it counts as hung.
PATIENCE = 60 if SANITIZED else 20


class Failed(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failed(text)


def expect_equal(got, wanted, what):
    if got != wanted:
        raise Failed(f"{what}: {got!r}, not {wanted!r}")


def wait_for(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise Failed(f"{what}: not within {seconds} s")


def no_other_users():
    """Why programs of the build cannot be run by other users; None: they can."""
    if os.geteuid() != 0:
        return "not root: other users cannot be tried"
    return closed_to_others(PINSERVED)


def closed_to_others(path):
    """Why other users cannot come to a file; None: they can."""
    above = os.path.realpath(path)
    while above != "/":
        above = os.path.dirname(above)
        if not os.stat(above).st_mode & stat.S_IXOTH:
            return f"other users cannot enter {above}"
    return None


def have_driver():
    return GPU or os.path.exists(os.path.join(DRIVER, "libcuda.so.1"))


def environment(driver=False, **more):
    env = {k: v for k, v in os.environ.items() if k != "PINSERVE_SOCKET"}
    if driver and not GPU:
        env["LD_LIBRARY_PATH"] = DRIVER
    env.update(more)
    return env


class Daemon:
    def __init__(self, *settings, driver=False, env=None, folder=None, check_exit=True,
                 prefix=()):
        self.folder = folder or tempfile.mkdtemp(prefix="pinserve-test-")
        self.owns_folder = folder is None
        self.socket = os.path.join(self.folder, "s")
        self.log_path = os.path.join(self.folder, "log")
        self.settings = settings
        self.driver = driver
        self.env = environment(driver, **(env or {}))
        self.check_exit = check_exit
        self.prefix = prefix
        self.process = None

    def start(self):
        command = [*self.prefix, PINSERVED, "--socket", self.socket]
        if not self.driver:
            command += ["--set", "device.use=host"]
        for setting in self.settings:
            command += ["--set", setting]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=self.env, stderr=log, stdout=log)
        wait_for(self.is_up, "the daemon serves its socket")
        return self

    def is_up(self):
        if self.process.poll() is not None:
            raise Failed(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
        return self.pinctl("status", check=False).returncode == 0

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"the daemon did not end:\n{self.log()}") from None
        if self.check_exit and self.process.returncode != 0:
            raise Failed(f"the daemon ended with {self.process.returncode}:\n{self.log()}")

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, traceback):
        try:
            if kind is None:
                self.stop()
            else:
                self.process.kill()
                self.process.wait()
                sys.stderr.write(f"--- the daemon's log ---\n{self.log()}\n")
        finally:
            if self.owns_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    # -- asking -------------------------------------------------------------------------------

    def pinctl(self, *arguments, check=True, timeout=PATIENCE * 3, **options):
        result = subprocess.run(
            [PINCTL, "--socket", self.socket, *arguments],
            env=self.env, capture_output=True, text=True, timeout=timeout,
            **options)
        if check and result.returncode != 0:
            raise Failed(f"pinctl {' '.join(arguments)}: {result.returncode}\n{result.stderr}"
                         f"\n{self.log()}")
        return result

    def ask(self, what):
        return json.loads(self.pinctl("--json", what).stdout)

    def jobs(self):
        return self.ask("jobs")["jobs"]

    def bench(self, *arguments, **options):
        return json.loads(self.pinctl("--json", "bench", *arguments, **options).stdout)

    def consume(self, *arguments, **options):
        """A client of its own: tests/integration/consume.c. Its output is one JSON line an event."""
        return subprocess.Popen(
            [CONSUME, "--socket", self.socket, *arguments], env=options.pop("env", self.env),
            stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, bufsize=1, **options)

    def batches(self, *arguments):
        """Everything that a client got, as a list of events."""
        process = self.consume(*arguments)
        output, _ = process.communicate(timeout=PATIENCE * 3)
        return [json.loads(line) for line in output.splitlines()]

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="pinserve-data-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(tests):
    """Runs every test, tells which failed; the exit status is for ctest."""
    failed = 0
    wanted = sys.argv[1:]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        began = time.monotonic()
        try:
            test()
            print(f"ok   {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        except (Failed, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            failed += 1
            print(f"FAIL {test.__name__}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
