#!/usr/bin/env python3
"""ResNet-50 fed by PyTorch's DataLoader in its ways and by pinserve, as a table in Markdown.

    article.py [--gpus N] [--seconds S] [--workers N] [--samples N] [--rows NAME,...]
               [--daemon private|SOCKET] [--model resnet50|tiny] [--cpu]

bf16, batch 64, a synthetic dataset of float32 (3, 224, 224). With several GPUs one process each,
DistributedDataParallel. The step is timed without a loader right before and right after each row,
and a row's share is of the mean of the two. A step is asked for at most one step ahead of the GPU,
in every row and without a loader, so that the wait for a batch is the loader's and not the GPU's.
The wait ends when the tensors are there; that the model wants another memory format is the step's.

Rows
  pageable   DataLoader, pin_memory=False
  pinned     DataLoader, pin_memory=True
  device     DataLoader, pin_memory=True, pin_memory_device (where this torch still has it)
  expert     DataLoader with all its options, copies and layout on a side stream, one batch ahead
  synthetic  pinserve, source synthetic
  push       pinserve, the same Python dataset through pinclient.torch.pin (left out where this
             package has none)

--seconds: of each row at the speed of the step without a loader. --cpu and --model tiny: on any
machine, to try the script. The daemon is started by this program, unless $PINSERVE_SOCKET is set.
"""

import argparse
import inspect
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler

ROWS = ("pageable", "pinned", "device", "expert", "synthetic", "push")
NAMES = {"pageable": "`pin_memory=False`", "pinned": "`pin_memory=True`",
         "device": "`pin_memory_device`", "expert": "expert's DataLoader",
         "synthetic": "pinserve `synthetic`", "push": "pinserve `push`"}
BATCH = 64
SHAPE = (3, 224, 224)


class Synthetic(Dataset):
    def __init__(self, samples):
        self.data = torch.empty((samples,) + SHAPE).uniform_(-1, 1)
        self.labels = torch.randint(0, 1000, (samples,))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], self.labels[i]


class Trainer:
    """A model and its step, on one device."""

    def __init__(self, options, rank, world):
        self.cuda = not options.cpu
        self.device = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        torch.backends.cudnn.benchmark = True
        if options.model == "tiny":
            model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, 4), torch.nn.ReLU(),
                                        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                        torch.nn.Linear(8, 1000))
        else:
            import torchvision
            model = torchvision.models.resnet50()
        model = model.to(self.device, memory_format=torch.channels_last)
        if world > 1:
            model = torch.nn.parallel.DistributedDataParallel(
                model, device_ids=[rank] if self.cuda else None)
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01)
        self.images = torch.randn((BATCH,) + SHAPE, device=self.device).to(
            memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (BATCH,), device=self.device)
        self.last = None

    def step(self, images, labels):
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if not self.cuda:
            return
        if self.last is not None:
            self.last.synchronize()
        self.last = torch.cuda.Event()
        self.last.record()

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def alone(self, steps):
        """Images a second of this process without a loader."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step(self.images, self.labels)
        self.synchronize()
        return steps * BATCH / (time.perf_counter() - start)

    def fed(self, batches, steps):
        """Images a second, and the seconds that each batch was waited for."""
        waits, warm = [], 5
        for i in range(steps + warm):
            if i == warm:
                self.synchronize()
                start = time.perf_counter()
            began = time.perf_counter()
            images, labels = next(batches)
            waited = time.perf_counter() - began
            if i >= warm:
                waits.append(waited)
            self.step(images.to(memory_format=torch.channels_last), labels)
            del images, labels
        self.synchronize()
        return steps * BATCH / (time.perf_counter() - start), sorted(waits)


def epochs(loader, sampler=None):
    epoch = 0
    while True:
        if sampler is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def moved(batches, device):
    for images, labels in batches:
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def prefetched(batches, device):
    """One batch ahead, copied and laid out on a side stream."""
    side = torch.cuda.Stream()

    def take():
        images, labels = next(batches)
        with torch.cuda.stream(side):
            images = images.to(device, non_blocking=True).contiguous(
                memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        return images, labels, done

    ahead = take()
    while True:
        images, labels, done = ahead
        ahead = take()
        current = torch.cuda.current_stream()
        current.wait_event(done)
        images.record_stream(current)
        labels.record_stream(current)
        yield images, labels
        del images, labels


def data_loader(options, dataset, rank, world, **arguments):
    """The DataLoader and its sampler."""
    if world > 1:
        sampler = DistributedSampler(dataset, world, rank, drop_last=True)
    else:
        sampler = RandomSampler(dataset)
    return DataLoader(dataset, BATCH, sampler=sampler, num_workers=options.workers, drop_last=True,
                      persistent_workers=True, **arguments), sampler


class Named:
    """A loader's tensors by name. Holds no batch: it goes with the trainer's tensors."""

    def __init__(self, loader):
        self.batches = epochs(loader)

    def __next__(self):
        batch = next(self.batches)
        return batch["data"], batch["label"]

    def close(self):
        self.batches.close()


def feed(row, options, dataset, rank, world, device):
    """Endless batches of a row; None: this machine has no such row."""
    arguments = {"pageable": {}, "pinned": {"pin_memory": True},
                 "device": {"pin_memory": True, "pin_memory_device": str(device)},
                 "expert": {"pin_memory": True, "prefetch_factor": 4}}
    if row == "device" and "pin_memory_device" not in inspect.signature(DataLoader).parameters:
        return None
    if row in arguments:
        loader, sampler = data_loader(options, dataset, rank, world, **arguments[row])
        batches = epochs(loader, sampler)
        if row == "expert" and not options.cpu:
            return prefetched(batches, device)
        return moved(batches, device)
    import pinclient
    if row == "synthetic":
        shape = "x".join(map(str, SHAPE))
        return Named(pinclient.Loader(f"synthetic:{shape}:f32:{len(dataset)}", BATCH, shuffle=True,
                                      rank=rank, world_size=world, drop_last=True, device=device,
                                      daemon=options.daemon, tensors="torch"))
    try:
        from pinclient.torch import pin
    except ImportError:
        return None
    loader, sampler = data_loader(options, dataset, rank, world, prefetch_factor=4)
    return epochs(pin(loader, device=device, daemon=options.daemon), sampler)


def agreed(value, world):
    """The same number in every process: the first one's."""
    if world > 1:
        values = [value]
        torch.distributed.broadcast_object_list(values)
        value = values[0]
    return value


def total(value, world, device):
    if world > 1:
        tensor = torch.tensor([value], dtype=torch.float64, device=device)
        torch.distributed.all_reduce(tensor)
        value = tensor.item()
    return value


def measure(rank, world, options):
    if not options.cpu:
        torch.cuda.set_device(rank)
    if world > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(options.port))
        torch.distributed.init_process_group("gloo" if options.cpu else "nccl", rank=rank,
                                             world_size=world)
    dataset = Synthetic(options.samples)
    trainer = Trainer(options, rank, world)
    trainer.alone(20)
    rate = agreed(trainer.alone(20), world)
    steps = max(20, int(options.seconds * rate / BATCH))
    short = max(10, steps // 3)
    if rank == 0:
        where = "CPU" if options.cpu else torch.cuda.get_device_name(rank)
        print(f"{options.model}, bf16, batch {BATCH}, float32 {SHAPE}, {options.workers} workers, "
              f"{world} x {where}, torch {torch.__version__}, {steps} steps a row\n")
        print("| loader | img/s | share of the step alone | wait mean ms | p50 ms | p99 ms |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for row in options.rows:
        batches = feed(row, options, dataset, rank, world, trainer.device)
        if batches is None:
            if rank == 0:
                print(f"| {NAMES[row]} | not there | | | | |", flush=True)
            continue
        before = total(trainer.alone(short), world, trainer.device)
        fed, waits = trainer.fed(batches, steps)
        batches.close()
        del batches
        fed = total(fed, world, trainer.device)
        after = total(trainer.alone(short), world, trainer.device)
        if rank == 0:
            mean, p50, p99 = (1e3 * value for value in (
                sum(waits) / len(waits), waits[len(waits) // 2], waits[int(0.99 * len(waits))]))
            print(f"| {NAMES[row]} | {fed:.0f} | {2 * fed / (before + after):.3f} | {mean:.3f} | "
                  f"{p50:.3f} | {p99:.3f} |", flush=True)
    if world > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--daemon",
                        default=None if os.environ.get("PINSERVE_SOCKET") else "private")
    parser.add_argument("--model", choices=("resnet50", "tiny"), default="resnet50")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--port", type=int, default=29431)
    options = parser.parse_args()
    options.rows = options.rows.split(",")
    for row in options.rows:
        if row not in ROWS:
            sys.exit(f"article.py: there is no row {row}; there are {', '.join(ROWS)}")
    if options.gpus == 1:
        measure(0, 1, options)
    else:
        torch.multiprocessing.spawn(measure, (options.gpus, options), options.gpus)


if __name__ == "__main__":
    main()
