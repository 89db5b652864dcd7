"""pinclient.torch.pin: what a DataLoader gives, through slots of the daemon's."""

import collections
import gc
import os
import random
import signal
import sys

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

from common import SANITIZED, Daemon, expect, expect_equal, pinclient, raises, run, wait_for
from pinclient.torch import pin

Pair = collections.namedtuple("Pair", "left right")


class Samples(Dataset):
    """Of every kind of value, with random ones among them."""

    def __init__(self, n=26):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"image": torch.full((3, 5), float(i)), "index": i, "name": f"sample {i}",
                "pair": Pair(numpy.full(2, i, numpy.int16), (torch.tensor(i % 2 == 0),)),
                "noise": torch.rand(2), "other": random.random()}


class Faulty(Samples):
    """Ends its process, or raises, at sample 17."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def __getitem__(self, i):
        if i == 17 and self.end:
            os.kill(os.getpid(), signal.SIGKILL)
        if i == 17:
            raise KeyError("no sample 17")
        return torch.tensor(i)


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(9))


def own_collate(samples):
    return [torch.stack([sample["image"] for sample in samples]).bfloat16(), len(samples)]


def data_loader(**options):
    options.setdefault("batch_size", 4)
    if options.get("num_workers") == 0:
        options.pop("multiprocessing_context", None)
    return DataLoader(Samples(), shuffle=True, generator=torch.Generator().manual_seed(7),
                      **options)


def seed():
    torch.manual_seed(1)
    random.seed(2)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def compare(daemon, **options):
    """Two passes of the plain loader and of the pinned one."""
    seed()
    plain = data_loader(**options)
    wanted = [list(plain), list(plain)]
    seed()
    with pin(data_loader(**options), device="cpu", daemon=daemon.socket) as pinned:
        expect_equal(len(pinned), len(plain), "steps")
        for epoch in wanted:
            steps = 0
            for got, batch in zip(pinned, epoch):
                expect(same(batch, got), f"{options}: {got} is not {batch}")
                steps += 1
            expect_equal(steps, len(epoch), "steps of a pass")
            got = None


def test_the_same_as_the_loader():
    with Daemon() as daemon:
        compare(daemon, num_workers=0)
        compare(daemon, num_workers=0, drop_last=True)
        compare(daemon, num_workers=2, multiprocessing_context="fork")
        compare(daemon, num_workers=2, persistent_workers=True, prefetch_factor=3)
        compare(daemon, num_workers=2, collate_fn=own_collate)


def test_spawned_workers():
    with Daemon() as daemon:
        compare(daemon, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)


def test_samplers_of_ones_own():
    class Uneven(BatchSampler):
        def __iter__(self):
            return iter([[1, 2], [3], [4, 5, 6]])

        def __len__(self):
            return 3

    samples = Samples()
    with Daemon() as daemon:
        loader = DataLoader(samples, batch_sampler=Uneven(RandomSampler(samples), 3, False))
        with pin(loader, device="cpu", daemon=daemon.socket) as pinned:
            expect_equal([batch["index"].tolist() for batch in pinned], [[1, 2], [3], [4, 5, 6]],
                         "batches")
        with pin(samples, device="cpu", daemon=daemon.socket, batch_size=8) as pinned:
            expect_equal([len(batch["index"]) for batch in pinned], [8, 8, 8, 2], "a dataset alone")


def test_passes_that_are_left():
    with Daemon() as daemon:
        for options in ({"num_workers": 0}, {"num_workers": 2},
                        {"num_workers": 2, "persistent_workers": True}):
            with pin(data_loader(**options), device="cpu", daemon=daemon.socket) as pinned:
                for left in (1, 3, 5):
                    passing = iter(pinned)
                    for _ in range(left):
                        next(passing)
                seen = sorted(i for batch in pinned for i in batch["index"].tolist())
                expect_equal(seen, list(range(26)), f"a whole pass, {options}")
                raises(RuntimeError, lambda: next(passing), "this pass has ended")


def test_a_worker_that_dies_and_one_that_fails():
    with Daemon() as daemon:
        # PyTorch may hear of the end in two ways; each text names the worker.
        for end, kind, text in ((True, RuntimeError, "DataLoader worker (pid"),
                                (False, KeyError, "no sample 17")):
            loader = DataLoader(Faulty(end), 4, num_workers=2)
            with pin(loader, device="cpu", daemon=daemon.socket) as pinned:
                raises(kind, lambda: list(batch.sum() for batch in pinned), text)
                loader.dataset.end = None
                expect_equal(next(iter(pinned)).tolist(), [0, 1, 2, 3], "the next pass")
        gc.collect()  # an exception's frames, which have batches
        wait_for(lambda: daemon.jobs() == [], "the jobs are gone")
        wait_for(lambda: sum(pool["regions"] for pool in daemon.ask("pools")["pools"]) == 0,
                 "the regions are gone")


def test_what_cannot_be_pinned():
    with Daemon() as daemon:
        def pinned(*arguments, **options):
            return pin(*arguments, device="cpu", daemon=daemon.socket, **options)
        raises(TypeError, lambda: pinned(DataLoader(Numbers(), 2)), "with indices")
        raises(TypeError, lambda: pinned(data_loader(), batch_size=3), "batch_size")
        raises(ValueError, lambda: pinned(["a", "b"], batch_size=2), "a batch of 0 tensors")
        ragged = [torch.zeros(2), torch.zeros(2), torch.zeros(3)]
        raises(ValueError, lambda: list(pinned(ragged, batch_size=1)), "(3,)", "(2,)")
        with pinned(data_loader(num_workers=0)) as batches:
            raises(pinclient.AllLeased, lambda: list(batches), "depth=")
    raises(pinclient.DaemonGone, lambda: pinned(data_loader()))


def test_tensors_outlive_the_loader():
    with Daemon() as daemon:
        pinned = pin(data_loader(), device="cpu", daemon=daemon.socket)
        batch = next(iter(pinned))
        wanted = batch["image"].clone()
        pinned.close()
        del pinned
        gc.collect()
        expect(torch.equal(batch["image"], wanted), "the memory is valid")
        del batch
        wait_for(lambda: daemon.jobs() == [], "the job is gone")


def test_a_daemon_that_ends():
    with Daemon() as daemon:
        with pin(data_loader(), device="cpu", daemon=daemon.socket) as pinned:
            def go_on():
                for _ in pinned:
                    daemon.stop()
            raises(pinclient.DaemonGone, go_on)


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_100_epochs_leave_nothing():
    with Daemon() as daemon:
        loader = DataLoader(list(range(40)), 4, num_workers=1, persistent_workers=True)
        with pin(loader, device="cpu", daemon=daemon.socket) as pinned:
            for epoch in range(100):
                expect_equal([int(batch.sum()) for batch in pinned],
                             [sum(range(i, i + 4)) for i in range(0, 40, 4)], "an epoch")
                if epoch == 20:
                    before = len(os.listdir("/proc/self/fd")), daemon.fds(), rss()
            expect_equal(len(os.listdir("/proc/self/fd")), before[0], "descriptors here")
            expect_equal(daemon.fds(), before[1], "descriptors of the daemon")
            expect(SANITIZED or rss() - before[2] < 8 << 20, f"{rss() - before[2]} bytes more")


if __name__ == "__main__":
    run([value for name, value in list(globals().items())
         if name.startswith("test_") and (not sys.argv[1:] or name in sys.argv[1:])])
