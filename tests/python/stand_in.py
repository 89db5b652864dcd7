"""Tensors on a GPU: what is said of them, and the streams that a release waits for. Against the
tests' stand-in for the driver, whose device memory this process can read; no framework runs on it.
gpu.py has the same with frameworks, on a real GPU."""

import ctypes

from common import (LARGE, Daemon, delivered, expect, expect_equal, full, loader, raises, run,
                    wait_for)

DELIVERIES = ("fd", "ipc", "copy", "mapped")


def on_gpu(daemon, **options):
    return loader(daemon, LARGE, device="cuda:0", tensors="dlpack", **options)


def test_values():
    """The same bytes as on the host, whatever the delivery."""
    with Daemon(driver=True) as daemon:
        with loader(daemon, LARGE, seed=5, shuffle=True) as host:
            wanted = [batch["data"].tobytes() for batch, _ in zip(host, range(6))]
        for delivery in DELIVERIES:
            with on_gpu(daemon, seed=5, shuffle=True, delivery=delivery) as batches:
                expect_equal(batches.delivery, delivery, "delivery")
                expect(batches.device.startswith("GPU-"), batches.device)
                for batch, bytes_wanted in zip(batches, wanted):
                    data = batch["data"]
                    expect_equal(data.device, "cuda:0", "device")
                    expect_equal(ctypes.string_at(data.pointer, data.nbytes), bytes_wanted,
                                 f"values by {delivery}")


def test_protocols():
    with Daemon(driver=True) as daemon, on_gpu(daemon) as batches:
        tensor = next(iter(batches))["data"]
        expect_equal(tensor.__dlpack_device__(), (2, 0), "DLPack's device")
        interface = tensor.__cuda_array_interface__
        expect_equal((interface["shape"], interface["typestr"], interface["strides"],
                      interface["data"], interface["version"]),
                     ((4, 64), "|u1", (64, 1), (tensor.pointer, False), 3), "array interface")
        expect(not hasattr(tensor, "__array_interface__"), "it is not on the host")
        for stream in (None, 1, -1):
            expect("dltensor" in repr(tensor.__dlpack__(stream=stream)), f"stream {stream}")
        raises(BufferError, lambda: tensor.__dlpack__(dl_device=(1, 0)), "cuda:0")


class Streams:
    """The driver, called by hand: a stream that is held up, and goes on when told."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value
        self.go = True
        # The driver's thread waits in C for this: it must not need the interpreter.
        self.gate = (ctypes.c_byte * 32)()
        libc = ctypes.CDLL(None)
        libc.sem_init(self.gate, 0, 0)
        self.post = lambda: libc.sem_post(self.gate)
        self.wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p)

    def call(self, name, *arguments):
        expect_equal(getattr(self.cuda, name)(*arguments), 0, name)

    def hold_up(self):
        self.call("cuLaunchHostFunc", ctypes.c_void_p(self.stream), self.wait, self.gate)


def test_release_follows_streams():
    """By the consumer's stream, by use(), by record_stream's way; not by a stream of nobody's."""
    streams = Streams()
    ways = {
        "dlpack": lambda batch: batch["data"].__dlpack__(stream=streams.stream),
        "use": lambda batch: batch.use(streams.stream),
        "a torch stream": lambda batch: batch.use(
            type("Stream", (), {"cuda_stream": streams.stream})),
        "a CuPy stream": lambda batch: batch.use(type("Stream", (), {"ptr": streams.stream})),
        "__cuda_stream__": lambda batch: batch.use(
            type("Stream", (), {"__cuda_stream__": lambda self: (0, streams.stream)})()),
    }
    with Daemon(driver=True) as daemon, on_gpu(daemon) as batches:
        steps = iter(batches)
        for name, way in ways.items():
            batch = next(steps)
            before = full(daemon)
            taken = way(batch)
            streams.hold_up()
            del batch, taken
            expect_equal(delivered(daemon), before, f"{name}: the stream has not passed")
            streams.post()
            wait_for(lambda n=before: delivered(daemon) == n + 1, f"{name}: given back")
        batch = next(steps)
        before = full(daemon)
        streams.hold_up()
        del batch
        wait_for(lambda: delivered(daemon) == before + 1, "no stream was named")
        streams.post()
        raises(TypeError, lambda: next(steps).use("a stream"), "not a CUDA stream")


run([test_values, test_protocols, test_release_follows_streams])
