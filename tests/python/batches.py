"""What a Loader yields: the values that the C client gets, without a copy, in every library's
hands."""

import io
import tarfile

import numpy
import torch

from common import (SMALL, Daemon, expect, expect_equal, folder, images, loader, pinclient, raises,
                    run)
from pinclient._tensor import taken

SHUFFLED = ["--source", SMALL, "--batch", "4", "--seed", "7", "--shuffle", "full"]


def of_c(daemon, *arguments):
    return [event for event in daemon.batches(*arguments, "--values") if event["event"] == "batch"]


def same(batch, event):
    expect_equal((batch.epoch, batch.step, batch.count),
                 (event["epoch"], event["step"], event["count"]), "batch")
    first = next(iter(batch))
    expect_equal(first, event["tensor"], "first tensor")
    expect_equal(list(batch[first].shape), event["shape"], "shape")
    expect_equal(numpy.asarray(batch[first]).tobytes().hex(), event["values"], "values")
    for name in ("index", "label", "status"):
        if name in batch:
            expect_equal(batch[name].tolist(), event[name], name)


def test_values_are_those_of_the_c_client():
    with Daemon() as daemon:
        for kind in ("numpy", "torch"):
            with loader(daemon, shuffle=True, seed=7, tensors=kind) as batches:
                wanted = of_c(daemon, *SHUFFLED, "--last", "pad", "--epochs", "2")
                expect_equal(len(wanted), 2 * len(batches), "steps")
                for epoch in range(2):
                    for step, batch in enumerate(batches):
                        same(batch, wanted[epoch * len(batches) + step])


def test_images():
    with folder() as path, Daemon() as daemon:
        n = images.make_folder(path, classes=3, each=5)
        wanted = of_c(daemon, "--source", f"folder:{path}", "--image", "random-crop:32", "--flip",
                      "0.5", "--batch", "5", "--seed", "3", "--shuffle", "full", "--epochs", "1")
        with loader(daemon, path, 5, image="random-crop:32", flip=0.5, seed=3, shuffle=True,
                    tensors="torch") as batches:
            expect_equal(batches.samples, n, "samples")
            for batch, event in zip(batches, wanted):
                same(batch, event)
                expect_equal(batch["image"].shape, (5, 32, 32, 3), "shape")
                expect_equal(batch["image"].dtype, torch.uint8, "dtype")
                expect_equal(batch["label"].dtype, torch.int64, "dtype")
                expect_equal(batch["label"].tolist(), [i // 5 for i in batch["index"].tolist()],
                             "labels")


def test_records_and_tokens():
    with folder() as path, Daemon() as daemon:
        array = numpy.arange(10 * 6, dtype="i2").reshape(10, 2, 3)
        numpy.save(f"{path}/a.npy", array)
        numpy.save(f"{path}/l.npy", numpy.arange(10) * 3)
        with loader(daemon, f"records:{path}/a.npy,labels={path}/l.npy", 4,
                    tensors="torch") as batches:
            for batch in batches:
                expect_equal(batch["data"].dtype, torch.int16, "dtype")
                expect_equal(batch["data"].tolist(), array[batch["index"]].tolist(), "values")
                expect_equal(batch["label"].tolist(), [i * 3 for i in batch["index"].tolist()],
                             "labels")
        tokens = numpy.arange(1000, dtype="u2")
        tokens.tofile(f"{path}/t.bin")
        with loader(daemon, f"tokens:{path}/t.bin,position,document", 4, seq=16,
                    tensors="torch") as batches:
            for batch in batches:
                expect_equal(batch["position"].dtype, torch.int64, "dtype")
                expect_equal(batch["position"].tolist(), batch["tokens"].tolist(), "positions")
                expect_equal(batch["document"].shape, batch["tokens"].shape, "shape")
                expect_equal(int(batch["document"].max()), 0, "the one document")
        with loader(daemon, f"tokens:{path}/t.bin,out=i64", 4, seq=16, tensors="torch") as batches:
            expect_equal(batches.samples, (1000 - 17) // 16 + 1, "windows")
            for batch in batches:
                expect_equal(batch["tokens"].dtype, torch.int64, "dtype")
                expect_equal(batch["tokens"].tolist(),
                             [list(range(16 * i, 16 * i + 17)) for i in batch["index"].tolist()],
                             "values")


def write_fields(path, count):
    """Samples of an image, a label, a caption and an array; returns the arrays and captions."""
    arrays = [numpy.full((2, 3), i / 4, "f2") for i in range(count)]
    captions = [b"%d words" % i * (i % 3) for i in range(count)]
    with tarfile.open(path, "w") as tar:
        for i, (array, caption) in enumerate(zip(arrays, captions)):
            out = io.BytesIO()
            numpy.save(out, array)
            for field, data in (("jpg", images.jpeg(i)), ("cls", b"%d" % (i * 2)),
                                ("txt", caption), ("emb.npy", out.getvalue())):
                info = tarfile.TarInfo(f"{i:03}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return arrays, captions


def test_fields_of_tar_samples():
    """By their names, in NumPy's and in PyTorch's hands, and beside a transformed image."""
    with folder() as path, Daemon() as daemon:
        arrays, captions = write_fields(f"{path}/a.tar", 10)
        source = f"tar:{path}/a.tar,fields=jpg+cls+txt:20+emb.npy"
        for kind, transform in (("numpy", None), ("torch", None), ("torch", pinclient.Normalize())):
            with loader(daemon, source, 4, image="center-crop:16", shuffle=True, tensors=kind,
                        transform=transform) as batches:
                for batch in batches:
                    expect_equal(list(batch), ["image", "label", "index", "status", "txt",
                                               "txt.size", "emb.npy"], "tensors")
                    expect_equal(tuple(batch["txt"].shape), (4, 20), "shape")
                    for row, i in enumerate(batch["index"].tolist()):
                        expect_equal(batch["label"][row].item(), 2 * i, "label")
                        size = batch["txt.size"][row].item()
                        text = bytes(batch["txt"][row].tolist())
                        expect_equal((text[:size], text[size:].strip(b"\0")), (captions[i], b""),
                                     "caption")
                        expect_equal(batch["emb.npy"][row].tolist(), arrays[i].tolist(), "array")
                if kind == "torch":
                    expect_equal(batch["emb.npy"].dtype, torch.float16, "dtype")
        with loader(daemon, f"tar:{path}/a.tar,fields=emb.npy+cls", 4) as batches:
            first = next(iter(batches))
            expect_equal(list(first), ["emb.npy", "label", "index", "status"], "without an image")
            expect_equal(first["emb.npy"].tolist(), [a.tolist() for a in arrays[:4]], "arrays")
        with loader(daemon, f"tar:{path}/a.tar,fields=emb.npy", 4,
                    transform=pinclient.Normalize()) as batches:
            raises(ValueError, lambda: next(iter(batches)), "emb.npy: float16[4, 2, 3]")


def test_type_that_a_library_lacks():
    """What is refused is not leased any more when the batch is gone."""
    def refuse(capsule):
        raise BufferError("not this one")

    with folder() as path, Daemon() as daemon:
        numpy.save(f"{path}/r.npy", numpy.arange(64, dtype=numpy.uint16).reshape(32, 2))
        with loader(daemon, f"records:{path}/r.npy", 2, depth=2) as batches:
            for step, batch in enumerate(batches):
                raises(BufferError, lambda b=batch: taken(b._lease, batches._layouts["data"],
                                                          refuse), "not this one")
                expect_equal(batch["data"].tolist(), [[4 * step, 4 * step + 1],
                                                      [4 * step + 2, 4 * step + 3]], "values")
            expect_equal(step, 15, "the last step")


def test_one_epoch_has_each_index_once():
    with Daemon() as daemon, loader(daemon, shuffle=True) as batches:
        for _ in range(2):
            index = numpy.concatenate([b["index"].copy() for b in batches])
            status = 26 * [0] + 2 * [1]
            expect_equal(sorted(index[:26].tolist()), list(range(26)), "indices")
            expect_equal(index[26:].tolist(), index[:2].tolist(), "padding begins again")
        last = [b["status"].copy() for b in batches]
        expect_equal(numpy.concatenate(last).tolist(), status, "padding is marked")
    with Daemon() as daemon, loader(daemon, drop_last="partial") as batches:
        expect_equal([b.count for b in batches], [4] * 6 + [2], "a short last batch")
    with Daemon() as daemon, loader(daemon, drop_last=True) as batches:
        expect_equal(len(list(b.count for b in batches)), 6, "without the last batch")


def test_no_copy():
    """Every library's tensor lies where the daemon's bytes lie."""
    with Daemon() as daemon, loader(daemon, tensors="dlpack") as batches:
        batch = next(iter(batches))
        for name in batch:
            tensor = batch[name]
            array = numpy.asarray(tensor)
            for address in (array.ctypes.data, numpy.from_dlpack(tensor).ctypes.data,
                            torch.from_dlpack(tensor).data_ptr()):
                expect_equal(address, tensor.pointer, f"address of {name}")
            expect(not array.flags.writeable, f"{name} is read-only")
            expect_equal(str(array.dtype), tensor.dtype, f"type of {name}")
            expect_equal(array.shape, tensor.shape, f"shape of {name}")
            expect_equal(array.nbytes, tensor.nbytes, f"bytes of {name}")
            expect_equal(tensor.__dlpack_device__(), (1, 0), "device")
            expect(not hasattr(tensor, "__cuda_array_interface__"), "it is not on a GPU")
            expect_equal(torch.from_dlpack(tensor).tolist(), array.tolist(), f"values of {name}")


def test_dlpack_requests():
    with Daemon() as daemon, loader(daemon, tensors="dlpack") as batches:
        tensor = next(iter(batches))["index"]
        expect("dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 1))), "version 1")
        expect('"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8))), "version 0")
        expect('"dltensor"' in repr(tensor.__dlpack__(stream=None, dl_device=(1, 0), copy=False)),
               "arguments")
        raises(BufferError, lambda: tensor.__dlpack__(copy=True), "no copies")
        raises(BufferError, lambda: tensor.__dlpack__(dl_device=(2, 0)), "index", "cpu")


def test_mapping():
    with Daemon() as daemon, loader(daemon) as batches:
        expect_equal(len(batches), 7, "len, which tqdm asks for")
        batch = next(iter(batches))
        expect_equal(list(batch), ["data", "label", "index", "status"], "names")
        expect_equal(len(batch), 4, "tensors")
        expect("index" in batch and "image" not in batch, "in")
        raises(KeyError, lambda: batch["image"], "image", "there are data, label, index, status")
        expect(batch["index"] is batch["index"], "a tensor is made once")
        expect_equal(sorted(dict(batch)), ["data", "index", "label", "status"], "dict")
        batch.release()
        raises(pinclient.Error, lambda: batch["index"], "released already")


def reference(batch, image, mean, std):
    pixels = numpy.asarray(image).astype(numpy.float64) / 255
    return (pixels - numpy.array(mean)) / numpy.array(std)


def test_transform():
    """Equal to the same in float64, rounded once; and the batch is given back at once."""
    kinds = [("torch", dtype, layout) for dtype in (torch.float32, torch.float16, torch.bfloat16)
             for layout in ("NCHW", "NHWC")]
    kinds += [("numpy", dtype, layout) for dtype in ("float32", numpy.float16)
              for layout in ("NCHW", "NHWC")]
    with folder() as path, Daemon() as daemon:
        images.make_folder(path, classes=2, each=4)
        for kind, dtype, layout in kinds:
            normal = pinclient.Normalize(dtype=dtype, layout=layout)
            options = {"image": "center-crop:24", "depth": 2}
            with loader(daemon, path, 4, **options) as plain, \
                    loader(daemon, path, 4, tensors=kind, transform=normal, **options) as floats:
                kept = list(floats)
                for raw, made in zip(plain, kept):
                    exact = torch.tensor(reference(raw, raw["image"], normal.mean, normal.std))
                    got = torch.as_tensor(made["image"])
                    if kind == "torch":
                        expect_equal(made["image"].dtype, dtype, "dtype")
                        expect_equal(made["image"].is_contiguous(
                            memory_format=torch.channels_last if layout == "NHWC" else
                            torch.contiguous_format), True, "memory format")
                    if kind == "torch" or layout == "NCHW":
                        got = got.permute(0, 2, 3, 1)
                    expect(torch.equal(got, exact.to(got.dtype)), f"{kind} {dtype} {layout}")
                    for name in ("label", "index", "status"):
                        expect_equal(made[name].tolist(), raw[name].tolist(), name)


def test_transform_of_part():
    """The last batch may be shorter; and tensors are as independent as they look."""
    with folder() as path, Daemon() as daemon:
        images.make_folder(path, classes=2, each=5)
        options = {"image": "center-crop:16", "drop_last": "partial"}
        with loader(daemon, path, 4, **options) as plain, \
                loader(daemon, path, 4, tensors="torch", transform=pinclient.Normalize(),
                       **options) as floats:
            kept = list(floats)
            expect_equal([batch["image"].shape[0] for batch in kept], [4, 4, 2], "samples")
            for raw, made in zip(plain, kept):
                weight = torch.ones(len(made["index"]), requires_grad=True)
                product = weight * made["index"]
                made["label"][:] = -100
                made["status"][:] = 9
                product.sum().backward()
                expect_equal(weight.grad.tolist(), raw["index"].tolist(), "gradient")
                expect(made["index"] is made["index"], "made once")
                expect_equal(made["status"].tolist(), [9] * raw.count, "status")
                raises(KeyError, lambda m=made: m["nothing"], "nothing")


def test_transform_refuses():
    with Daemon() as daemon:
        normal = pinclient.Normalize()
        raises(ValueError, lambda: pinclient.Normalize(dtype="int8"), "int8", "bfloat16")
        raises(ValueError, lambda: pinclient.Normalize((0.5,), (0.5, 0.5)), "1 and 2")
        raises(ValueError, lambda: loader(daemon, tensors="dlpack", transform=normal), "torch")
        with loader(daemon, tensors="torch", transform=normal) as batches:
            raises(ValueError, lambda: next(iter(batches)), "uint8 images", "data")


def test_devices():
    with Daemon() as daemon:
        for device in (None, "cpu", "host", torch.device("cpu"), ""):
            for kind in ("torch", "numpy"):
                with loader(daemon, device=device, tensors=kind) as batches:
                    expect_equal((batches.device, batches.delivery), ("host", "host"), device)
        with loader(daemon, device=None, tensors="numpy", pin_memory_device="") as batches:
            expect_equal(batches.device, "host", "as DataLoader's default")
        for device, named in (("cuda", "cuda:0"), ("cuda:1", "cuda:1"), (3, "cuda:3"),
                              (torch.device("cuda", 2), "cuda:2")):
            raises(pinclient.Error, lambda d=device: loader(daemon, device=d), named)


def test_errors():
    with Daemon() as daemon:
        raises(pinclient.Error, lambda: loader(daemon, "/no/such/folder"), "/no/such/folder")
        raises(pinclient.Error, lambda: loader(daemon, "cube:3"), "cube")
        raises(pinclient.Error, lambda: loader(daemon, image="crop:3"), "crop")
        raises(pinclient.Error, lambda: loader(daemon, depth=500), "500")
        raises(TypeError, lambda: loader(daemon, batch_size="4"), "batch '4': of type str")
        raises(ValueError, lambda: loader(daemon, batch_size=2 ** 32 + 4), "batch 4294967300")
        raises(ValueError, lambda: loader(daemon, seed=-1), "seed -1")
        raises(TypeError, lambda: loader(daemon, image=224), "image 224: of type int")
        raises(pinclient.Error, lambda: loader(daemon, device="cuda:77"), "cuda:77")
        raises(ValueError, lambda: loader(daemon, drop_last="pad"), "partial")
        raises(ValueError, lambda: loader(daemon, rank=1), "world_size")
        raises(ValueError, lambda: loader(daemon, pin_memory_device="cuda:1"), "the same")
        gone = raises(pinclient.DaemonGone, lambda: pinclient.Loader(SMALL, daemon="/no/socket"),
                      "/no/socket")
        expect_equal(gone.errno, 2, "errno")
        expect(isinstance(gone, OSError), "an OSError")


def test_bad_sample():
    with folder() as path, Daemon() as daemon:
        images.make_folder(path, classes=1, each=3)
        with open(f"{path}/c0/bad.jpg", "wb") as file:
            file.write(b"no jpeg")
        batches = loader(daemon, path, 2, image="center-crop:16")
        raises(pinclient.BadSample, lambda: [b.count for b in batches], "bad.jpg")
        for bad, index, status in (("substitute", [0, 1, 2, 0], [0, 0, 0, 2]),
                                   ("blank:25%", [0, 1, 2, 3], [0, 0, 0, 3])):
            with loader(daemon, path, 4, image="center-crop:16", bad=bad) as whole:
                batch = next(iter(whole))
                expect_equal((batch["index"].tolist(), batch["status"].tolist()), (index, status),
                             f"bad samples with {bad}")
                del batch
        raises(pinclient.Error, lambda: loader(daemon, path, 2, image="center-crop:16", bad="skip"),
               "skip")


run([test_values_are_those_of_the_c_client, test_images, test_records_and_tokens, test_fields_of_tar_samples,
     test_type_that_a_library_lacks, test_one_epoch_has_each_index_once, test_no_copy, test_dlpack_requests, test_mapping,
     test_transform, test_transform_of_part, test_transform_refuses, test_devices,
     test_errors, test_bad_sample])
