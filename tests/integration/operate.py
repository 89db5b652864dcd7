"""What an operator ends: a job, a device's work and its process. A client hears by name who did it,
keeps what it leases until it gives it back, and nobody else is disturbed."""

import json
import os
import subprocess

import images
import rawpeer
from daemon import GPU, PINCTL, Daemon, expect, expect_equal, folder, have_driver, run, wait_for
from rawpeer import RawPeer, message

SPEC = ["--source", "synthetic:3x16x16:u8:100", "--batch", "8"]
ENDLESS = ["--epochs", "1000000", "--step-ms", "5"]
BY = f"uid {os.geteuid()}"
ECANCELED, ESHUTDOWN = -125, -108


def device(daemon, uuid=None):
    """That one, or the first GPU."""
    return [row for row in daemon.ask("devices")["devices"]
            if row["uuid"] == uuid or (not uuid and row["uuid"] != "host")][0]


def client(daemon, *arguments):
    """A client that has its first batch, and its job."""
    process = daemon.consume(*arguments)
    for event in ("job", "batch"):
        line = process.stdout.readline()
        expect(line and json.loads(line)["event"] == event, f"the client: {line}")
    return process, [row for row in daemon.jobs() if row["pid"] == process.pid][0]["job"]


def holder(daemon, *arguments):
    """One that holds two batches until it is told to end."""
    process, job = client(daemon, *SPEC, *arguments, "--depth", "2", "--hold", "2",
                          "--batches", "2", "--wait")
    wait_for(lambda: daemon.jobs()[0]["leased"] == 2, "two leases")
    return process, job


def check_error(process, code, *parts):
    """The client's last word."""
    output, _ = process.communicate(timeout=30)
    last = json.loads(output.splitlines()[-1])
    expect_equal((last["event"], last.get("code")), ("error", code), f"its end: {last}")
    for part in parts:
        expect(part in last["text"], f"{part!r} is not in {last['text']!r}")


def refused(daemon, *arguments):
    result = daemon.pinctl(*arguments, check=False)
    expect_equal((result.returncode, result.stdout, result.stderr.count("\n")), (1, "", 1),
                 f"pinctl {arguments}: {result.stderr}")
    return result.stderr


def test_evict_ends_one_of_two_that_share():
    with folder() as path:
        images.make_folder(path, classes=3, each=20)
        spec = ["--source", f"folder:{path}", "--image", "random-crop:16", "--batch", "8",
                "--device", "host"]
        with Daemon("workers.per_numa_node=2") as daemon:
            wanted = daemon.bench(*spec, "--epochs", "5", "--checksum")["checksum"]
            evicted, job = client(daemon, *spec, *ENDLESS)
            other = subprocess.Popen(
                [PINCTL, "--socket", daemon.socket, "--json", "bench", *spec, "--epochs", "5",
                 "--step-ms", "10", "--checksum"], env=daemon.env, stdout=subprocess.PIPE,
                text=True)
            wait_for(lambda: [row["mates"] for row in daemon.jobs()] == [1, 1], "mates")
            expect_equal(daemon.pinctl("evict", str(job)).stdout, f"job {job}: evicted\n",
                         "pinctl")
            check_error(evicted, ECANCELED, f"job {job} was evicted by {BY}")
            expect_equal(json.loads(other.communicate(timeout=60)[0])["checksum"], wanted,
                         "bytes of the other job")
            expect(f"job {job} " in daemon.log() and "was evicted by" in daemon.log(), "the log")


def test_an_evicted_job_keeps_its_leases():
    with Daemon() as daemon:
        process, job = holder(daemon, "--device", "host")
        expect_equal(json.loads(daemon.pinctl("--json", "evict", str(job)).stdout), {"job": job},
                     "as JSON")
        row = daemon.jobs()[0]
        expect_equal((row["state"], row["leased"]), ("failed", 2), "what it keeps")
        expect(f"evicted by {BY}" in row["error"], row["error"])
        expect(f"job {job} has ended" in refused(daemon, "evict", str(job)), "evicted twice")
        process.communicate(timeout=30)
        wait_for(lambda: not daemon.jobs(), "its client closes it")
        expect(f"there is no job {job}" in refused(daemon, "evict", str(job)), "a job that is gone")


def test_the_host_device_is_drained():
    with Daemon() as daemon:
        process, _ = client(daemon, *SPEC, *ENDLESS, "--device", "host")
        got = daemon.pinctl("drain", "--device", "host")
        expect_equal(got.stdout, "device host: drained\n", "pinctl")
        check_error(process, ESHUTDOWN, "device host was drained by", BY)
        expect_equal(device(daemon, "host")["state"], "drained", "state")
        expect("device host is out of service" in refused(daemon, "bench", *SPEC, "--device",
                                                          "host"), "a job that comes later")
        expect("there is no GPU" in refused(daemon, "drain"), "all GPUs, where there is none")
        got = daemon.pinctl("--json", "drain", "--device", "host", "--undo")
        expect_equal(json.loads(got.stdout), {"devices": [{"uuid": "host", "state": "serving"}]},
                     "as JSON")
        expect_equal(device(daemon, "host")["state"], "serving", "state")
        daemon.bench(*SPEC, "--device", "host")


def device_process(daemon):
    with open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


def on_gpu(uuid):
    """What the driver tells: bytes in use (MiB), and the processes that have a context."""
    if not GPU:
        return 0, []
    rows = [subprocess.run(["nvidia-smi", f"--id={uuid}", query, "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, check=True).stdout.split()
            for query in ("--query-gpu=memory.used", "--query-compute-apps=pid")]
    return int(rows[0][0]), rows[1]


def test_a_gpu_is_drained():
    """Its process stays while a client holds batches in its ring, and is gone with the client."""
    with Daemon("device.idle=1h", driver=True) as daemon:
        before = on_gpu(device(daemon)["uuid"])
        holding, job = holder(daemon, "--device", "cuda:0")
        running, _ = client(daemon, *SPEC, *ENDLESS, "--device", "cuda:0")
        copying, _ = client(daemon, *SPEC, *ENDLESS, "--device", "cuda:0", "--deliver", "copy")
        uuid, (pid,) = device(daemon)["uuid"], device_process(daemon)
        words = refused(daemon, "drain", "--device", uuid[:12], "--timeout", "1")
        for process in (running, copying):
            check_error(process, ESHUTDOWN, f"device {uuid} was drained by", BY)
        expect(f"not drained within 1 s; 1 left: job {job} (pid {holding.pid}, uid "
               f"{os.geteuid()}, failed, 2 leased)" in words, words)
        row = device(daemon)
        expect_equal((row["state"], row["process"]), ("draining", True), "while it holds")
        expect_equal(device_process(daemon), [pid], "the device's process")
        holding.kill()
        holding.wait()
        expect(f"device {uuid}: drained\n" in daemon.pinctl("drain").stdout, "all GPUs")
        row = device(daemon)
        expect_equal((row["state"], row["process"], row["ring_bytes"], row["restarts"]),
                     ("drained", False, 0, 0), "when it is dead")
        expect(not os.path.exists(f"/proc/{pid}"), "the process is gone")
        wait_for(lambda: on_gpu(uuid)[0] <= before[0], "its memory is free again")
        after = on_gpu(uuid)
        expect(set(after[1]) <= set(before[1]), f"processes on it: {before}, {after}")
        if GPU:
            print("MiB in use and processes, before and after:", before, after)
        for how in ("auto", "copy", "host"):
            words = refused(daemon, "bench", *SPEC, "--device", "cuda:0", "--deliver", how)
            expect(f"device {uuid} is out of service" in words, words)
        daemon.bench(*SPEC, "--device", "host")
        daemon.pinctl("drain", "--undo")
        daemon.bench(*SPEC, "--device", "cuda:0")
        expect(device_process(daemon) not in ([], [pid]), "it starts again")


def host_delivered():
    """An OpenJob for any device, with delivery host, which needs no ring."""
    source = rawpeer.field(1, 3) + rawpeer.field(2, "synthetic:8:u8") + rawpeer.field(3, 8) \
        + rawpeer.field(4, "u8") + rawpeer.field(5, 64)
    return message(rawpeer.OPEN_JOB, (1, source), (3, rawpeer.field(5, 1)), (4, 4), (6, 2), (7, 4),
                   ident=2)


def test_the_first_device_is_one_in_service():
    """Where a client leaves the choice to the daemon."""
    with Daemon(driver=True, env={"PINSERVE_DRIVER_DEVICES": "2"}) as daemon:
        uuids = [row["uuid"] for row in daemon.ask("devices")["devices"]]
        for wanted in uuids:
            peer = RawPeer(daemon.socket)
            peer.send(host_delivered())
            job = peer.expect(rawpeer.JOB_OPENED)[1][0]
            expect_equal(daemon.jobs()[0]["device"], wanted, "the first in service")
            peer.send(message(rawpeer.CLOSE_JOB, (1, job), ident=9))
            peer.close()
            wait_for(lambda: not daemon.jobs(), "the job ends")
            daemon.pinctl("drain", "--device", wanted)
        peer = RawPeer(daemon.socket)
        peer.send(host_delivered())
        words = peer.receive()[1][2][0].decode()
        expect(f"device {uuids[0]} is out of service" in words, words)
        peer.close()


def test_nonsense_is_refused_and_the_peer_lives():
    with Daemon() as daemon:
        peer = RawPeer(daemon.socket)
        for body, fields, part in (
                (rawpeer.EVICT, [], b"there is no job 0"),
                (rawpeer.EVICT, [(1, 2**64 - 1)], b"there is no job 18446744073709551615"),
                (rawpeer.DRAIN, [], b"there is no GPU"),
                (rawpeer.DRAIN, [(1, "GPU-")], b"device 'GPU-' is unknown; there are: host"),
                (rawpeer.DRAIN, [(1, b"\xff%s\n\x1b[2J")], b"is unknown"),
                (rawpeer.DRAIN, [(1, "../../" * 5000), (2, 1)], b"is unknown")):
            peer.send(message(body, *fields, ident=7))
            got, reply = peer.receive()
            expect_equal(got, rawpeer.ERROR, f"{body} {fields!r:.60}")
            expect(part in reply[2][0], f"{part} is not in {reply[2][0]}")
        peer.close()
        for body in (rawpeer.EVICT, rawpeer.DRAIN):
            peer = RawPeer(daemon.socket)
            peer.send(message(body, (1, 1) if body == rawpeer.EVICT else (1, "host")))
            expect(peer.gone(), "a request without an id ends its peer")
            peer.close()
        expect_equal(device(daemon, "host")["state"], "serving", "nothing was drained")
        daemon.bench(*SPEC, "--device", "host", "--batches", "5")


TESTS = [test_evict_ends_one_of_two_that_share, test_an_evicted_job_keeps_its_leases,
         test_the_host_device_is_drained, test_nonsense_is_refused_and_the_peer_lives]
if have_driver():
    TESTS += [test_a_gpu_is_drained, test_the_first_device_is_one_in_service]
run(TESTS)
