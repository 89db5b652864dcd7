"""Source push by the C library, without a framework: on the host and, where the stand-in for the
driver is, by every delivery of a GPU. And what a client may not do with it."""

import ctypes
import fcntl
import mmap
import os
import signal
import subprocess
import sys
from ctypes import byref, c_uint64, c_void_p

from common import Daemon, expect, expect_equal, job, pinclient, raises, run, wait_for
from daemon import have_driver
from pinclient._job import Wanted, open_job
from pinclient._library import EPOCH_END, NO_STREAM, BatchInfo, Slot, TensorInfo, library
import rawpeer

BATCH = 4
COMMIT, SLOT_GRANTED = 23, 48  # as rawpeer's


class Pushed(Wanted):
    samples, tensors = 10, ((b"x", 1, (3, 5)), (b"y", 2, ()))

    def calls(self):
        calls = [("spec_push", b"test", self.samples), ("spec_batch", self.batch),
                 ("spec_device", self.device.encode()), ("spec_depth", self.depth)]
        for name, dtype, shape in self.tensors:
            calls.append(("spec_push_tensor", name, dtype, len(shape),
                          (c_uint64 * max(1, len(shape)))(*shape)))
        return calls + ([("spec_delivery", self.delivery.encode())] if self.delivery else [])


class Client:
    def __init__(self, daemon, device="host", delivery=None, depth=3, samples=10, tensors=None):
        wanted = Pushed(source="", batch=BATCH, rank=0, world=1, device=device, shuffle="none",
                        last="partial", seed=0, depth=depth, delivery=delivery)
        wanted.samples = samples
        wanted.tensors = tensors or wanted.tensors
        self.job = open_job(daemon.socket, wanted, ())
        self.lib = library()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.close()

    def acquire(self, timeout=20000):
        slot = Slot()
        self.job.check(self.lib.slot_acquire(self.job.pointer, timeout, byref(slot)))
        return slot

    def tensor(self, slot, i):
        info = TensorInfo()
        self.job.check(self.lib.slot_tensor(self.job.pointer, byref(slot), i, byref(info)))
        return info

    def fill(self, slot, value):
        for i in range(2):
            info = self.tensor(slot, i)
            ctypes.memset(info.data, value, info.bytes)

    def commit(self, slot, error=None):
        self.job.check(self.lib.slot_commit(self.job.pointer, byref(slot), error))

    def next(self, timeout=20000):
        """(epoch, step, count, bytes of each tensor), or None at the end of an epoch."""
        pointer = c_void_p()
        if self.job.check(self.lib.next(self.job.pointer, timeout, byref(pointer))) == EPOCH_END:
            return None
        info, values = BatchInfo(), []
        self.lib.batch_info(pointer, byref(info))
        for i in range(2):
            tensor = TensorInfo()
            self.job.check(self.lib.batch_tensor_at(pointer, i, byref(tensor)))
            values.append(ctypes.string_at(tensor.data, tensor.bytes))
        self.job.check(self.lib.release(pointer, NO_STREAM))
        return info.epoch, info.step, info.count, values


def regions(daemon):
    return sum(pool["regions"] for pool in daemon.ask("pools")["pools"])


def each_delivery():
    yield "host", None
    if have_driver():
        for delivery in (None, "fd", "ipc", "copy", "mapped"):
            yield "cuda:0", delivery


def test_values_and_order():
    """Committed in any order, batches come in step order, with the bytes that were written; two
    epochs of 3 steps, the last of 2 samples."""
    with Daemon(driver=have_driver()) as daemon:
        for device, delivery in each_delivery():
            with Client(daemon, device, delivery) as client:
                for epoch in range(2):
                    slots = [client.acquire() for _ in range(3)]
                    expect_equal([(slot.epoch, slot.step, slot.count) for slot in slots],
                                 [(epoch, 0, 4), (epoch, 1, 4), (epoch, 2, 2)], "grants")
                    for slot in (slots[2], slots[0], slots[1]):
                        client.fill(slot, 16 * epoch + slot.step + 1)
                        client.commit(slot)
                    for slot in slots:
                        fill = bytes([16 * epoch + slot.step + 1])
                        expect_equal(client.next(), (epoch, slot.step, slot.count,
                                                     [fill * (60 * slot.count),
                                                      fill * (8 * slot.count)]),
                                     f"batch by {device} {delivery}")
                    expect_equal(client.next(), None, "end of the epoch")


def test_many_batches_go_round():
    """Slots are used again, each under a new generation; a batch may be shorter than its slot."""
    with Daemon(driver=have_driver()) as daemon:
        for device, delivery in each_delivery():
            with Client(daemon, device, delivery, samples=4000) as client:
                for step in range(150):
                    slot = client.acquire()
                    client.fill(slot, step % 251)
                    slot.count = 1 + step % 4
                    client.commit(slot)
                    got = client.next()
                    expect_equal((got[1], got[2], got[3][1]),
                                 (step, slot.count, bytes([step % 251]) * (8 * slot.count)),
                                 f"batch by {device} {delivery}")


def test_what_a_caller_gets_wrong():
    with Daemon() as daemon, Client(daemon) as client:
        slots = [client.acquire() for _ in range(3)]
        raises(pinclient.AllLeased, lambda: client.acquire(0), "all 3 slots")
        slots[0].count = 5
        raises(pinclient.Error, lambda: client.commit(slots[0]), "1 to 4 samples, not 5")
        slots[0].count = 4
        client.commit(slots[0])
        raises(pinclient.Error, lambda: client.commit(slots[0]), "is not being filled")
        raises(pinclient.Timeout, lambda: (client.next(), client.next(10)), "no batch within")
        client.commit(slots[1])
        client.commit(slots[2], b"the disk is\nfull")
        expect_equal(client.next()[1], 1, "the batch before")
        raises(pinclient.Error, client.next, "gave a batch up: the disk is full")
        raises(pinclient.Error, client.acquire, "the disk is full")
    with Daemon() as daemon:
        raises(pinclient.Error, lambda: Client(daemon, tensors=((b"x", 0, (2,)), (b"x", 0, ()))),
               "two tensors \"x\"")


def test_the_memory_is_the_jobs_own():
    """Sealed but for writing; two jobs of one user share no region; it is gone with the job."""
    with Daemon("pool.idle=1h") as daemon:
        with Client(daemon) as one, Client(daemon) as two:
            a, b = one.acquire(), two.acquire()
            expect(os.fstat(a.fd).st_ino != os.fstat(b.fd).st_ino, "two files")
            seals = fcntl.fcntl(a.fd, 1034)  # F_GET_SEALS
            expect_equal(seals & 0x17, 0x7, "SHRINK, GROW and SEAL, and no FUTURE_WRITE")
            other = mmap.mmap(a.fd, a.region_bytes)  # as another process would
            other[a.offset:a.offset + 60 * 4] = b"z" * 240
            expect_equal(ctypes.string_at(one.tensor(a, 0).data, 240), b"z" * 240, "shared")
            other.close()
            one.commit(a)
            expect_equal(one.next()[3][0], b"z" * 240, "delivered")
        wait_for(lambda: regions(daemon) == 0, "the regions are gone")


def test_a_client_that_dies():
    """Killed with slots being filled, some committed: the daemon keeps nothing."""
    text = ("import sys, time; sys.path[:0] = sys.argv[2:]; import push_raw\n"
            "class D: socket = sys.argv[1]\n"
            "c = push_raw.Client(D)\n"
            "s = [c.acquire() for _ in range(3)]; c.commit(s[1]); c.commit(s[0])\n"
            "print('up', flush=True); time.sleep(100)\n")
    with Daemon() as daemon:
        process = subprocess.Popen([sys.executable, "-B", "-c", text, daemon.socket,
                                    os.path.dirname(os.path.abspath(__file__))],
                                   stdout=subprocess.PIPE, text=True)
        expect_equal(process.stdout.readline(), "up\n", "the client")
        expect_equal(job(daemon)["source"], "push:test", "source")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        wait_for(lambda: daemon.jobs() == [], "the job is gone")
        wait_for(lambda: regions(daemon) == 0, "the regions are gone")


def test_a_device_that_is_lost():
    """What was pushed cannot be made again."""
    if not have_driver():
        return
    with Daemon(driver=True) as daemon, Client(daemon, "cuda:0", "fd") as client:
        client.commit(client.acquire())
        client.next()
        pid = daemon.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            for child in children.read().split():
                os.kill(int(child), signal.SIGKILL)

        def go_on():
            for _ in range(100):
                client.commit(client.acquire())
                client.next()
        raises(pinclient.Error, go_on, "batches that the client had pushed")


def open_push(ident=2, **order):
    tensor = rawpeer.field(1, "x") + rawpeer.field(2, 1) + rawpeer.field(3, 8)
    source = rawpeer.field(1, 6) + rawpeer.field(2, "push:raw") + rawpeer.field(5, 64) \
        + rawpeer.field(12, tensor)
    ordered = rawpeer.field(1, order.get("shuffle", 1)) + rawpeer.field(2, order.get("last", 2)) \
        + rawpeer.field(5, 1)
    return rawpeer.message(rawpeer.OPEN_JOB, (1, source), (3, ordered), (4, 4), (5, "host"), (6, 2),
                           ident=ident)


def test_hostile_commits():
    """Of a slot that it has not, of a grant to come, of another peer's: the end of that peer."""
    with Daemon() as daemon, Client(daemon) as other:
        other_job = job(daemon)["job"]
        held = other.acquire()
        for what in ("slot", "generation", "count", "many", "job", "twice"):
            peer = rawpeer.RawPeer(daemon.socket)
            peer.send(open_push())
            grant = {number: values[0] for number, values in peer.expect(SLOT_GRANTED).items()}
            wrong = {1: grant[1], 2: grant.get(2, 0), 3: grant[3], 5: 4}
            wrong.update({"slot": {2: 77}, "generation": {3: grant[3] + 9}, "count": {5: 0},
                          "many": {5: 5}, "twice": {},
                          "job": {1: other_job, 2: held.number, 3: held.generation}}[what])
            commit = rawpeer.message(COMMIT, *wrong.items())
            peer.send(commit)
            if what == "twice":  # it may have been on its way: nothing comes of it
                peer.expect(rawpeer.BATCH_READY)
                peer.send(commit)
                peer.send(rawpeer.message(rawpeer.QUERY, (1, 0), ident=9))
                peer.expect(rawpeer.REPORT)
            else:
                expect(peer.gone(), f"{what}: the peer is not dropped")
            peer.close()
        other.commit(held)
        expect_equal(other.next()[1], 0, "the other job goes on")


if __name__ == "__main__":
    run([value for name, value in list(globals().items()) if name.startswith("test_")])
