"""Samples of several fields: what tarfile wrote comes out as Pillow, NumPy and the bytes have it."""

import io
import json
import os
import tarfile

import arrays
import images
import numpy
from PIL import Image
from daemon import Daemon, Failed, expect, expect_equal, folder, run

COUNT = 12
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
HOST = ["--device", "host"]
INORDER = [*HOST, "--shuffle", "none", "--last", "partial", "--values"]


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_tar(path, samples, form=tarfile.PAX_FORMAT):
    """samples: key -> field -> bytes"""
    with tarfile.open(path, "w", format=form) as tar:
        for key, fields in samples.items():
            for field, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def pixels_of(i):
    return numpy.random.default_rng(i).integers(0, 256, (16, 16, 3), "u1")


def samples(n=COUNT):
    """Of every kind of field. Images of 16 x 16 pixels pass a center crop of 16 as they are."""
    made = {}
    for i in range(n):
        made[f"d.x/{i:03}"] = {
            "json": json.dumps({"i": i, "text": "\u00e4" * (i % 4)}).encode(),
            "cls": str(i % 5 - 1).encode(),
            "PNG" if i % 2 else "png": png(pixels_of(i)),
            "txt": b"" if i == 3 else f"line {i}\n".encode() * i,
            "npy": npy(arrays.numbers(6, "<f4", i).reshape(2, 3)),
            "fortran.npy": npy(numpy.asfortranarray(arrays.numbers(24, "<u2", i).reshape(2, 3, 4))),
            "big.npy": npy(arrays.numbers(3, ">i4", i)),
            "big-fortran.npy": npy(numpy.asfortranarray(arrays.numbers(6, ">f8", i).reshape(3, 2))),
            "one.npy": npy(numpy.array(i, "i8")),
            "flag.npy": npy(numpy.array([i % 2 == 0, True])),
        }
    return made


def tensors(events):
    """Tensor's name -> its rows in the order of the samples, as arrays."""
    rows = {}
    for event in events:
        if event["event"] == "error":
            raise Failed(event["text"])
        if event["event"] != "batch":
            continue
        for name in ("index", "label", "status"):
            rows.setdefault(name, []).extend(event[name])
        for tensor in [event, *event.get("further", [])]:
            array = numpy.frombuffer(bytes.fromhex(tensor["values"]),
                                     arrays.TYPES[tensor["dtype"]]).reshape(tensor["shape"])
            rows.setdefault(tensor["tensor"], []).extend(array[:event["count"]])
    return rows


def same(got, wanted, what):
    native = wanted.astype(wanted.dtype.newbyteorder("="))
    expect_equal((got.shape, got.dtype.str), (native.shape, native.dtype.str), f"{what}: type")
    expect(got.tobytes() == numpy.ascontiguousarray(native).tobytes(), f"{what}: other values")


def same_bytes(rows, name, i, data, size):
    expect_equal(int(rows[f"{name}.size"][i]), len(data), f"{name}.size of sample {i}")
    expect_equal(rows[name][i].tobytes(), data + bytes(size - len(data)), f"{name} of sample {i}")


def expect_arrays(rows, names, made):
    for i, fields in enumerate(made.values()):
        for name in names:
            wanted = numpy.load(io.BytesIO(fields[name]))
            same(rows[name][i], wanted.view("u1") if wanted.dtype == bool else wanted,
                 f"{name} of sample {i}")


ARRAYS = ["npy", "fortran.npy", "big.npy", "big-fortran.npy", "one.npy", "flag.npy"]


def test_all_fields_in_every_dialect():
    made = samples()
    fields = "json:64+image+" + "+".join(ARRAYS) + "+cls+txt:96"
    with folder() as path, Daemon() as daemon:
        for name, form in FORMATS.items():
            write_tar(f"{path}/{name}.tar", made, form)
            rows = tensors(daemon.batches("--source", f"tar:{path}/{name}.tar,fields={fields}",
                                          "--image", "center-crop:16:16", "--batch", "5",
                                          "--epochs", "1", *INORDER))
            expect_equal(list(rows), ["index", "label", "status", "image", "json", "json.size",
                                      *ARRAYS, "txt", "txt.size"], f"{name}: tensors")
            expect_equal(rows["label"], [i % 5 - 1 for i in range(COUNT)], f"{name}: labels")
            expect_equal(rows["status"], [0] * COUNT, f"{name}: status")
            expect_arrays(rows, ARRAYS, made)
            for i, sample in enumerate(made.values()):
                same(rows["image"][i], pixels_of(i), f"{name}: image {i}")
                same_bytes(rows, "json", i, sample["json"], 64)
                same_bytes(rows, "txt", i, sample["txt"], 96)


def test_without_an_image():
    """The first field is the first tensor; the label is -1 where it is not asked for."""
    made = samples()
    with folder() as path, Daemon() as daemon:
        write_tar(f"{path}/a.tar", made)
        for first, others in (("big.npy", ["txt:96", "one.npy"]), ("txt:96", ["big.npy"])):
            rows = tensors(daemon.batches(
                "--source", f"tar:{path}/a.tar,fields={'+'.join([first, *others])}", "--batch", "4",
                "--epochs", "1", *INORDER))
            expect_equal(list(rows)[3], first.split(":")[0], "the first tensor")
            expect_equal(set(rows["label"]), {-1}, "labels")
            expect_arrays(rows, ["big.npy"], made)
            for i, sample in enumerate(made.values()):
                same_bytes(rows, "txt", i, sample["txt"], 96)


def test_fields_that_lie_far_apart():
    """A large member between two that are wanted is not read."""
    made = {f"{i}": {"a.npy": npy(numpy.arange(i, i + 3)), "bin": bytes(300000),
                     "txt": b"x" * i} for i in range(6)}
    with folder() as path, Daemon() as daemon:
        write_tar(f"{path}/a.tar", made)
        rows = tensors(daemon.batches("--source", f"tar:{path}/a.tar,fields=txt:8+a.npy", "--batch",
                                      "3", "--epochs", "1", *INORDER))
        expect_arrays(rows, ["a.npy"], made)
        for i, sample in enumerate(made.values()):
            same_bytes(rows, "txt", i, sample["txt"], 8)


def test_as_before_without_fields():
    with folder() as path, Daemon() as daemon:
        images.make_tar(f"{path}/a.tar", 0, 8)
        options = ["--image", "random-crop:16", "--batch", "4", "--epochs", "1", *INORDER]
        plain = tensors(daemon.batches("--source", f"tar:{path}/a.tar", *options))
        named = tensors(daemon.batches("--source", f"tar:{path}/a.tar,fields=cls+jpg", *options))
        expect_equal([row.tobytes() for row in plain["image"]],
                     [row.tobytes() for row in named["image"]], "pixels")
        expect_equal(plain["label"], named["label"], "labels")
        expect_equal(list(plain), list(named), "tensors")


def error(daemon, source, *options):
    events = daemon.batches("--source", source, "--batch", "2", "--epochs", "1", *options, *HOST)
    errors = [event["text"] for event in events if event["event"] == "error"]
    expect_equal(len(errors), 1, f"errors of {source}: {events}")
    return errors[0]


def test_what_is_refused():
    made = samples()
    del made["d.x/007"]["json"]
    crop = ["--image", "center-crop:16:16"]
    with folder() as path, Daemon() as daemon:
        write_tar(f"{path}/a.tar", made)
        numpy.save(f"{path}/strings.npy", numpy.array(["a"]))
        with open(f"{path}/strings.npy", "rb") as file:
            write_tar(f"{path}/b.tar", {"0": {"npy": file.read(), "e.npy": npy(numpy.zeros((0, 3)))}})
        for name, fields, options, words in (
                ("a", "png+json:64", crop, ["a.tar", "sample d.x/007 has no field json",
                                            "its fields are: cls, PNG, txt, npy"]),
                ("a", "jpg", crop, ["sample d.x/000 has no field jpg", "json, cls, png"]),
                ("a", "png+mask.png", crop, ["one image", "mask.png:N"]),
                ("a", "json+png", crop, ["field json", "json:4096"]),
                ("a", "npy+npy", [], ["two tensors \"npy\""]),
                ("a", "label:5", [], ["\"label\""]), ("a", "image:5", [], ["\"image\""]),
                ("a", "cls", [], ["the label alone"]), ("a", "npy++txt:8", [], ["a name is missing"]),
                ("a", "txt:0", [], ["txt:0", "from 1"]), ("a", "txt:many", [], ["txt:many"]),
                ("a", "+".join(f"f{i}:1" for i in range(7)), [], ["more than 16 tensors"]),
                ("a", "npy", crop, ["holds arrays"]), ("a", "png", [], ["a crop has to"]),
                ("b", "npy", [], ["b.tar: 0.npy at 512", "'<U1'"]),
                ("b", "e.npy", [], ["b.tar: 0.e.npy", "dimension 1 of its shape is 0"])):
            text = error(daemon, f"tar:{path}/{name}.tar,fields={fields}", *options)
            for word in words:
                expect(word in text, f"{fields}: {word!r} is not in {text!r}")


BAD = {"1": ("txt", b"longer than that", ["1.txt", "has 16 bytes", "12"]),
       "2": ("npy", npy(numpy.zeros((3, 2), "f4")), ["2.npy", "(3, 2) f32", "(2, 3) f32"]),
       "3": ("npy", npy(numpy.zeros((2, 3), "f8")), ["3.npy", "(2, 3) f64"]),
       "4": ("npy", npy(numpy.zeros((2, 3), "f4"))[:-1], ["4.npy", "is cut off", "24 bytes", "23"]),
       "5": ("npy", b"", ["5.npy", "is empty"]),
       "6": ("npy", b"no array", ["6.npy", "is no .npy file"]),
       "7": ("png", b"", ["7.png", "is empty"])}


def with_bad_samples(path):
    """Sample 0 and those behind BAD's are good."""
    made = {f"{i}": {"png": png(pixels_of(i)), "cls": str(i).encode(), "txt": b"x" * i,
                     "npy": npy(numpy.full((2, 3), i, "f4"))} for i in range(COUNT)}
    for key, (field, data, _) in BAD.items():
        made[key][field] = data
    write_tar(path, made)
    return made


FIELDS = "fields=png+cls+txt:12+npy"


def test_bad_samples_are_named():
    with folder() as path, Daemon() as daemon:
        with_bad_samples(f"{path}/a.tar")
        source = ["--source", f"tar:{path}/a.tar,{FIELDS}", "--image", "center-crop:16:16",
                  "--batch", "1", "--shuffle", "none", *HOST]
        for key, (_, _, words) in BAD.items():
            events = daemon.batches(*source, "--start", f"0:{key}", "--batches", "1")
            expect_equal(events[-1]["event"], "error", f"sample {key}")
            for word in words:
                expect(word in events[-1]["text"], f"{key}: {word!r} not in {events[-1]['text']}")


def test_bad_samples_are_blank_or_substituted_in_all_tensors():
    with folder() as path, Daemon() as daemon:
        with_bad_samples(f"{path}/a.tar")
        for policy, status in (("blank", 3), ("substitute", 2)):
            rows = tensors(daemon.batches("--source", f"tar:{path}/a.tar,{FIELDS}", "--image",
                                          "center-crop:16:16", "--batch", "4", "--epochs", "1",
                                          "--bad", policy, *INORDER))
            expect_equal(rows["status"], [0] + [status] * 7 + [0] * 4, f"{policy}: status")
            for i in range(COUNT):
                blank = policy == "blank" and 1 <= i <= 7
                of = 8 if policy == "substitute" and 1 <= i <= 7 else i
                expect_equal(rows["label"][i], of, f"{policy}: label {i}")
                same(rows["image"][i], pixels_of(of) * (not blank), f"{policy}: image {i}")
                same(rows["npy"][i], numpy.full((2, 3), 0 if blank else of, "f4"), f"npy {i}")
                same_bytes(rows, "txt", i, b"" if blank else b"x" * of, 12)


def test_shuffled_resume_and_other_fields():
    made = samples(20)
    with folder() as path, Daemon() as daemon:
        write_tar(f"{path}/a.tar", dict(list(made.items())[:13]))
        write_tar(f"{path}/b.tar", dict(list(made.items())[13:]))
        spec = ["--batch", "4", "--seed", "5", "--values", *HOST]
        source = f"tar:{path}/{{a,b}}.tar,fields=".replace("{a,b}", "?")
        whole = daemon.batches("--source", f"{source}one.npy+txt:200", *spec, "--epochs", "2")
        for event in whole:
            if event["event"] == "batch":
                numbers = numpy.frombuffer(bytes.fromhex(event["values"]), "i8")
                expect_equal(numbers.tolist(), event["index"], "values follow their samples")
        part = daemon.batches("--source", f"{source}one.npy+txt:200", *spec, "--batches", "3")
        token = [event["token"] for event in part if event["event"] == "token"][0]
        rest = daemon.batches("--source", f"{source}one.npy+txt:200", *spec, "--token", token,
                              "--batches", "4")
        expect_equal([e for e in rest if e["event"] == "batch"],
                     [e for e in whole if e["event"] == "batch"][3:7], "what follows the token")
        text = error(daemon, f"{source}one.npy+txt:201", "--seed", "5", "--token", token)
        expect("the token is for dataset" in text and "txt:201" in text, text)


def test_a_shard_that_is_cut_while_in_use():
    """Its fields are named as they were found; nobody is killed by it."""
    made = {f"{i}": {"npy": npy(numpy.zeros(5000)), "txt": b"x"} for i in range(8)}
    with folder() as path, Daemon() as daemon:
        write_tar(f"{path}/a.tar", made)
        with tarfile.open(f"{path}/a.tar") as tar:
            place = tar.getmember("5.npy").offset_data
        client = daemon.consume("--source", f"tar:{path}/a.tar,fields=npy+txt:4", "--batch", "1",
                                "--shuffle", "none", "--depth", "1", "--step-ms", "50",
                                "--epochs", "1", *HOST)
        expect_equal(json.loads(client.stdout.readline())["event"], "job", "the job")
        os.truncate(f"{path}/a.tar", place + 100)
        events = [json.loads(line) for line in client.communicate(timeout=60)[0].splitlines()]
        expect_equal(events[-1]["event"], "error", "the end")
        for word in ("a.tar: 5.txt at", "cut off since it was indexed"):
            expect(word in events[-1]["text"], events[-1]["text"])


if __name__ == "__main__":
    run([test_all_fields_in_every_dialect, test_without_an_image, test_fields_that_lie_far_apart,
         test_as_before_without_fields, test_what_is_refused, test_bad_samples_are_named,
         test_bad_samples_are_blank_or_substituted_in_all_tensors,
         test_shuffled_resume_and_other_fields, test_a_shard_that_is_cut_while_in_use])
