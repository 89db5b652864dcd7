"""How long things live: a batch as long as its last tensor, memory as long as a tensor, a private
daemon as long as its process; and what a loader says when it cannot go on."""

import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time

import numpy
import torch

from common import (LARGE, SANITIZED, Daemon, delivered, ends, expect, expect_equal, full, loader,
                    pinclient, raises, run, script, wait_for)

def given_back(daemon, before):
    """How many batches were given back: the daemon hands off one more for each."""
    time.sleep(0.05)
    return delivered(daemon) - before


def test_release_is_seen_by_the_daemon():
    """Last reference gone, last tensor gone, last view gone, in every library's hands."""
    takers = {
        "numpy": lambda tensor: numpy.asarray(tensor),
        "numpy by DLPack": lambda tensor: numpy.from_dlpack(tensor),
        "torch": lambda tensor: torch.from_dlpack(tensor),
        "torch, a view": lambda tensor: torch.from_dlpack(tensor)[1:].view(-1)[3:],
        "a capsule that nobody takes": lambda tensor: tensor.__dlpack__(),
        "a versioned one": lambda tensor: tensor.__dlpack__(max_version=(1, 0)),
        "itself": lambda tensor: tensor,
    }
    with Daemon() as daemon, loader(daemon, LARGE, tensors="dlpack") as batches:
        steps = iter(batches)
        for name, take in takers.items():
            batch = next(steps)
            before = full(daemon)
            taken = take(batch["data"])
            other = take(batch["index"])
            del batch
            expect_equal(given_back(daemon, before), 0, f"{name}: two tensors are left")
            del other
            expect_equal(given_back(daemon, before), 0, f"{name}: one tensor is left")
            del taken
            wait_for(lambda n=before: delivered(daemon) == n + 1, f"{name}: given back")


def test_release_of_a_batch():
    with Daemon() as daemon, loader(daemon, LARGE) as batches:
        batch = next(iter(batches))
        before = full(daemon)
        kept = batch["data"]
        batch.release()
        batch.release()
        expect_equal(given_back(daemon, before), 0, "a tensor is left")
        kept = None
        wait_for(lambda: delivered(daemon) == before + 1, "given back")
        expect(kept is None and "index" in batch, "the batch itself is there still")


def test_loop_gives_back():
    """The plain loop of a trainer, and one that leaves exceptions and cycles behind."""
    with Daemon() as daemon, loader(daemon, LARGE, depth=3, tensors="torch") as batches:
        for batch in batches:
            image = batch["data"].float()
            cycle = [batch, image]
            cycle.append(cycle)
            try:
                if batch.step % 3 == 0:
                    raise ValueError(batch["index"])
            except ValueError as error:
                kept = error
            if batch.step == 40:
                break
        del cycle, kept


def test_exception_in_flight():
    """The last reference to a tensor goes while an exception is on its way."""
    def fail(*_):
        raise ValueError("in flight")

    with Daemon() as daemon, loader(daemon, LARGE, tensors="torch") as batches:
        steps = iter(batches)
        for _ in range(50):
            raises(ValueError, lambda: [torch.from_dlpack(next(steps)["data"].numpy()), fail()],
                   "in flight")
            raises(ValueError, lambda: fail(next(steps)["data"]), "in flight")
            raises(ZeroDivisionError, lambda: (next(steps)["data"], 1 / 0))


def test_list_is_refused():
    with Daemon() as daemon, loader(daemon, LARGE, depth=3) as batches:
        error = raises(pinclient.AllLeased, lambda: list(batches), "all 3 batches", "depth=")
        expect_equal(error.errno, 16, "errno")
        del error
        # The list is gone, so there is room again.
        expect_equal(next(iter(batches))["data"].shape, (4, 64), "it goes on")
    with Daemon() as daemon, loader(daemon, depth=8) as batches:
        expect_equal(len(list(batches)), 7, "with enough depth")


def test_tensors_outlive_the_loader():
    with Daemon() as daemon:
        for kind in ("numpy", "torch", "dlpack"):
            batches = loader(daemon, tensors=kind)
            steps = iter(batches)
            first, second = next(steps), next(steps)
            before = [numpy.array(first["data"]), numpy.array(second["index"])]
            kept = [first["data"], second["index"]]
            batches.close()
            batches.close()
            del first, second
            gc.collect()
            expect(numpy.array_equal(kept[0], before[0]), "values after close")
            raises(RuntimeError, lambda s=steps: next(s), "has ended")
            raises(pinclient.Error, lambda b=batches: next(iter(b)), "closed")
            raises(pinclient.Error, batches.state_dict, "closed")
            del batches, steps
            expect(numpy.array_equal(kept[1], before[1]), "values after the loader")
            kept.reverse()
            del kept[0]
            expect(numpy.array_equal(kept[0], before[0]), "values after the other tensor")
            kept.clear()
            wait_for(lambda: not daemon.jobs(), "the job is gone with its last tensor")


def test_tensors_outlive_the_daemon():
    daemon = Daemon(check_exit=False).start()
    batches = loader(daemon, tensors="torch")
    steps = iter(batches)
    data = next(steps)["data"]
    before = data.clone()
    daemon.process.kill()
    daemon.process.wait()
    expect(torch.equal(data, before), "values")
    raises(pinclient.DaemonGone, lambda: [b.count for b in steps], "gone")
    raises(pinclient.DaemonGone, lambda: iter(batches), daemon.socket)
    del data
    batches.close()
    daemon.stop = lambda: None
    daemon.__exit__(None, None, None)


def test_threads():
    """Tensors are dropped in other threads while the loader goes on."""
    with Daemon() as daemon, loader(daemon, LARGE, depth=16, tensors="torch") as batches:
        kept, done = [], []

        def drop():
            while not done:
                while kept:
                    kept.pop(0)
                time.sleep(0.0005)

        threads = [threading.Thread(target=drop) for _ in range(3)]
        for thread in threads:
            thread.start()
        for batch in batches:
            while len(kept) > 8:
                time.sleep(0.0001)
            kept.append(batch["data"])
            del batch
            if batches.state_dict()["step"] == 1000:
                break
        done.append(True)
        for thread in threads:
            thread.join()


def test_copies_of_tensors():
    """Copies and pickles of what a loader yields have nothing to do with the lease."""
    with Daemon() as daemon, loader(daemon, LARGE, tensors="torch") as batches:
        batch = next(iter(batches))
        before = full(daemon)
        copies = [copy.deepcopy(batch["data"]), pickle.loads(pickle.dumps(batch["data"]))]
        expect(all(torch.equal(c, batch["data"]) for c in copies), "values")
        del batch
        wait_for(lambda: delivered(daemon) == before + 1, "given back")
        raises(pinclient.Forked, lambda: pickle.dumps(batches), "make it there")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_thousand_epochs():
    """Memory and descriptors stay as they are."""
    with Daemon() as daemon, loader(daemon, "synthetic:8:u8:8", 4, tensors="torch") as batches:
        for epoch in range(1000):
            for batch in batches:
                batch["data"], batch["index"]
            if epoch == 200:
                gc.collect()
                seen = resident(), len(os.listdir("/proc/self/fd")), daemon.fds()
        gc.collect()
        if not SANITIZED:
            expect(resident() - seen[0] < 1 << 20, f"{resident() - seen[0]} bytes more")
        expect_equal((len(os.listdir("/proc/self/fd")), daemon.fds()), seen[1:], "descriptors")
        expect_equal(batches.epoch, 1000, "epochs")


def test_hundred_loaders():
    with Daemon() as daemon:
        for i in range(110):
            with loader(daemon, tensors="torch") as batches:
                kept = next(iter(batches))["data"]
            if i == 10:
                seen = len(os.listdir("/proc/self/fd"))
        del kept
        gc.collect()
        expect(len(os.listdir("/proc/self/fd")) <= seen, "descriptors")
        wait_for(lambda: not daemon.jobs(), "no job is left")


def test_fork():
    with Daemon() as daemon, loader(daemon, LARGE, tensors="torch") as batches:
        steps = iter(batches)
        batch = next(steps)
        before = full(daemon)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                next(steps)
                text = "it went on"
            except pinclient.Forked as error:
                text = str(error)
            os.write(writer, text.encode())
            del batch, batches, steps
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        text = os.read(reader, 1000).decode()
        expect("forked" in text and str(os.getpid()) in text, text)
        expect_equal(given_back(daemon, before), 0, "the child gives nothing back")
        expect_equal(next(steps).step, batch.step + 1, "the parent goes on")


def test_interrupt():
    """Ctrl-C ends the wait for a batch that does not come, and the opening, at once."""
    wait = """
import pinclient, signal, time
batches = pinclient.Loader("synthetic:8:u8:4000000", 4, device="cpu")
steps = iter(batches)
print("waiting", flush=True)
try:
    while True:
        next(steps)
except KeyboardInterrupt:
    print("interrupted", len(batches))
"""
    with Daemon() as daemon:
        process = script(daemon, wait)
        expect_equal(process.stdout.readline(), "waiting\n", "it waits")
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        expect_equal(process.stdout.readline(), "interrupted 1000000\n", "an exception")
        expect(time.monotonic() - began < 1 + 4 * SANITIZED, "at once")
        daemon.process.send_signal(signal.SIGCONT)
        ends(process)
        daemon.process.send_signal(signal.SIGSTOP)
        opening = script(daemon, "import pinclient; print('go', flush=True)\n"
                         "pinclient.Loader('synthetic:8', 4, device='cpu')")
        expect_equal(opening.stdout.readline(), "go\n", "it opens")
        time.sleep(0.3)
        opening.send_signal(signal.SIGINT)
        daemon.process.send_signal(signal.SIGCONT)
        _, errors = opening.communicate(timeout=40)
        expect("KeyboardInterrupt" in errors, errors)


def test_timeout():
    with Daemon() as daemon, loader(daemon, LARGE, timeout=0.3) as batches:
        steps = iter(batches)
        next(steps)
        daemon.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        raises(pinclient.Timeout, lambda: [b.count for b in steps], "within 0.3 s")
        expect(time.monotonic() - began < 2, "in time")
        daemon.process.send_signal(signal.SIGCONT)
        expect(next(steps).count, "and goes on")


def test_reconnect():
    """The daemon is killed and started again: no batch is lost, none comes twice."""
    first = Daemon(check_exit=False).start()
    batches = loader(first, "synthetic:8:u8:4000", shuffle=True, reconnect=True)
    index = []
    for batch in batches:
        index += batch["index"].tolist()
        if len(index) == 200:
            first.process.kill()
            first.process.wait()
            second = Daemon(folder=first.folder).start()
    expect_equal(sorted(index), list(range(4000)), "indices")
    batches.close()
    second.stop()
    first.stop = lambda: None
    first.__exit__(None, None, None)


EXIT = """
import gc, sys, threading
import numpy, torch
import pinclient
batches = pinclient.Loader("synthetic:64:u8:4096", 4, device="cpu", depth=16, tensors=sys.argv[2])
steps = iter(batches)
first, second = next(steps), next(steps)
kept = first["data"], torch.from_dlpack(second["index"]), numpy.asarray(second["data"])
capsule = pinclient.Loader("synthetic:8", 4, device="cpu", tensors="dlpack").__iter__().__next__()[
    "data"].__dlpack__()
cycle = [first, batches]
cycle.append(cycle)
torch.kept = numpy.kept = sys.kept = sys.modules["pinclient"].kept = next(steps)["data"]
weight = torch.ones(64, requires_grad=True)
loss = (torch.from_dlpack(next(steps)["data"]).float() * weight).sum()
how = sys.argv[1]
if how == "closed":
    batches.close()
elif how == "deleted":
    del batches, steps, cycle
elif how == "raises":
    for batch in batches:
        raise ValueError(batch)
elif how == "exits":
    for batch in batches:
        sys.exit(3)
elif how == "a thread":
    threading.Thread(target=lambda: [b["data"] for b, _ in zip(batches, range(50))]).start()
elif how == "a daemon thread":
    threading.Thread(target=lambda: [b["data"] for b in batches], daemon=True).start()
"""


def test_ends_of_the_interpreter():
    """Whatever is alive when a program ends, it ends as it wants to, and says nothing."""
    wanted = {"ends": 0, "closed": 0, "deleted": 0, "raises": 1, "exits": 3, "a thread": 0,
              "a daemon thread": 0}
    with Daemon() as daemon:
        for how, status in wanted.items():
            for kind in ("torch", "dlpack")[:2 if how == "ends" else 1]:
                process = script(daemon, EXIT, how, kind)
                _, errors = process.communicate(timeout=120)
                expect_equal(process.returncode, status, f"{how}, {kind}: {errors}")
                expect(errors.count("Error") == (how == "raises"), f"{how}, {kind}: {errors}")
        wait_for(lambda: not daemon.jobs(), "nothing is left")


# -- private daemons -------------------------------------------------------------------------------

def processes_of(daemon):
    """The daemon and its command: the processes of its session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == daemon and fields[0] != "Z":
            found.append(pid)
    return found


PRIVATE = """
import pinclient, os, signal, sys
from pinclient import _private
batches = pinclient.Loader("synthetic:8:u8:64", 4, daemon="private", device="cpu")
other = pinclient.Loader("synthetic:8:u8:64", 4, daemon="private", device="cpu")
print(_private.shared()._process.pid, next(iter(batches)).count, flush=True)
how = sys.argv[1]
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "raises":
    raise ValueError("on purpose")
elif how == "a child stays":
    if os.fork() == 0:
        os.close(1), os.close(2)
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_private_daemon_ends_with_the_process():
    for how, status in (("ends", 0), ("killed", -9), ("raises", 1), ("a child stays", -9)):
        with Daemon() as daemon:
            process = script(daemon, PRIVATE, how)
            number, count = process.stdout.readline().split()
            output, errors = process.communicate(timeout=60)
            expect_equal((process.returncode, int(count)), (status, 4), f"{how}: {errors}")
            wait_for(lambda n=int(number): not processes_of(n), f"{how}: the daemon ends")
            expect_equal(daemon.jobs(), [], "the machine's daemon was not asked")


def test_private_daemon_of_ones_own():
    with pinclient.PrivateDaemon("device.use=host", "pool.max=256MiB") as daemon:
        with pinclient.Loader("synthetic:8:u8:64", 4, daemon=daemon, device="cpu") as batches:
            expect_equal(next(iter(batches)).count, 4, "a batch")
            daemon.close()
            raises(pinclient.DaemonGone, lambda: [b.count for b in batches])
        expect(not daemon.is_alive(), "it is gone")
    raises(pinclient.DaemonGone, lambda: pinclient.PrivateDaemon("pool.max=nonsense"), "status 1")


run([value for name, value in list(globals().items())
     if name.startswith("test_") and (not sys.argv[1:] or name in sys.argv[1:])])
