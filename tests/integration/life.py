"""Processes come and go: what a dead client held is free again, what a dead daemon left is in
nobody's way, and who waits is told at once."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import images
from daemon import (PINCTL, PINSERVED, SANITIZED, Daemon, environment, expect, expect_equal, folder,
                    have_driver, no_other_users, run, wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = ["--source", "synthetic:4096:u8", "--batch", "4"]


def reads(process, event, n=1):
    """Reads until n such events came."""
    while n > 0:
        text = process.stdout.readline()
        expect(text, f"the client ended before {event}")
        n -= json.loads(text)["event"] == event


def used(daemon):
    return sum(pool["used_bytes"] for pool in daemon.ask("pools")["pools"])


def shm():
    return sorted(os.listdir("/dev/shm"))


def test_kill_of_a_client_frees_what_it_held():
    devices = ["host"] + (["cuda:0"] if have_driver() else [])
    for device in devices:
        with Daemon("device.idle=1s", driver=have_driver()) as daemon:
            other = daemon.consume(*SPEC, "--device", device, "--step-ms", "5")
            reads(other, "batch")
            victim = daemon.consume(*SPEC, "--device", device, "--hold", "2", "--batches", "2",
                                    "--wait")
            reads(victim, "batch", 2)
            wait_for(lambda d=daemon: any(job["leased"] >= 2 for job in d.jobs()), "two leases")
            victim.kill()
            began = time.monotonic()
            wait_for(lambda d=daemon: len(d.jobs()) == 1, f"{device}: its job ends", 5)
            took = time.monotonic() - began
            expect(took < 1 + 2 * bool(os.environ.get("PINSERVE_SANITIZED")), f"{took:.2f} s")
            reads(other, "batch", 20)
            other.kill()
            wait_for(lambda d=daemon: not d.jobs(), "no job")
            expect_equal(used(daemon), 0, "bytes in slots")
            if device != "host":
                gone = wait_for(lambda d=daemon: all(
                    not row["process"] and row["ring_bytes"] == 0
                    for row in d.ask("devices")["devices"]), "the device's process ends")
                expect(gone, "idle")


def test_pools_shrink():
    with Daemon("pool.idle=300ms") as daemon:
        daemon.bench(*SPEC, "--device", "host", "--batches", "10")
        wait_for(lambda: all(pool["bytes"] == 0 for pool in daemon.ask("pools")["pools"]),
                 "the pools are empty again")


def test_what_is_shown_is_what_is_pinned():
    """A byte more than 10 MiB: regions are charged, shown and locked in full."""
    with Daemon("pool.region=4MiB") as daemon:
        client = daemon.consume("--source", "synthetic:10485761:u8", "--batch", "1", "--depth", "2",
                                "--batches", "1", "--hold", "1", "--wait")
        reads(client, "batch")
        pool = daemon.ask("pools")["pools"][0]
        expect_equal((pool["regions"], pool["bytes"]), (2, 2 * 12 << 20), "regions")
        expect_equal(daemon.ask("status")["pinned_bytes"], pool["bytes"], "pinned, of all pools")
        with open(f"/proc/{daemon.process.pid}/status") as file:
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file
                     if line.startswith(("VmLck:", "RssShmem:"))}
        expect_equal(pool["locked_bytes"], sizes["VmLck"], "locked, as the kernel says")
        expect(sizes["RssShmem"] >= pool["bytes"], f"touched, as the kernel says: {sizes}")
        expect(pool["locked_bytes"] in (0, pool["bytes"]), f"all or nothing: {pool}")
        client.communicate()


def switches(daemon):
    """How often its threads have gone to sleep: an upper bound of its wake-ups."""
    total = 0
    for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
        with open(f"/proc/{daemon.process.pid}/task/{task}/status") as file:
            total += sum(int(line.split()[1]) for line in file if "voluntary_ctxt" in line)
    return total


def test_an_idle_daemon_sleeps():
    """No work, no wake-up: before the first job, after the last, and with a pool that is kept."""
    if "thread" in os.environ.get("PINSERVE_SANITIZED", ""):
        return  # ThreadSanitizer has a thread of its own that wakes up ten times a second
    for settings in (["pool.idle=100ms"], ["pool.idle=100ms", "pool.min=64MiB"]):
        with Daemon(*settings) as daemon:
            time.sleep(0.5)
            for when in ("before", "after"):
                before = switches(daemon)
                time.sleep(2)
                expect(switches(daemon) - before <= 1, f"{settings}, {when}: "
                       f"{switches(daemon) - before} wake-ups in 2 s")
                daemon.bench(*SPEC, "--device", "host", "--batches", "10")
                wait_for(lambda d=daemon: sum(p["bytes"] + p["lingering_bytes"] for p in
                                              d.ask("pools")["pools"]) == 0, "empty pools")
                time.sleep(0.5)


def test_a_closed_job_keeps_its_leases_readable():
    with Daemon("pool.idle=100ms") as daemon:
        events = daemon.batches(*SPEC, "--batches", "3", "--hold", "3", "--close-first")
        got = [event for event in events if event["event"] == "batch"]
        expect_equal(len(got), 6, "batches before and after")
        expect_equal([b["index"] for b in got[:3]], [b["index"] for b in got[3:]], "the same")
        wait_for(lambda: not daemon.jobs(), "the job ends with its last lease")
        wait_for(lambda: all(pool["bytes"] == 0 and pool["lingering_bytes"] == 0
                             for pool in daemon.ask("pools")["pools"]), "and its memory")


def test_all_leased_is_an_error_and_no_hang():
    with Daemon() as daemon:
        events = daemon.batches(*SPEC, "--depth", "2", "--hold", "3", "--batches", "3")
        expect_equal(events[-1]["event"], "error", f"{events}")
        expect_equal(events[-1]["code"], -16, "EBUSY")


def test_the_daemon_is_killed_while_clients_wait():
    with Daemon(check_exit=False) as daemon:
        waiting = daemon.consume(*SPEC, "--depth", "1", "--hold", "1", "--batches", "1", "--wait")
        fed = daemon.consume(*SPEC, "--step-ms", "1")
        reads(waiting, "batch")
        reads(fed, "batch", 3)
        # Nothing more comes: it is within next when the end comes.
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        expect(fed.poll() is None, "it waits")
        daemon.process.kill()
        began = time.monotonic()
        output, _ = fed.communicate(timeout=10)
        expect(time.monotonic() - began < 2, "told at once")
        last = json.loads(output.splitlines()[-1])
        expect_equal((last["event"], last["code"]), ("error", -32), f"EPIPE: {last}")
        waiting.communicate(timeout=10)
        daemon.process.wait()


def test_the_daemon_is_stopped_while_a_client_waits():
    with Daemon() as daemon:
        client = daemon.consume(*SPEC, "--timeout", "200", "--step-ms", "1")
        reads(client, "batch", 3)
        daemon.process.send_signal(signal.SIGSTOP)
        output, _ = client.communicate(timeout=10)
        daemon.process.send_signal(signal.SIGCONT)
        last = json.loads(output.splitlines()[-1])
        expect_equal((last["event"], last["code"]), ("error", -110), f"ETIMEDOUT: {last}")


def test_a_client_that_exits_with_batches_pending():
    with Daemon() as daemon:
        for end in ([], ["--close-first", "--hold", "1"]):
            client = daemon.consume(*SPEC, "--depth", "16", "--batches", "1", *end)
            reads(client, "batch")
            began = time.monotonic()
            client.communicate(timeout=10)
            expect_equal(client.returncode, 0, "its exit status")
            expect(time.monotonic() - began < 2, f"{time.monotonic() - began:.2f} s")
            wait_for(lambda: not daemon.jobs(), "no job")


def test_an_orderly_end_tells_the_clients():
    with Daemon() as daemon:
        client = daemon.consume(*SPEC, "--step-ms", "1")
        reads(client, "batch", 3)
        daemon.stop()
        output, _ = client.communicate(timeout=10)
        last = json.loads(output.splitlines()[-1])
        expect_equal((last["event"], last["code"]), ("error", -32), f"EPIPE: {last}")


def test_fork():
    with Daemon() as daemon:
        events = daemon.batches(*SPEC, "--fork", "--hold", "1", "--batches", "6")
        child = [event for event in events if event["event"] == "error"]
        expect_equal(len(child), 1, f"the child is refused: {events}")
        expect("forked" in child[0]["text"], child[0]["text"])
        expect_equal(len([e for e in events if e["event"] == "batch"]), 6, "the parent goes on")


# A client whose connection a child of it keeps open.
PARENT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import rawpeer
peer = rawpeer.RawPeer(sys.argv[2])
peer.send(rawpeer.synthetic_job())
peer.expect(rawpeer.BATCH_READY)
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def process_numbered(number):
    """A process with this pid, or None where the next pid cannot be chosen."""
    for _ in range(20):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w") as file:
                file.write(str(number - 1))
        except OSError:
            return None
        process = subprocess.Popen(["sleep", "60"])
        if process.pid == number:
            return process
        process.kill()
        process.wait()
    return None


def test_a_client_is_a_process_and_no_number():
    """Its leases end with it, whoever keeps its connection open, and whoever gets its pid."""
    with Daemon() as daemon:
        for again in (False, True):
            parent = subprocess.Popen([sys.executable, "-B", "-c", PARENT, HERE, daemon.socket],
                                      stdout=subprocess.PIPE, text=True)
            child = int(parent.stdout.readline())
            expect_equal([job["pid"] for job in daemon.jobs()], [parent.pid], "pid of the job")
            if again:
                daemon.process.send_signal(signal.SIGSTOP)
            parent.kill()
            parent.wait()
            parent.stdout.close()
            other = process_numbered(parent.pid) if again else None
            if again and not other:
                print("     skipped: the next pid cannot be chosen here")
            daemon.process.send_signal(signal.SIGCONT)
            began = time.monotonic()
            wait_for(lambda: not daemon.jobs(), "its job ends", 5)
            took = time.monotonic() - began
            expect(took < 1 + 2 * SANITIZED, f"{took:.2f} s")
            expect_equal(used(daemon), 0, "bytes in slots")
            if other:
                expect(other.poll() is None, "the other process is there")
                other.kill()
                other.wait()
            os.kill(child, signal.SIGKILL)


def test_ten_kills_of_the_daemon():
    before = shm()
    with folder() as path:
        for _ in range(10):
            daemon = Daemon(folder=path, check_exit=False).start()
            client = daemon.consume(*SPEC)
            reads(client, "batch")
            daemon.process.kill()
            daemon.process.wait()
            client.communicate(timeout=10)
        with Daemon(folder=path) as daemon:
            expect_equal(daemon.jobs(), [], "it starts afresh")
    expect_equal(shm(), before, "/dev/shm")


def test_clients_come_and_go():
    """Twenty passes over 100 files: memory, slots and fds after pass 20 are those of pass 2."""
    with folder() as path, Daemon("pool.idle=10s") as daemon:
        images.make_folder(path, classes=5, each=20)

        def once():
            events = daemon.batches("--source", f"folder:{path}", "--image", "random-crop:16",
                                    "--batch", "4", "--epochs", "1")
            expect_equal(len(events), 28, "a job, 25 batches, the epoch's end and a token")
            wait_for(lambda: not daemon.jobs(), "no job")
            status = daemon.ask("status")
            expect_equal(used(daemon), 0, "bytes in slots")
            return daemon.fds(), daemon.resident(), status["pinned_bytes"]

        seen = [once() for _ in range(20)]
        # A client's last fds go with its process, a moment after its job.
        wait_for(lambda: daemon.fds() <= seen[1][0], f"no fd more than after pass 2: {seen}")
        expect_equal(seen[19][2], seen[1][2], "pinned bytes")
        if not os.environ.get("PINSERVE_SANITIZED"):
            expect(seen[19][1] - seen[1][1] < 1 << 20, f"resident bytes: {seen}")


def test_epochs_of_one_job():
    """Twenty passes over 100 files by one job: slots and memory after pass 20 are those of pass 2."""
    with folder() as path, Daemon("workers.per_numa_node=2") as daemon:
        images.make_folder(path, classes=5, each=20)
        client = daemon.consume("--source", f"folder:{path}", "--image", "random-crop:16",
                                "--batch", "4", "--epochs", "20", "--pause", "50", "--hold", "1",
                                "--wait")
        seen = []
        for batches in (50, 450):
            reads(client, "batch", batches)
            # Decoded ahead, and then nothing moves.
            wait_for(lambda: daemon.jobs()[0]["ready"] >= 3, "the ring is full")
            seen.append((used(daemon), daemon.fds(), daemon.resident()))
            if batches == 50:
                client.stdin.write("\n")
                client.stdin.flush()
        wait_for(lambda: daemon.fds() <= seen[0][1], f"no fd more: {seen}")
        client.communicate()
        expect_equal(seen[1][0], seen[0][0], "bytes in slots")
        if not SANITIZED:
            expect(seen[1][2] - seen[0][2] < 1 << 20, f"resident bytes: {seen}")


def test_one_process_opens_and_closes_many_jobs():
    """Each job has a connection of its own, which must not outlive it; nor what it decodes."""
    with folder() as path, Daemon("limits.peers=8", "limits.jobs=3") as daemon:
        images.make_folder(path, classes=2, each=20)
        events = daemon.batches("--source", f"folder:{path}", "--image", "random-crop:64",
                                "--batch", "8", "--batches", "1", "--again", "30")
        expect_equal([e for e in events if e["event"] == "error"], [], "errors")
        expect_equal(len([e for e in events if e["event"] == "job"]), 31, "jobs")


def test_random_kills():
    """Clients killed at any moment, on every device: the daemon ends with nothing left over."""
    rng = random.Random(5)
    with Daemon("workers.per_numa_node=2", driver=have_driver()) as daemon:
        for _ in range(12):
            device = rng.choice(["host", "cuda:0"]) if have_driver() else "host"
            clients = [daemon.consume("--source", "synthetic:65536:u8", "--batch", "8", "--device",
                                      device, "--hold", "2") for _ in range(2)]
            time.sleep(rng.uniform(0.01, 0.3))
            for client in clients:
                client.kill()
                client.wait()
                client.stdout.close()
        wait_for(lambda: not daemon.jobs(), "no job")
        expect_equal(used(daemon), 0, "bytes in slots")


# -- pinserved run ---------------------------------------------------------------------------------

def private(*command, settings=(), **options):
    return subprocess.run([PINSERVED, "run", *[f"--set={s}" for s in settings], "--", *command],
                          env=environment(), capture_output=True, text=True, timeout=60, **options)


def test_run_passes_on_the_exit_status():
    for status in (0, 3, 77):
        got = private("sh", "-c", f"exit {status}", settings=["device.use=host"])
        expect_equal(got.returncode, status, got.stderr)
    expect_equal(private("sh", "-c", "kill -9 $$", settings=["device.use=host"]).returncode, 137,
                 "a command that is killed")
    missing = private("/no/such/command", settings=["device.use=host"])
    expect_equal(missing.returncode, 127, missing.stderr)
    expect("/no/such/command" in missing.stderr, missing.stderr)


def test_run_serves_its_command():
    before = shm()
    with folder() as path:
        env = {"TMPDIR": path, "XDG_RUNTIME_DIR": ""}
        got = subprocess.run([PINSERVED, "run", "--set", "device.use=host", "--", PINCTL, "--json",
                              "bench", "--source", "synthetic:64:u8", "--batch", "4", "--batches",
                              "5", "--device", "host"], env=environment(**env),
                             capture_output=True, text=True, timeout=60)
        expect_equal(got.returncode, 0, got.stderr)
        expect_equal(json.loads(got.stdout)["batches"], 5, "batches")
        expect_equal(os.listdir(path), [], "nothing is left in its folder")
    expect_equal(shm(), before, "/dev/shm")


def test_many_files_at_once():
    """More shards than the soft limit of open files; a command of `run` keeps that limit."""
    count = 40
    with folder() as path:
        for i in range(count):
            images.make_tar(f"{path}/{i:02}.tar", i * 2, 2)
        bench = ["bench", "--source", f"tar:{path}/{{00..{count - 1}}}.tar", "--image",
                 "random-crop:16", "--batch", "2", "--device", "host", "--epochs", "1"]
        with Daemon(prefix=["prlimit", "--nofile=48:4096"]) as daemon:
            expect_equal(daemon.bench(*bench[1:])["batches"], count, "batches")
        got = subprocess.run(["prlimit", "--nofile=48:4096", PINSERVED, "run", "--set",
                              "device.use=host", "--", "sh", "-c", 'ulimit -n; exec "$@"', "sh",
                              "prlimit", "--nofile=4096", PINCTL, "--json", *bench],
                             env=environment(), capture_output=True, text=True, timeout=60)
        expect_equal(got.returncode, 0, got.stderr)
        expect_equal(got.stdout.splitlines()[0], "48", "the command's limit")


def test_run_passes_signals_on():
    script = 'trap "echo got; exit 5" TERM; echo up; while :; do sleep 0.05; done'
    process = subprocess.Popen([PINSERVED, "run", "--set", "device.use=host", "--", "sh", "-c",
                                script], env=environment(), stdout=subprocess.PIPE, text=True)
    expect_equal(process.stdout.readline(), "up\n", "the command runs")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    expect_equal((output, process.returncode), ("got\n", 5), "the command was told")


def test_run_with_a_low_limit_on_locking():
    """An ordinary user with RLIMIT_MEMLOCK of 64 KiB: memory unlocked, one warning."""
    if not shutil.which("prlimit") or (os.geteuid() == 0 and no_other_users()):
        return
    command = ["prlimit", "--memlock=65536:65536", PINSERVED, "run", "--set", "device.use=host",
               "--", PINCTL, "bench", "--source", "synthetic:64:u8", "--batch", "4", "--batches",
               "5", "--jobs", "2", "--device", "host"]

    def demote():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    got = subprocess.run(command, env=environment(TMPDIR="/tmp", XDG_RUNTIME_DIR="", HOME="/"),
                         capture_output=True, text=True, timeout=60, preexec_fn=demote, cwd="/")
    expect_equal(got.returncode, 0, got.stderr)
    expect_equal(got.stderr.count("LimitMEMLOCK"), 1, f"one warning: {got.stderr}")


run([test_kill_of_a_client_frees_what_it_held, test_pools_shrink,
     test_what_is_shown_is_what_is_pinned, test_an_idle_daemon_sleeps,
     test_a_closed_job_keeps_its_leases_readable, test_all_leased_is_an_error_and_no_hang,
     test_the_daemon_is_killed_while_clients_wait,
     test_the_daemon_is_stopped_while_a_client_waits,
     test_a_client_that_exits_with_batches_pending, test_an_orderly_end_tells_the_clients,
     test_fork, test_a_client_is_a_process_and_no_number, test_ten_kills_of_the_daemon,
     test_clients_come_and_go, test_epochs_of_one_job,
     test_one_process_opens_and_closes_many_jobs, test_random_kills,
     test_run_passes_on_the_exit_status, test_run_serves_its_command,
     test_many_files_at_once, test_run_passes_signals_on, test_run_with_a_low_limit_on_locking])
