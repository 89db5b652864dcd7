"""gpu.py [TEST...]: the Python package on a machine with a GPU, with the frameworks that are there.

$PINSERVE_BIN is a folder with pinserved, pinserved-device, pinctl and libpinclient.so.0;
$PINSERVE_GPU is to be set. PyTorch is needed, CuPy and JAX are used when they are there. With more
GPUs than one, test_mesh uses two.
"""

import importlib.util
import json
import subprocess
import sys
import time

import numpy
import torch

from common import (LARGE, PACKAGE, Daemon, delivered, environment, expect, expect_equal, folder,
                    full, images, loader, pinclient, run, wait_for)

PHOTOS = {"image": "random-crop:224", "flip": 0.5, "seed": 11, "shuffle": True}
BUSY_CYCLES = 40_000_000  # about 20 ms


def have(name):
    found = importlib.util.find_spec(name) is not None
    if not found:
        print(f"     no {name} here")
    return found


def on_gpu(daemon, source=LARGE, batch_size=4, **options):
    options.setdefault("tensors", "torch")
    return loader(daemon, source, batch_size, device="cuda:0", **options)


def test_values():
    """Equal to the host device's, on each rung; and the device is torch's current one."""
    with folder() as path, Daemon(driver=True) as daemon:
        images.make_folder(path, classes=4, each=16)
        with loader(daemon, path, 8, **PHOTOS) as host:
            wanted = [{name: numpy.array(tensor) for name, tensor in batch.items()}
                      for batch in host]
        for delivery in ("fd", "ipc", "copy", "mapped"):
            with pinclient.Loader(path, 8, daemon=daemon.socket, delivery=delivery,
                                  **PHOTOS) as batches:
                expect_equal(batches.delivery, delivery, "delivery")
                for batch, right in zip(batches, wanted):
                    for name, tensor in batch.items():
                        expect_equal(str(tensor.device), "cuda:0", "device")
                        expect(numpy.array_equal(tensor.cpu().numpy(), right[name]),
                               f"{name} by {delivery}")


def test_no_copy():
    with Daemon(driver=True) as daemon, on_gpu(daemon, tensors="dlpack") as batches:
        batch = next(iter(batches))
        data, before = batch["data"], full(daemon)
        taken = torch.from_dlpack(data)
        expect_equal(taken.data_ptr(), data.pointer, "torch by DLPack")
        expect_equal(torch.as_tensor(data, device="cuda:0").data_ptr(), data.pointer,
                     "torch by the array interface")
        right = taken.cpu().numpy()
        if have("cupy"):
            import cupy
            for name, got in (("from_dlpack", cupy.from_dlpack(data)),
                              ("asarray", cupy.asarray(data))):
                expect_equal(got.data.ptr, data.pointer, f"cupy.{name}")
                expect(numpy.array_equal(got.get(), right), f"cupy.{name}: values")
            del got
        if have("jax"):
            import jax
            got = jax.dlpack.from_dlpack(data)
            expect_equal(got.unsafe_buffer_pointer(), data.pointer, "jax")
            expect(numpy.array_equal(numpy.asarray(got), right), "jax: values")
            del got
        del batch, data
        time.sleep(0.1)
        expect_equal(delivered(daemon), before, "torch has it still")
        del taken
        wait_for(lambda: delivered(daemon) == before + 1, "given back")


def release_is_ordered(daemon, name, say, current):
    """Reads each batch late, behind a busy kernel on a stream of its own, long after Python has
    dropped it; what was read must be the batch, not its successor in the ring."""
    side = torch.cuda.Stream()
    got = []
    with on_gpu(daemon, "synthetic:1048576:u8:4096", 4, depth=2) as batches:
        for batch in batches:
            with torch.cuda.stream(side if not current else torch.cuda.current_stream()):
                torch.cuda._sleep(BUSY_CYCLES)
                got.append(batch["data"].sum(dtype=torch.int64))
            say(batch, side)
            if batch.step == 20:
                break
            del batch
        torch.cuda.synchronize()
    with loader(daemon, "synthetic:1048576:u8:4096", 4) as host:
        wanted = [int(batch["data"].sum(dtype=numpy.int64)) for batch, _ in zip(host, got)]
    expect_equal([int(value) for value in got], wanted, name)


def test_release_follows_streams():
    with Daemon(driver=True) as daemon:
        release_is_ordered(daemon, "the current stream", lambda batch, side: None, True)
        release_is_ordered(daemon, "taken on a side stream", lambda batch, side: None, False)
        release_is_ordered(daemon, "use", lambda batch, side: batch.use(side), False)
        release_is_ordered(daemon, "record_stream",
                           lambda batch, side: batch["data"].record_stream(side), False)


def test_use_of_a_stream_is_needed_and_works():
    """Taken on the default stream, used on another: named, its work passes before the release."""
    with Daemon(driver=True) as daemon, on_gpu(daemon) as batches:
        side, steps = torch.cuda.Stream(), iter(batches)
        for way in ("use", "record_stream"):
            batch = next(steps)
            before = full(daemon)
            data = batch["data"]
            with torch.cuda.stream(side):
                torch.cuda._sleep(50 * BUSY_CYCLES)
            (batch.use if way == "use" else data.record_stream)(side)
            del batch, data
            expect_equal(delivered(daemon), before, f"{way}: the stream has not passed")
            side.synchronize()
            wait_for(lambda n=before: delivered(daemon) == n + 1, f"{way}: given back")


def test_capture():
    """A batch that goes while a graph is captured is given back afterwards."""
    with Daemon(driver=True) as daemon, on_gpu(daemon) as batches:
        steps = iter(batches)
        batch = next(steps)
        data, before = batch["data"], full(daemon)
        static = torch.empty_like(data)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static.copy_(data)
            batch.use(torch.cuda.current_stream())
            del batch, data
        next(steps)
        wait_for(lambda: delivered(daemon) > before, "given back")


def test_autograd_keeps_a_batch():
    with Daemon(driver=True) as daemon, on_gpu(daemon, "synthetic:64:f32:4096") as batches:
        weight = torch.ones(64, device="cuda", requires_grad=True)
        batch = next(iter(batches))
        right, before = batch["data"].sum(0), full(daemon)
        loss = (batch["data"] * weight).sum()
        del batch
        time.sleep(0.1)
        expect_equal(delivered(daemon), before, "the graph has it")
        loss.backward()
        del loss
        expect(torch.equal(weight.grad, right), "gradient")
        wait_for(lambda: delivered(daemon) == before + 1, "given back")


def test_transform():
    """Equal to float64, rounded once, in tensors that may be kept."""
    with folder() as path, Daemon(driver=True) as daemon:
        images.make_folder(path, classes=4, each=8)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for layout in ("NCHW", "NHWC"):
                normal = pinclient.Normalize(dtype=dtype, layout=layout)
                with on_gpu(daemon, path, 8, depth=2, transform=normal, **PHOTOS) as floats, \
                        on_gpu(daemon, path, 8, **PHOTOS) as plain:
                    for made, raw in zip(list(floats), plain):
                        mean, std = (torch.tensor(v, dtype=torch.float64, device="cuda")
                                     for v in (normal.mean, normal.std))
                        exact = ((raw["image"].double() / 255 - mean) / std).permute(0, 3, 1, 2)
                        expect_equal((made["image"].dtype, made["image"].shape),
                                     (dtype, exact.shape), "what it is")
                        expect(torch.equal(made["image"], exact.to(dtype)), f"{dtype} {layout}")
                        expect_equal(made["image"].is_contiguous(
                            memory_format=torch.channels_last if layout == "NHWC" else
                            torch.contiguous_format), True, "memory format")
                        for name in ("label", "index", "status"):
                            expect(torch.equal(made[name], raw[name]), name)


MESH = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
import pinclient

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
world = dist.get_world_size()
mesh = init_device_mesh("cuda", (world, 1), mesh_dim_names=("dp", "tp"))
loader = pinclient.Loader("synthetic:16:f32:64", 4, shuffle=True, mesh=mesh, mesh_dim="dp")
index, total = [], 0.0
for batch in loader:
    whole = DTensor.from_local(batch["data"], mesh["dp"], [Shard(0)])
    assert whole.shape == (4 * world, 16), whole.shape
    assert whole.to_local().data_ptr() == batch["data"].data_ptr()
    total += float(whole.sum().full_tensor())
    index += batch["index"].tolist()
with open(os.path.join(sys.argv[1], f"rank{dist.get_rank()}"), "w") as file:
    json.dump({"index": index, "total": total, "device": str(batch["data"].device)}, file)
dist.destroy_process_group()
"""


def test_mesh():
    """A step's tensors are the local shards of DTensors."""
    world = min(2, torch.cuda.device_count())
    with folder() as path, Daemon(driver=True) as daemon:
        with open(f"{path}/mesh.py", "w") as file:
            file.write(MESH)
        got = subprocess.run(
            [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(world), f"{path}/mesh.py", path], text=True,
            capture_output=True, timeout=200,
            env=environment(True, PINSERVE_SOCKET=daemon.socket, PYTHONPATH=PACKAGE))
        expect_equal(got.returncode, 0, got.stderr[-2000:])
        ranks = []
        for rank in range(world):
            with open(f"{path}/rank{rank}") as file:
                ranks.append(json.load(file))
        expect_equal(sorted(i for rank in ranks for i in rank["index"]), list(range(64)),
                     "each sample on one rank")
        expect_equal([rank["device"] for rank in ranks], [f"cuda:{r}" for r in range(world)],
                     "devices")


def test_waits():
    """No assertion: how long a step waits for a batch that is ready, beside a kernel of 5 ms."""
    with Daemon(driver=True) as daemon:
        for name, options in (("leased", {}), ("transform", {"transform": pinclient.Normalize()}),
                              ("dlpack", {"tensors": "dlpack"})):
            with on_gpu(daemon, "synthetic:224x224x3:u8:65536", 64, depth=8,
                        **options) as batches:
                waits, steps = [], iter(batches)
                for step in range(400):
                    began = time.perf_counter()
                    batch = next(steps)
                    image, label = batch["data"], batch["label"]
                    waits.append((time.perf_counter() - began) * 1e6)
                    torch.cuda._sleep(BUSY_CYCLES // 4)
                    if step % 4 == 0:
                        torch.cuda.synchronize()
                        time.sleep(0.01)  # what was released is made anew
                del batch, image, label
                waits = sorted(waits[20:])
                print(f"     {name:10} wait us: mean {sum(waits) / len(waits):7.1f} p50 "
                      f"{waits[len(waits) // 2]:7.1f} p99 {waits[len(waits) * 99 // 100]:7.1f}")


run([test_values, test_no_copy, test_release_follows_streams,
     test_use_of_a_stream_is_needed_and_works, test_capture, test_autograd_keeps_a_batch,
     test_transform, test_mesh, test_waits])
