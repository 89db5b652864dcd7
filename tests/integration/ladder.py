"""The ladder of deliveries: each cause for each rung is forced, with the driver's stand-in; pinctl
tells the rung and why; the bytes are the same on all of them."""

import fcntl
import json
import os
import random
import signal
import subprocess
import time

import numpy

from daemon import (GPU, PINCTL, Daemon, environment, expect, expect_equal, folder, have_driver,
                    no_other_users, run, wait_for)

SPEC = ["--source", "synthetic:3x16x16:u8:100", "--batch", "8", "--last", "partial"]
SUM = [*SPEC, "--epochs", "2", "--checksum"]


def reference(daemon):
    return daemon.bench(*SUM, "--device", "host")["checksum"]


def gpu(daemon):
    return [row for row in daemon.ask("devices")["devices"] if row["uuid"] != "host"][0]


class Client:
    """Another environment for the clients of a daemon."""

    def __init__(self, daemon, env):
        self.daemon, self.env, self.before = daemon, env, daemon.env

    def __enter__(self):
        self.daemon.env = dict(self.before, **self.env)

    def __exit__(self, *error):
        self.daemon.env = self.before


def open_job(daemon, *arguments, batches=2):
    """A client that holds its batches until it is ended: itself, and its job as pinctl tells it."""
    client = daemon.consume(*SPEC, "--device", "cuda:0", "--hold", str(batches), "--batches",
                            str(batches), "--wait", *arguments)
    for _ in range(batches + 1):
        text = client.stdout.readline()
        expect(text and json.loads(text)["event"] != "error", f"the client: {text}")
    with Client(daemon, {}):
        return client, [job for job in daemon.jobs() if job["pid"] == client.pid][0]


def check_cause(settings, daemon_env, client_env, delivery, *why):
    with Daemon(*settings, driver=True, env=daemon_env) as daemon:
        daemon.env = environment(True)
        wanted = reference(daemon)
        with Client(daemon, client_env):
            got = daemon.bench(*SUM, "--device", "cuda:0")
            expect_equal((got["delivery"], got["checksum"]), (delivery, wanted),
                         f"delivery and bytes, {settings} {daemon_env} {client_env}")
            client, job = open_job(daemon)
        expect_equal(job["delivery"], delivery, "delivery as pinctl tells")
        for part in why:
            expect(part in job["delivery_why"], f"{part!r} is not in {job['delivery_why']!r}")
        print(f"     {delivery}: {job['delivery_why']}")
        if "device.rings=off" in settings:
            expect(not gpu(daemon)["process"], "no process of the device was started")
            expect_equal(gpu(daemon)["ring_bytes"], 0, "bytes of rings")
        client.communicate()
        wait_for(lambda: not daemon.jobs(), "the job ends")


def test_nothing_is_wrong():
    check_cause([], {}, {}, "fd", "the first of the ladder")


def test_the_driver_has_no_shareable_handles():
    check_cause([], {"PINSERVE_DRIVER_NO_FD": "1"}, {}, "ipc", "fd does not work")
    check_cause(["device.ipc=off"], {"PINSERVE_DRIVER_NO_FD": "1"}, {}, "copy",
                "fd does not work", "device.ipc")
    with Daemon(driver=True, env={"PINSERVE_DRIVER_NO_FD": "1"}) as daemon:
        result = daemon.pinctl("bench", *SUM, "--device", "cuda:0", "--deliver", "fd", check=False)
        expect_equal(result.returncode, 1, "exit status when fd is asked for")


def test_the_driver_has_neither_export():
    check_cause([], {"PINSERVE_DRIVER_NO_FD": "1", "PINSERVE_DRIVER_NO_IPC": "1"}, {}, "copy",
                "fd does not work", "ipc does not work")


def test_the_client_has_no_shareable_handles():
    check_cause([], {}, {"PINSERVE_DRIVER_NO_FD": "1"}, "ipc", "the client cannot take fd")


def test_the_client_refuses_the_rings():
    check_cause([], {}, {"PINSERVE_DRIVER_NO_IMPORT": "1"}, "copy",
                "fd does not work: the client could not open the ring",
                "ipc does not work: the client could not open the ring", "invalid device context")


def test_no_process_on_the_device_is_wanted():
    check_cause(["device.rings=off"], {}, {}, "copy", "device.rings")
    with Daemon("device.rings=off", driver=True) as daemon:
        for how in ("fd", "ipc"):
            result = daemon.pinctl("bench", *SUM, "--device", "cuda:0", "--deliver", how,
                                   check=False)
            expect(result.returncode == 1 and "device.rings" in result.stderr, result.stderr)


def test_the_device_is_one_process_s_alone():
    with folder() as path:
        env = {"PINSERVE_DRIVER_EXCLUSIVE": os.path.join(path, "lock")}
        check_cause([], env, env, "copy", "fd does not work", "CUDA_ERROR_DEVICE_UNAVAILABLE")


def test_the_client_has_a_part_of_the_device():
    check_cause([], {}, {"PINSERVE_DRIVER_SLICE": "1"}, "copy", "MIG")


def test_the_device_shares_the_host_s_memory():
    check_cause([], {}, {"PINSERVE_DRIVER_COHERENT": "1"}, "mapped", "shares the host's memory")


def test_a_client_that_cannot_register_still_copies():
    check_cause(["device.rings=off"], {}, {"PINSERVE_DRIVER_NO_READ_ONLY": "1"}, "copy",
                "device.rings")
    with Daemon(driver=True) as daemon:
        wanted = reference(daemon)
        with Client(daemon, {"PINSERVE_DRIVER_NO_REGISTER": "1"}):
            got = daemon.bench(*SUM, "--device", "cuda:0", "--deliver", "copy")
            expect_equal(got["checksum"], wanted, "bytes")
        with Client(daemon, {"PINSERVE_DRIVER_NO_READ_ONLY": "1"}):
            result = daemon.pinctl("bench", *SUM, "--device", "cuda:0", "--deliver", "mapped",
                                   check=False)
            expect(result.returncode == 1 and "mapped" in result.stderr, result.stderr)


def test_faults_of_the_client_s_driver():
    """A copy that is refused, and a context that breaks under copies, end the job in words."""
    with Daemon("device.rings=off", driver=True) as daemon:
        for knob, text in (("FAIL_COPY", "cannot copy a batch to the GPU"),
                           ("BREAK_COPY", "CUDA_ERROR_ILLEGAL_ADDRESS")):
            # What a broken context may still write to stays until the process ends.
            with Client(daemon, {f"PINSERVE_DRIVER_{knob}": "9", "ASAN_OPTIONS": "detect_leaks=0"}):
                client = daemon.consume(*SPEC, "--device", "cuda:0", "--epochs", "2")
                output, _ = client.communicate(timeout=60)
            events = [json.loads(line) for line in output.splitlines()]
            expect(events[-1]["event"] == "error" and text in events[-1]["text"],
                   f"{knob}: {events[-1]}")
            steps = [event["step"] for event in events if event["event"] == "batch"]
            expect_equal(steps, list(range(8))[:len(steps)], "steps before it")
            wait_for(lambda: not daemon.jobs(), "the job ends")
            expect_equal(used(daemon), 0, "bytes in slots")


def test_gathered_records_come_to_copy():
    """Where a ring is offered first, the copy engine gathers and the slots hold labels only: with
    the rings refused they are filled whole."""
    with folder() as path:
        numpy.save(f"{path}/large.npy", numpy.random.default_rng(5).integers(
            0, 256, (40, 256, 400), dtype=numpy.uint8))
        spec = ["--source", f"records:{path}/large.npy", "--batch", "4", "--epochs", "3",
                "--checksum"]
        with Daemon(driver=True) as daemon:
            wanted = daemon.bench(*spec, "--device", "host")["checksum"]
            got = daemon.bench(*spec, "--device", "cuda:0")
            expect_equal((got["delivery"], got["checksum"]), ("fd", wanted), "gathered")
            with Client(daemon, {"PINSERVE_DRIVER_NO_IMPORT": "1"}):
                got = daemon.bench(*spec, "--device", "cuda:0")
            expect_equal((got["delivery"], got["checksum"]), ("copy", wanted), "rings refused")
            for how in ("copy", "mapped"):
                got = daemon.bench(*spec, "--device", "cuda:0", "--deliver", how)
                expect_equal(got["checksum"], wanted, how)


def device_process(daemon):
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, rest = file.read().rsplit(") ", 1)
            if rest.split()[1] == str(daemon.process.pid) and "pinserved-devic" in name:
                return int(pid)
        except OSError:
            continue
    return None


def test_equal_pid_numbers_in_two_namespaces():
    """The driver takes the handle of a process with this one's number for its own."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        print("     skipped: no pid namespace can be made here")
        return
    env = {"PINSERVE_DRIVER_NO_FD": "1"}
    with Daemon(driver=True, env=env) as daemon:
        wanted = reference(daemon)
        client, job = open_job(daemon)
        expect_equal(job["delivery"], "ipc", "delivery of a client with another number")
        number = device_process(daemon)
        script = (f"echo {number - 1} >/proc/sys/kernel/ns_last_pid || exit 9\n"
                  f"\"$@\" & wait $!")
        got = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", PINCTL,
             "--socket", daemon.socket, "--json", "bench", *SUM, "--device", "cuda:0"],
            env=daemon.env, capture_output=True, text=True, timeout=60, check=False)
        if got.returncode == 9:
            print("     skipped: the next pid cannot be chosen here")
        else:
            expect_equal(got.returncode, 0, got.stderr)
            result = json.loads(got.stdout)
            expect_equal((result["delivery"], result["checksum"]), ("copy", wanted),
                         "delivery and bytes with the same number")
        client.communicate()


def test_the_device_goes_while_a_job_runs():
    """Its process dies, and another process takes the GPU for its own: the job goes on by copy."""
    with folder() as path:
        lock = os.path.join(path, "lock")
        with Daemon(driver=True, env={"PINSERVE_DRIVER_EXCLUSIVE": lock}) as daemon:
            daemon.env = environment(True)
            wanted = reference(daemon)
            bench = subprocess.Popen(
                [PINCTL, "--socket", daemon.socket, "--json", "bench", *SUM, "--device", "cuda:0",
                 "--step-ms", "60"], env=daemon.env, stdout=subprocess.PIPE, text=True)
            wait_for(lambda: daemon.jobs() and daemon.jobs()[0]["delivered"] > 3, "batches")
            expect_equal(daemon.jobs()[0]["delivery"], "fd", "delivery")
            with open(lock, "w") as file:
                os.kill(device_process(daemon), signal.SIGKILL)
                fcntl.flock(file, fcntl.LOCK_EX)
                wait_for(lambda: daemon.jobs()[0]["delivery"] == "copy", "delivery copy")
                result = json.loads(bench.communicate(timeout=60)[0])
            expect_equal(result["checksum"], wanted, "bytes over the loss")


def used(daemon):
    return sum(pool["used_bytes"] for pool in daemon.ask("pools")["pools"])


def test_kill_of_clients_on_each_delivery():
    with Daemon("workers.per_numa_node=2", "pool.idle=300ms", driver=True) as daemon:
        daemon.bench(*SPEC, "--device", "cuda:0", "--deliver", "copy", "--batches", "10")
        fds = daemon.fds()
        for round_number in range(3):
            clients = [daemon.consume(*SPEC, "--device", "cuda:0", "--deliver", how, "--step-ms",
                                      "3", "--hold", "2", "--depth", "4")
                       for how in ("copy", "mapped", "copy")]
            for client in clients:
                for _ in range(4):
                    text = client.stdout.readline()
                    expect(text and json.loads(text)["event"] != "error", f"the client: {text}")
            time.sleep(random.uniform(0.02, 0.1))
            for client in clients:
                client.kill()
                client.wait()
            wait_for(lambda: not daemon.jobs(), f"round {round_number}: the jobs end")
            expect_equal(used(daemon), 0, "bytes in slots")
        wait_for(lambda: all(pool["bytes"] == 0 for pool in daemon.ask("pools")["pools"]),
                 "the regions are given back")
        wait_for(lambda: daemon.fds() <= fds, f"descriptors: {daemon.fds()}, {fds} before")


def test_another_tenant_sees_nothing():
    """What a ring's job left in a region is never mapped by a client of somebody else's; neither
    when that one comes to copy from rings that it refused."""
    if no_other_users():
        return

    def demote():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    with Daemon("daemon.socket_mode=0666", driver=True) as daemon:
        os.chmod(daemon.folder, 0o755)
        wanted = reference(daemon)
        daemon.bench(*SUM, "--device", "cuda:0", "--deliver", "fd")
        before = {pool["device"]: pool["regions"] for pool in daemon.ask("pools")["pools"]}
        with Client(daemon, {"PINSERVE_DRIVER_NO_IMPORT": "1"}):
            got = daemon.bench(*SUM, "--device", "cuda:0", preexec_fn=demote)
        expect_equal((got["delivery"], got["checksum"]), ("copy", wanted), "another user")
        uuid = gpu(daemon)["uuid"]
        after = {pool["device"]: pool["regions"] for pool in daemon.ask("pools")["pools"]}
        expect(after[uuid] > before[uuid], f"a region of its own: {before}, {after}")


if __name__ == "__main__" and have_driver() and not GPU:
    run([test_nothing_is_wrong, test_the_driver_has_no_shareable_handles,
         test_the_driver_has_neither_export, test_the_client_has_no_shareable_handles,
         test_the_client_refuses_the_rings, test_no_process_on_the_device_is_wanted,
         test_the_device_is_one_process_s_alone, test_the_client_has_a_part_of_the_device,
         test_the_device_shares_the_host_s_memory, test_a_client_that_cannot_register_still_copies,
         test_faults_of_the_client_s_driver, test_gathered_records_come_to_copy,
         test_equal_pid_numbers_in_two_namespaces, test_the_device_goes_while_a_job_runs,
         test_kill_of_clients_on_each_delivery, test_another_tenant_sees_nothing])
