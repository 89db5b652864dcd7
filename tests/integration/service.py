#!/usr/bin/python3
"""The daemon as a service: readiness, watchdog, activation, its socket, its start and its refusals.

service.py PINSERVED PINCTL [unittest arguments]
"""

import contextlib
import ctypes
import grp
import json
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from daemon import closed_to_others

PINSERVED = PINCTL = SLOWIO = None
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000
MIB = 1 << 20
NOBODY = 65534
SO_TIMESTAMP = 29  # Linux; Python has no name for it
# Sanitizers and other tests on the same two cores make everything slow.
PATIENCE = 30.0


@contextlib.contextmanager
def stuck(pid):
    """The loop's thread stands still; the others go on, unless no process may be traced here."""
    libc = ctypes.CDLL(None, use_errno=True)
    traced = libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0
    if traced:
        libc.ptrace(PTRACE_INTERRUPT, pid, None, None)
        os.waitpid(pid, WALL)
    else:
        os.kill(pid, signal.SIGSTOP)
    yield
    if traced:
        libc.ptrace(PTRACE_DETACH, pid, None, None)
    else:
        os.kill(pid, signal.SIGCONT)


class Notify:
    """A notify socket; each message with the time at which it was sent."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o666)

    def next(self, timeout):
        """(time, text), or None when nothing came in time."""
        self.socket.settimeout(timeout)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(4096, 256)
        except TimeoutError:
            return None
        seconds, micros = struct.unpack("@ll", ancillary[0][2][:16])
        return seconds + micros / 1e6, data.decode()

    def until(self, start):
        """Messages up to the one that begins with `start`."""
        messages = []
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            message = self.next(end - time.monotonic())
            if message:
                messages.append(message)
                if message[1].startswith(start):
                    return messages
        raise AssertionError(f"no {start} among {messages}")

    def for_seconds(self, seconds):
        messages = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            message = self.next(left)
            if message:
                messages.append(message)
        return messages


class Case(unittest.TestCase):
    def setUp(self):
        # Short, and open to other users: paths of sockets are limited, and some tests are somebody else.
        self.folder = tempfile.mkdtemp(prefix="ps.")
        os.chmod(self.folder, 0o755)
        self.path = os.path.join(self.folder, "s")
        self.notify = Notify(self.folder)
        self.children = []

    def tearDown(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            child.stderr.close()
        self.notify.socket.close()
        shutil.rmtree(self.folder)

    def spawn(self, command, env=None, **options):
        whole = {k: v for k, v in os.environ.items() if not k.startswith(("PINSERVE_", "LISTEN_"))}
        whole["NOTIFY_SOCKET"] = self.notify.path
        whole.update(env or {})
        log = open(os.path.join(self.folder, f"log{len(self.children)}"), "w+")
        child = subprocess.Popen(command, env=whole, stderr=log, stdout=log,
                                 stdin=subprocess.DEVNULL, **options)
        child.stderr = log
        self.children.append(child)
        return child

    def start(self, *arguments, path=None, env=None, **options):
        command = [PINSERVED, "--socket", path or self.path, "--set", "device.use=host"]
        return self.spawn(command + list(arguments), env, **options)

    def log_of(self, child):
        child.stderr.flush()
        with open(child.stderr.name) as log:
            return log.read()

    def ready(self, child):
        try:
            return self.notify.until("READY=1")
        except AssertionError:
            self.fail(f"not ready; exit status {child.poll()}:\n{self.log_of(child)}")

    def refused(self, child, *texts):
        """It ended by itself, not ready, and its log has all texts."""
        status = child.wait(PATIENCE)
        log = self.log_of(child)
        self.assertIn(status, (1, 2), log)
        for text in texts:
            self.assertIn(text, log)
        self.assertFalse([m for m in self.notify.for_seconds(0.1) if "READY=1" in m[1]])

    def stop(self, child):
        child.terminate()
        self.notify.until("STOPPING=1")
        self.assertEqual(child.wait(PATIENCE), 0, self.log_of(child))

    def pinctl(self, what="status", path=None):
        return subprocess.run([PINCTL, "--socket", path or self.path, "--json", what],
                              capture_output=True, text=True, timeout=PATIENCE)

    def assert_serves(self, path=None):
        result = self.pinctl(path=path)
        self.assertEqual(result.returncode, 0, result.stderr)


class Readiness(Case):
    def test_ready_then_stopping(self):
        child = self.start()
        self.ready(child)
        self.assert_serves()
        self.stop(child)
        self.assertFalse(os.path.exists(self.path))

    def test_sigint_stops_too(self):
        child = self.start()
        self.ready(child)
        child.send_signal(signal.SIGINT)
        self.notify.until("STOPPING=1")
        self.assertEqual(child.wait(PATIENCE), 0)

    def test_slow_start_asks_for_time_and_does_not_starve_the_watchdog(self):
        """5 s of pinning: each request for time comes before what the one before it asked for is over."""
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        began = time.time()
        child = self.start("--set", "pool.region=32MiB", "--set", "pool.min=160MiB",
                           "--set", "pool.max=512MiB",
                           env={"WATCHDOG_USEC": "1000000", "ASAN_OPTIONS": sanitizer,
                                "LD_PRELOAD": SLOWIO, "SLOWIO_LOCK_MS": "1000"})
        messages = self.ready(child)
        ready = messages[-1][0]
        self.assertGreaterEqual(ready - began, 5)
        until = began + 4
        for at, text in messages:
            self.assertLess(at, until, messages)
            if text.startswith("EXTEND_TIMEOUT_USEC="):
                until = at + int(text.split("=")[1]) / 1e6
        asked = [at for at, text in messages if text.startswith("EXTEND_TIMEOUT_USEC=")]
        self.assertLess(max(b - a for a, b in zip(asked, asked[1:] + [ready])), 5, messages)
        with open(f"/proc/{child.pid}/status") as status:
            shared = [int(line.split()[1]) for line in status if line.startswith("RssShmem:")]
        self.assertGreaterEqual(shared[0] * 1024, 160 * MIB)
        self.assert_pings(ready, 2.5)
        self.stop(child)

    def assert_pings(self, since, seconds):
        times = [since] + [t for t, text in self.notify.for_seconds(seconds) if "WATCHDOG=1" in text]
        self.assertGreaterEqual(len(times), int(2 * seconds))
        gaps = [b - a for a, b in zip(times, times[1:])]
        self.assertLessEqual(max(gaps), 0.5, gaps)

    def test_pings_at_least_every_half_interval_until_the_loop_is_stuck(self):
        child = self.start(env={"WATCHDOG_USEC": "1000000"})
        self.assert_pings(self.ready(child)[-1][0], 3)
        with stuck(child.pid):
            self.notify.for_seconds(0.2)
            self.assertEqual(self.notify.for_seconds(1.2), [])
        self.notify.until("WATCHDOG=1")
        self.stop(child)

    def test_no_pings_without_a_watchdog(self):
        child = self.start()
        self.ready(child)
        self.assertEqual(self.notify.for_seconds(1), [])
        self.stop(child)


@unittest.skipUnless(shutil.which("systemd-socket-activate"), "no systemd-socket-activate")
class Activation(Case):
    def activate(self, *options):
        variables = [f"NOTIFY_SOCKET={self.notify.path}"]
        variables += [f"{k}={v}" for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")]
        command = ["systemd-socket-activate", *options, "-l", self.path]
        for variable in variables:
            command += ["-E", variable]
        child = self.spawn(command + [PINSERVED, "--set", "device.use=host"])
        end = time.monotonic() + PATIENCE
        while not os.path.exists(self.path) and time.monotonic() < end:
            time.sleep(0.02)
        return child

    def test_the_socket_is_used_and_stays(self):
        child = self.activate("--seqpacket")
        before = os.stat(self.path)
        self.assert_serves()
        self.ready(child)
        self.assert_serves()
        self.stop(child)
        after = os.stat(self.path)
        self.assertEqual((before.st_ino, before.st_mode), (after.st_ino, after.st_mode))

    def test_a_stream_socket_is_refused_in_words(self):
        child = self.activate()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(self.path)
            self.refused(child, "SOCK_SEQPACKET", "ListenSequentialPacket=")


class Socket(Case):
    def test_stale_socket_after_kill(self):
        for _ in range(3):
            child = self.start()
            self.ready(child)
            self.assert_serves()
            child.kill()
            child.wait()
            self.assertTrue(stat.S_ISSOCK(os.stat(self.path).st_mode))
        child = self.start()
        self.ready(child)
        self.stop(child)

    def test_a_second_daemon_is_refused(self):
        first = self.start()
        self.ready(first)
        self.refused(self.start(), self.path)
        self.assert_serves()
        self.stop(first)

    def test_a_regular_file_is_kept(self):
        with open(self.path, "w") as file:
            file.write("precious")
        self.refused(self.start(), self.path)
        with open(self.path) as file:
            self.assertEqual(file.read(), "precious")

    def test_mode_whatever_the_umask(self):
        for mask in (0o077, 0o000):
            child = self.start(umask=mask)
            self.ready(child)
            self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o660)
            self.stop(child)

    def test_longest_path(self):
        path = os.path.join(self.folder, "x" * (107 - len(self.folder) - 1))
        self.assertEqual(len(path), 107)
        child = self.start(path=path)
        self.ready(child)
        self.assert_serves(path)
        self.stop(child)
        self.refused(self.start(path=path + "x"), "107", path + "x")

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_an_outsider_is_told_path_and_group(self):
        child = self.start()
        self.ready(child)
        program = os.path.join(self.folder, "pinctl")
        shutil.copy(PINCTL, program)
        os.chmod(program, 0o755)
        result = subprocess.run([program, "--socket", self.path, "status"], capture_output=True,
                                text=True, user=NOBODY, group=NOBODY, extra_groups=[])
        self.assertIn(result.returncode, (1, 3), result.stderr)
        self.assertIn(self.path, result.stderr)
        self.assertIn(grp.getgrgid(os.stat(self.path).st_gid).gr_name, result.stderr)
        self.stop(child)


class Memory(Case):
    def test_too_little_memory(self):
        def first_to_die():
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")

        begin = time.monotonic()
        child = self.start("--set", "pool.min=100%", "--set", "pool.max=100%",
                           preexec_fn=first_to_die)
        self.refused(child, "pool.min")
        # Both figures, and not by having touched the memory first.
        self.assertRegex(self.log_of(child), r"\d (B|KiB|MiB|GiB|TiB)\b.*\d (B|KiB|MiB|GiB|TiB)\b")
        self.assertLess(time.monotonic() - begin, 10)
        self.assertFalse(os.path.exists(self.path))

    def limited(self, *arguments):
        """As an ordinary user who may lock 64 KiB."""
        options = {}
        if os.geteuid() == 0:
            if closed_to_others(PINSERVED):
                self.skipTest(closed_to_others(PINSERVED))
            os.chown(self.folder, NOBODY, NOBODY)
            options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        return self.start("--set", "pool.region=2MiB", "--set", "pool.min=2MiB", *arguments,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK,
                                                                (65536, 65536)), **options)

    def test_locking_that_is_required_and_not_allowed(self):
        self.refused(self.limited("--set", "pool.lock=require"), "64 KiB", "2 MiB", "LimitMEMLOCK=")

    def test_locking_that_is_tried_and_not_allowed(self):
        child = self.limited("--set", "pool.min=6MiB")
        self.ready(child)
        log = self.log_of(child)
        self.assertEqual(log.count("LimitMEMLOCK="), 1, log)
        self.stop(child)


@contextlib.contextmanager
def memory_cgroup(limit):
    """A cgroup with this limit; None where none can be made."""
    for base, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                       ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(base, f"pinserve-test-{os.getpid()}-{limit}")
        if not os.path.exists(os.path.join(base, "cgroup.procs")):
            continue
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, name), "w") as file:
                file.write(str(limit))
        except OSError:
            os.rmdir(path)
            continue
        try:
            yield path
        finally:
            end = time.monotonic() + 2
            while os.path.exists(path) and time.monotonic() < end:
                try:
                    os.rmdir(path)
                except OSError:  # its last process is on its way out
                    time.sleep(0.02)
        return
    yield None


class Cgroup(Case):
    @contextlib.contextmanager
    def limited(self, limit):
        """The path of a cgroup, and how a process enters it."""
        with memory_cgroup(limit) as path:
            if not path:
                self.skipTest("no cgroup with a limit of memory can be made here")

            def enter():
                with open(os.path.join(path, "cgroup.procs"), "w") as file:
                    file.write("0")

            yield path, enter

    def bench(self, sample_bytes, depth):
        end = time.monotonic() + PATIENCE
        while json.loads(self.pinctl("jobs").stdout)["jobs"] and time.monotonic() < end:
            time.sleep(0.02)
        return subprocess.run(
            [PINCTL, "--socket", self.path, "bench", "--source", f"synthetic:{sample_bytes}:u8:4",
             "--batch", "1", "--depth", str(depth), "--batches", "1", "--device", "host"],
            capture_output=True, text=True, timeout=PATIENCE)

    def test_idle_memory_is_given_up_for_a_job(self):
        """Two jobs of which each has room, but not beside what the other left in the pool: 100 MiB are
        in use by somebody else."""
        with self.limited(256 * MIB) as (path, enter):
            other = self.spawn([sys.executable, "-c", "import time; a = b'1' * (100 << 20); "
                                "print('there', flush=True); time.sleep(60)"], preexec_fn=enter)
            while "there" not in self.log_of(other):
                time.sleep(0.02)
            child = self.start("--set", "pool.max=100%", "--set", "pool.region=2MiB",
                               preexec_fn=enter)
            self.ready(child)
            for sample_bytes, depth in ((16 * MIB, 4), (90 * MIB, 1), (16 * MIB, 4)):
                result = self.bench(sample_bytes, depth)
                self.assertEqual(result.returncode, 0, result.stderr)
            refused = self.bench(254 * MIB, 1)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            self.assertRegex(refused.stderr, r"too little memory: a region needs \d+ bytes .* are "
                                             rf"left of what {path}")
            self.assertEqual(self.bench(16 * MIB, 4).returncode, 0, "others go on")
            self.stop(child)
            other.kill()
            other.wait()

    def test_the_limit_of_a_cgroup(self):
        """1 GiB: 50% is half of it, 2 GiB are refused, and so is what is not left of it."""
        with self.limited(1 << 30) as (path, enter):
            child = self.start("--set", "pool.max=50%", preexec_fn=enter)
            self.ready(child)
            self.assertEqual(json.loads(self.pinctl().stdout)["pinned_max"], 536870912)
            self.stop(child)
            self.refused(self.start("--set", "pool.max=2GiB", preexec_fn=enter),
                         "pool.max = 2 GiB is more than the limit of memory, 1 GiB", "cgroup")
            self.refused(self.start("--set", "pool.max=1GiB", "--set", "pool.min=1GiB",
                                    preexec_fn=enter),
                         "pool.min = 1 GiB is more than what is free: ", path)


class Settings(Case):
    def run_it(self, *arguments):
        return subprocess.run([PINSERVED, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE)

    def file(self, text):
        path = os.path.join(self.folder, "test.conf")
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_misspelt_settings(self):
        path = self.file("# mine\n[pool]\npool_sise = 1 GiB\n")
        self.refused(self.start("--config", path), f"{path}:3: unknown key pool.pool_sise",
                     "the nearest is pool.min")
        self.refused(self.start("--set", "pool_sise=1"), "--set pool_sise=1", "pool.min")
        self.refused(self.start("--config", "/nowhere/x.conf"), "/nowhere/x.conf",
                     "No such file or directory")

    def test_check_config_prints_what_reads_back(self):
        path = self.file("[workers]\nper_numa_node = 3\n[pool]\nmax = 1 GiB\n")
        first = self.run_it("--config", path, "--set", "io.stuck=7s", "--check-config")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("per_numa_node = 3\n", first.stdout)
        self.assertIn("max = 1 GiB\n", first.stdout)
        self.assertIn("stuck = 7s\n", first.stdout)
        second = self.run_it("--config", self.file(first.stdout), "--check-config")
        self.assertEqual(second.stdout, first.stdout)
        wrong = self.run_it("--config", path, "--set", "pool.min=2 GiB", "--check-config")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("pool.min = 2 GiB is more than pool.max = 1 GiB", wrong.stderr)

    def test_wrong_arguments(self):
        for arguments in (["--nonsense"], ["--set"], ["surplus"]):
            result = self.run_it(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(arguments[0], result.stderr)

    def test_version(self):
        result = self.run_it("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^pinserved \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    PINSERVED, PINCTL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    SLOWIO = os.path.join(os.path.dirname(PINSERVED), "../tests/integration/slowio.so")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
