"""The CUDA side of the path, on the driver's stand-in, or on a GPU with PINSERVE_GPU set: two
clients and two users at once, rings that are read-only, release behind a stream, and everything
returned at the end."""

import json
import os
import subprocess
import threading

from daemon import (GPU, RING, Daemon, environment, expect, expect_equal, folder, have_driver,
                    no_other_users, run, wait_for)

SPEC = ["--source", "synthetic:3x32x32:u8:500", "--batch", "16", "--last", "partial", "--epochs",
        "2", "--checksum"]


DELIVERIES = ("fd", "ipc", "copy", "mapped")


def demote():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def reference(daemon):
    return daemon.bench(*SPEC, "--device", "host")["checksum"]


def ring(daemon, delivery):
    got = subprocess.run([RING, "--socket", daemon.socket, "--deliver", delivery], env=daemon.env,
                         capture_output=True, text=True, timeout=60)
    expect_equal(got.returncode, 0, got.stderr)
    answers = {}
    for text in got.stdout.splitlines():
        answers.update(json.loads(text))
    return answers


def test_release_waits_for_the_stream():
    with Daemon(driver=True) as daemon:
        for delivery in ("fd", "ipc", "copy", "mapped"):
            answers = ring(daemon, delivery)
            expect(answers["release_ms"] < 150, f"release does not wait: {answers}")
            expect(answers["reuse_ms"] >= 300, f"the slot waits for the stream: {answers}")
            if "capture" in answers:
                expect_equal((answers["capture"], answers["after"]), (-16, 0), "capture")
            if delivery == "fd":
                expect(answers["write"] != 0, f"a write into the ring is refused: {answers}")
            print(delivery, answers)


def test_two_clients_at_once():
    with Daemon(driver=True) as daemon:
        wanted, got = reference(daemon), []
        threads = [threading.Thread(target=lambda how=how: got.append(daemon.bench(
            *SPEC, "--device", "cuda:0", "--deliver", how)["checksum"])) for how in DELIVERIES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect_equal(got, [wanted] * len(DELIVERIES), "checksums")


def test_a_client_of_another_user():
    if no_other_users():
        return
    with Daemon("daemon.socket_mode=0666", driver=True) as daemon:
        os.chmod(daemon.folder, 0o755)
        wanted = reference(daemon)
        for how in ("fd", "ipc", "copy", "mapped", "host") if GPU else ("fd", "copy", "mapped",
                                                                        "host"):
            got = daemon.bench(*SPEC, "--device", "cuda:0", "--deliver", how, preexec_fn=demote)
            expect_equal((got["delivery"], got["checksum"]), (how, wanted), "another user")
        tenants = set()
        client = daemon.consume("--source", "synthetic:8", "--batch", "4", "--hold", "1",
                                "--batches", "1", "--wait", preexec_fn=demote)
        client.stdout.readline()
        tenants = {job["tenant"] for job in daemon.jobs()}
        expect_equal(tenants, {"uid:65534"}, "who pays")
        client.communicate()


def gpu(daemon):
    return [row for row in daemon.ask("devices")["devices"] if row["uuid"] != "host"][0]


def memory_used():
    """MiB in use on the first GPU, as the driver tells; None without one."""
    if not GPU:
        return None
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                          "--id=0"], capture_output=True, text=True, check=True)
    return int(out.stdout)


def test_nothing_is_left_on_the_device():
    before = memory_used()
    with Daemon("device.idle=500ms", driver=True) as daemon:
        expect(not gpu(daemon)["process"], "no process before the first job")
        daemon.bench(*SPEC, "--device", "cuda:0")
        expect(gpu(daemon)["copied_bytes"] > 0, "bytes were copied")
        wait_for(lambda: not gpu(daemon)["process"], "the process ends")
        expect_equal(gpu(daemon)["ring_bytes"], 0, "bytes of rings")
        if before is not None:
            wait_for(lambda: memory_used() <= before, "the memory is free again")
            print("MiB in use before and after:", before, memory_used())
        expect_equal(daemon.bench(*SPEC, "--device", "cuda:0")["checksum"], reference(daemon),
                     "and it starts again")


def test_delivery_in_place_needs_no_process():
    with Daemon(driver=True) as daemon:
        for how in ("host", "copy", "mapped"):
            got = daemon.bench(*SPEC, "--device", "cuda:0", "--deliver", how)
            expect_equal((got["delivery"], got["checksum"]), (how, reference(daemon)), "bytes")
            expect(not gpu(daemon)["process"], "no process for it")
            expect_equal(gpu(daemon)["ring_bytes"], 0, "bytes of rings")


def test_registrations_do_not_grow_with_batches():
    """Memory is registered by regions: a thousand batches take no more than ten."""
    with Daemon("pool.region=2MiB", driver=True) as daemon:
        regions = []
        for batches in ("10", "1000"):
            daemon.bench("--source", "synthetic:3x32x32:u8:500", "--batch", "64", "--device",
                         "cuda:0", "--batches", batches)
            regions.append(sum(pool["regions"] for pool in daemon.ask("pools")["pools"]
                               if pool["device"] != "host"))
        expect(regions[0] > 0 and regions[0] == regions[1], f"regions: {regions}")


def test_rings_are_off():
    before = memory_used()
    with Daemon("device.rings=off", driver=True) as daemon:
        got = daemon.bench(*SPEC, "--device", "cuda:0")
        expect_equal((got["delivery"], got["checksum"]), ("copy", reference(daemon)), "bytes")
        expect(not gpu(daemon)["process"], "no process for it")
        if before is not None:
            wait_for(lambda: memory_used() <= before, "the client's memory is free again")


def test_device_memory_has_a_limit():
    with Daemon("limits.device=2MiB", driver=True) as daemon:
        result = daemon.pinctl("bench", "--source", "synthetic:1048576", "--batch", "2",
                               "--device", "cuda:0", check=False)
        expect_equal(result.returncode, 1, "exit status")
        expect("2097152" in result.stderr and "device" in result.stderr, result.stderr)


def test_faults_of_the_driver():
    """A copy that is refused fails its job in words; a broken context costs a process, no byte."""
    if GPU:
        return
    with Daemon(driver=True, env={"PINSERVE_DRIVER_FAIL_COPY": "7"}) as daemon:
        result = daemon.pinctl("bench", *SPEC, "--device", "cuda:0", check=False)
        expect_equal(result.returncode, 1, "exit status")
        expect("copy" in result.stderr, result.stderr)
    with Daemon(driver=True, env={"PINSERVE_DRIVER_BREAK_COPY": "9"}) as daemon:
        expect_equal(daemon.bench(*SPEC, "--device", "cuda:0")["checksum"], reference(daemon),
                     "checksum over broken contexts")
        expect(gpu(daemon)["restarts"] > 0, "the process was replaced")


def test_devices_are_told_apart_by_uuid():
    env = {"PINSERVE_DRIVER_DEVICES": "3"}
    with Daemon(driver=True, env=env) as daemon:
        uuids = [d["uuid"] for d in daemon.ask("devices")["devices"] if d["uuid"] != "host"]
        if GPU and len(uuids) < 2:
            print("one GPU: nothing to tell apart")
            return
        expect(GPU or len(uuids) == 3, f"devices: {uuids}")
        last = len(uuids) - 1
        short = ["--source", "synthetic:64", "--batch", "4", "--batches", "5", "--device"]
        for visible, wanted, at in (("1", "cuda:0", 1), ("1,0", "cuda:1", 0),
                                    (uuids[last], "cuda:0", last), ("", uuids[1], 1),
                                    (str(last), uuids[last][:12], last)):
            before = [d["copied_bytes"] for d in daemon.ask("devices")["devices"]]
            daemon.env = dict(daemon.env, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}))
            daemon.bench(*short, wanted)
            daemon.env.pop("CUDA_VISIBLE_DEVICES", None)
            after = [d["copied_bytes"] for d in daemon.ask("devices")["devices"]]
            moved = [i for i in range(len(uuids)) if after[i] > before[i]]
            expect_equal(moved, [at], f"CUDA_VISIBLE_DEVICES={visible}, {wanted}")
        daemon.env = dict(daemon.env, CUDA_VISIBLE_DEVICES="1")
        result = daemon.pinctl("bench", *short, "cuda:1", check=False)
        expect(result.returncode == 1 and uuids[1] in result.stderr,
               f"the error lists what is there: {result.stderr}")
        daemon.env = dict(daemon.env, CUDA_VISIBLE_DEVICES="")
        for wanted in ("cuda:0", uuids[0]):
            result = daemon.pinctl("bench", *short, wanted, check=False)
            expect(result.returncode == 1 and wanted in result.stderr
                   and 'CUDA_VISIBLE_DEVICES is ""' in result.stderr,
                   f"the error says why there is none: {result.stderr}")
        expect_equal(daemon.bench(*short, "auto")["delivery"], "host", "the first GPU or else host")


def test_a_part_of_a_device_is_found():
    """The client knows it by a UUID that the daemon does not: cuda:0, or MIG- as nvidia-smi writes."""
    if GPU:
        return
    with Daemon(driver=True, env={"PINSERVE_DRIVER_DEVICES": "3"}) as daemon:
        daemon.env = environment(True, PINSERVE_DRIVER_SLICE="1", PINSERVE_DRIVER_DEVICES="3")
        short = ["--source", "synthetic:64", "--batch", "4", "--batches", "5", "--device"]
        refused = daemon.pinctl("bench", *short, "cuda:7", check=False).stderr
        mig = refused.split("cuda:1 GPU-")[1].split(",")[0].strip()
        uuids = [d["uuid"] for d in daemon.ask("devices")["devices"] if d["uuid"] != "host"]
        expect(f"GPU-{mig}" not in uuids, f"{mig} is no UUID of {uuids}")
        for visible, wanted in ((f"MIG-{mig}", "cuda:0"), (f"MIG-{mig}", "auto"),
                                (f"MIG-{mig}", f"MIG-{mig}"), ("0,1", f"MIG-{mig}"),
                                ("1", f"MIG-{mig[:9]}"), ("1,2", f"GPU-{mig}")):
            daemon.env["CUDA_VISIBLE_DEVICES"] = visible
            client = daemon.consume(*short, wanted, "--batches", "2", "--hold", "2", "--wait")
            for _ in range(3):
                line = client.stdout.readline()
                expect('"error"' not in line, f"{visible}, {wanted}: {line}")
            job = daemon.jobs()[0]
            expect_equal((job["device"], job["delivery"]), (uuids[1], "copy"), f"{visible}, {wanted}")
            client.communicate()
        for wanted in ("MIG-0", f"MIG-{mig}0"):
            result = daemon.pinctl("bench", *short, wanted, check=False)
            expect(result.returncode == 1 and wanted in result.stderr and mig in result.stderr,
                   f"the error lists what is there: {result.stderr}")


if __name__ == "__main__" and have_driver():
    run([test_release_waits_for_the_stream, test_two_clients_at_once,
         test_a_client_of_another_user, test_nothing_is_left_on_the_device,
         test_delivery_in_place_needs_no_process,
         test_registrations_do_not_grow_with_batches, test_rings_are_off,
         test_device_memory_has_a_limit,
         test_faults_of_the_driver, test_devices_are_told_apart_by_uuid,
         test_a_part_of_a_device_is_found])
