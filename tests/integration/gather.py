"""Records gathered from the page cache by the device: the same bytes as through slots, whatever
refuses; files that shrink, many jobs, a lost process, and everything returned at the end."""

import os
import random
import signal
import struct
import threading

from daemon import GPU, Daemon, expect, expect_equal, folder, have_driver, run, wait_for

N, BYTES = 400, 100_000


def npy(path, dtype, shape, data):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def records(where, n=N, size=BYTES):
    path = os.path.join(where, "records.npy")
    npy(path, "|u1", (n, size), random.Random(n).randbytes(n * size))
    return path


def spec(path, *more):
    return ["--source", f"records:{path}", "--batch", "16", "--last", "partial", "--depth", "3",
            "--seed", "5", *more]


def gpu(daemon):
    return [row for row in daemon.ask("devices")["devices"] if row["uuid"] != "host"][0]


def pinned(daemon):
    return daemon.ask("status")["pinned_bytes"]


class Client:
    """A job that is held open, so that what it gathers from stays registered."""

    def __init__(self, daemon, path):
        self.daemon = daemon
        self.process = daemon.consume("--source", f"records:{path}", "--batch", "4", "--device",
                                      gpu(daemon)["uuid"], "--hold", "1", "--batches", "1",
                                      "--wait")
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()


def test_the_same_bytes_on_both_paths():
    """On the device, gathered and not; on the host; and after an epoch that was half gathered."""
    with folder() as where:
        path = records(where)
        size = os.path.getsize(path)
        with Daemon("device.gather=off", driver=True) as daemon:
            wanted = daemon.bench(*spec(path, "--epochs", "2", "--checksum", "--device", "host"))
            plain = daemon.bench(*spec(path, "--epochs", "2", "--checksum", "--device", "cuda:0"))
            expect_equal(plain["checksum"], wanted["checksum"], "through slots")
            expect_equal(gpu(daemon)["gathered_bytes"], 0, "nothing is registered")
        with Daemon(driver=True) as daemon:
            with Client(daemon, path):
                wait_for(lambda: gpu(daemon)["gathered_bytes"] == size, "the file is registered")
                before = gpu(daemon)["gathered_batches"]
                got = daemon.bench(*spec(path, "--epochs", "2", "--checksum", "--device", "cuda:0"))
                expect_equal(got["checksum"], wanted["checksum"], "gathered")
                expect(gpu(daemon)["gathered_batches"] - before >= 50, "all batches are gathered")
                expect(pinned(daemon) >= size, "what is registered is pinned")
            got = daemon.bench(*spec(path, "--epochs", "5", "--checksum", "--device", "cuda:0"))
            expect_equal(got["batches"], 125, "batches")
            wait_for(lambda: gpu(daemon)["gathered_bytes"] == 0, "nothing is registered any more")


def test_labels_come_along():
    with folder() as where:
        path = records(where)
        labels = os.path.join(where, "labels.npy")
        npy(labels, "<i4", (N,), struct.pack(f"<{N}i", *range(1000, 1000 + N)))
        sums = []
        for setting in ("device.gather=off", "device.gather_min=1"):
            with Daemon(setting, driver=True) as daemon:
                sums.append(daemon.bench(*spec(f"{path},labels={labels}", "--epochs", "3",
                                               "--checksum", "--device", "cuda:0"))["checksum"])
        expect_equal(sums[0], sums[1], "checksums with labels")


def test_refusals_leave_the_workers():
    """Too small, over the bound, over the tenant's limit, a driver that cannot: same bytes."""
    cases = [(("device.gather_min=100001",), {}), (("device.gather_max=30MB",), {}),
             (("limits.pinned=100MiB", "pool.max=100MiB"), {}),
             ((), {"PINSERVE_DRIVER_NO_READ_ONLY": "1"})]
    with folder() as where:
        path = records(where)
        wanted = None
        for settings, env in cases[:3] if GPU else cases:
            with Daemon(*settings, driver=True, env=env) as daemon:
                got = daemon.bench(*spec(path, "--epochs", "2", "--checksum", "--device", "cuda:0"))
                wanted = wanted or got["checksum"]
                expect_equal(got["checksum"], wanted, f"checksum with {settings} {env}")
                expect_equal(gpu(daemon)["gathered_batches"], 0, f"gathered with {settings} {env}")


def test_older_drivers():
    if GPU:
        return
    with folder() as where:
        path, sums = records(where), set()
        for version in ("12000", "12080", "13000"):
            with Daemon(driver=True, env={"PINSERVE_DRIVER_VERSION": version}) as daemon, \
                    Client(daemon, path):
                wait_for(lambda: gpu(daemon)["gathered_bytes"] > 0, "the file is registered")
                sums.add(daemon.bench(*spec(path, "--epochs", "1", "--checksum", "--device",
                                            "cuda:0"))["checksum"])
                expect(gpu(daemon)["gathered_batches"] >= 25, "batches gathered")
        expect_equal(len(sums), 1, "checksums")


def test_file_shrinks_while_in_use():
    """The job fails and names file and record; the daemon and other jobs go on."""
    with folder() as where:
        path = records(where)
        with Daemon(driver=True) as daemon, Client(daemon, path):
            wait_for(lambda: gpu(daemon)["gathered_bytes"] > 0, "the file is registered")
            threads, results = [], []
            threads.append(threading.Thread(target=lambda: results.append(daemon.pinctl(
                "bench", *spec(path, "--step-ms", "20", "--epochs", "10", "--device", "cuda:0"),
                check=False))))
            threads[0].start()
            wait_for(lambda: gpu(daemon)["gathered_batches"] > 5, "batches are gathered")
            os.truncate(path, os.path.getsize(path) // 2)
            threads[0].join()
            expect_equal(results[0].returncode, 1, "exit status")
            expect("records.npy: record " in results[0].stderr and "cut off" in results[0].stderr,
                   results[0].stderr)
            expect_equal(gpu(daemon)["restarts"], 0, "the process lives")
            daemon.bench("--source", "synthetic:8", "--batch", "4", "--batches", "3", "--device",
                         "cuda:0")


def test_file_is_replaced_while_in_use():
    """The job goes on in the file that it began with; the next one gathers from the new one."""
    with folder() as where:
        path, other = records(where), os.path.join(where, "other.npy")
        npy(other, "|u1", (N, BYTES), random.Random(9).randbytes(N * BYTES))
        with Daemon(driver=True) as daemon, Client(daemon, path):
            wait_for(lambda: gpu(daemon)["gathered_bytes"] > 0, "the file is registered")
            whole = spec(path, "--epochs", "3", "--checksum")
            old = daemon.bench(*whole, "--device", "host")["checksum"]
            results, before = [], gpu(daemon)["gathered_batches"]
            thread = threading.Thread(target=lambda: results.append(daemon.bench(
                *whole, "--step-ms", "8", "--device", "cuda:0")["checksum"]))
            thread.start()
            wait_for(lambda: gpu(daemon)["gathered_batches"] > before + 5, "batches are gathered")
            os.rename(other, path)
            new = daemon.bench(*whole, "--device", "cuda:0")["checksum"]
            thread.join()
            expect_equal(results, [old], "the job that runs")
            expect_equal(new, daemon.bench(*whole, "--device", "host")["checksum"], "a new one")
            expect(new != old, "other bytes")


def test_lost_process_costs_no_byte():
    if GPU:
        return
    with folder() as where:
        path = records(where)
        with Daemon(driver=True, env={"PINSERVE_DRIVER_BREAK_COPY": "40"}) as daemon:
            got = daemon.bench(*spec(path, "--epochs", "4", "--checksum", "--device", "cuda:0"))
            wanted = daemon.bench(*spec(path, "--epochs", "4", "--checksum", "--device", "host"))
            expect_equal(got["checksum"], wanted["checksum"], "checksum over broken contexts")
            expect(gpu(daemon)["restarts"] > 0, "the process was replaced")


def test_jobs_share_what_is_registered():
    """Twice the file would not fit the bound."""
    with folder() as where:
        path = records(where)
        with Daemon("device.gather_max=50MB", driver=True) as daemon, Client(daemon, path):
            wait_for(lambda: gpu(daemon)["gathered_bytes"] > 0, "the file is registered")
            before = gpu(daemon)["gathered_batches"]
            got = daemon.bench(*spec(path, "--epochs", "2", "--device", "cuda:0", "--jobs", "2"))
            expect_equal(got["batches"], 100, "batches")
            expect(gpu(daemon)["gathered_batches"] - before >= 100, "all batches are gathered")


def test_devices_are_shown_as_they_are():
    """Jobs by delivery, and a rate that is of now: it falls to nothing."""
    with folder() as where:
        path = records(where)
        with Daemon(driver=True) as daemon, Client(daemon, path):
            expect_equal(gpu(daemon)["deliveries"], [{"delivery": "fd", "jobs": 1}], "deliveries")
            feed = threading.Thread(target=lambda: daemon.bench(
                *spec(path, "--step-ms", "20", "--seconds", "2", "--device", "cuda:0")))
            feed.start()
            rate = wait_for(lambda: gpu(daemon)["copy_rate"], "there is a rate")
            # 16 records every 20 ms, and the first batches at once.
            expect(1e6 < rate < 1e9, f"bytes a second: {rate}")
            wait_for(lambda: gpu(daemon)["deliveries"] == [{"delivery": "fd", "jobs": 2}], "two jobs")
            feed.join()
            wait_for(lambda: gpu(daemon)["copy_rate"] == 0, "the rate falls", 5)
            row = gpu(daemon)
            expect(row["link_generation"] <= row["link_generation_max"], f"link: {row}")
            expect(row["link_width"] <= row["link_width_max"], f"link: {row}")
            text = daemon.pinctl("devices").stdout
            expect(" 1 (fd 1) " in text, text)


def test_clients_die_with_gathers_under_way():
    with folder() as where:
        path = records(where)
        env = {} if GPU else {"PINSERVE_DRIVER_COPY_DELAY_US": "3000"}
        with Daemon("device.idle=300ms", driver=True, env=env) as daemon:
            for _ in range(3):
                client = daemon.consume("--source", f"records:{path}", "--batch", "16", "--device",
                                        gpu(daemon)["uuid"])
                for _ in range(30):
                    client.stdout.readline()
                client.send_signal(signal.SIGKILL)
                client.communicate()
            wait_for(lambda: not daemon.jobs(), "the jobs end")
            wait_for(lambda: not gpu(daemon)["process"], "the process ends")
            expect_equal(gpu(daemon)["gathered_bytes"], 0, "bytes registered")


if __name__ == "__main__" and have_driver():
    run([test_the_same_bytes_on_both_paths, test_labels_come_along, test_refusals_leave_the_workers,
         test_older_drivers, test_file_shrinks_while_in_use,
         test_file_is_replaced_while_in_use, test_lost_process_costs_no_byte,
         test_jobs_share_what_is_registered, test_devices_are_shown_as_they_are,
         test_clients_die_with_gathers_under_way])
