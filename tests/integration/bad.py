"""Bad samples: what stands in their place is a pure function of the spec, marked, limited in step
order, listed and counted, and the log stays short."""

import io
import json
import os
import tarfile

import image_cases
import images
import numpy
from daemon import Daemon, expect, expect_equal, folder, have_driver, program, run

CLASSES, EACH = 3, 9
SAMPLES = CLASSES * EACH
IMAGE = ["--image", "center-crop:8:16"]
HOST = [*IMAGE, "--device", "host", "--shuffle", "none"]

MIB = 1 << 20
OK, PADDING, SUBSTITUTE, BLANK = range(4)


def damage(path, bad):
    """Sample i of the folder becomes an empty file, half a file, or no image at all."""
    for n, i in enumerate(bad):
        name = os.path.join(path, f"c{i // EACH}", f"{i % EACH:03}.jpg")
        with open(name, "rb") as file:
            data = file.read()
        with open(name, "wb") as file:
            file.write([b"", data[:len(data) // 2], b"no image"][n % 3])


def make_folder(path, bad):
    images.make_folder(path, CLASSES, EACH)
    damage(path, bad)
    return f"folder:{path}"


def make_tar(path, bad):
    """A shard of SAMPLES images with labels; those in bad are empty."""
    with tarfile.open(path, "w") as tar:
        for key in range(SAMPLES):
            for name, data in ((f"{key:05}.jpg", b"" if key in bad else images.jpeg(key)),
                               (f"{key:05}.cls", str(key % 5).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return f"tar:{path}"


def of(events, what):
    return [event for event in events if event["event"] == what]


def columns(events, name):
    return [value for batch in of(events, "batch") for value in batch[name][:batch["count"]]]


def substitutes(bad, n=SAMPLES, order=None):
    """What a pass in `order` delivers: for each bad sample the next readable one behind it."""
    order = list(range(n)) if order is None else order
    taken = []
    for p in range(n):
        while order[p % n] in bad:
            p += 1
        taken.append(order[p % n])
    return taken


def pixels(events):
    """The images, as rows of bytes."""
    rows = []
    for batch in of(events, "batch"):
        values = bytes.fromhex(batch["values"])
        size = len(values) // batch["shape"][0]
        rows += [values[i * size:(i + 1) * size] for i in range(batch["count"])]
    return rows


def test_an_empty_file_in_a_batch():
    """Batch of 8, sample 3 empty, in a folder and in a shard."""
    with folder() as path, Daemon() as daemon:
        for source, name, label in (
                (make_folder(f"{path}/photos", [3]), "c0/003.jpg", lambda i: i // EACH),
                (make_tar(f"{path}/s.tar", [3]), "00003.jpg", lambda i: i % 5)):
            spec = ["--source", source, *HOST, "--batch", "8", "--batches", "1", "--values"]
            failed = of(daemon.batches(*spec), "error")
            expect_equal([event["code"] for event in failed], [-74], "it fails")
            for part in (name, "empty", "s.tar" if source.startswith("tar:") else path):
                expect(part in failed[0]["text"], f"{part}: {failed[0]['text']}")

            got = daemon.batches(*spec, "--bad", "substitute")
            expect_equal(of(got, "batch")[0]["count"], 8, "samples of the batch")
            expect_equal(columns(got, "index"), [0, 1, 2, 4, 4, 5, 6, 7], "index")
            expect_equal(columns(got, "label"), [label(i) for i in (0, 1, 2, 4, 4, 5, 6, 7)],
                         "label")
            expect_equal(columns(got, "status"), [0, 0, 0, SUBSTITUTE, 0, 0, 0, 0], "status")
            rows = pixels(got)
            expect(rows[3] == rows[4] and any(rows[3]), "the substitute's pixels")

            blank = daemon.batches(*spec, "--bad", "blank")
            expect_equal(columns(blank, "index"), list(range(8)), "index")
            expect_equal(columns(blank, "label"), [label(i) for i in range(8)], "label")
            expect_equal(columns(blank, "status"), [0, 0, 0, BLANK, 0, 0, 0, 0], "status")
            expect_equal(pixels(blank)[3], bytes(8 * 8 * 3), "zeros")
            expect_equal(pixels(blank)[4:], rows[4:], "the others")


def test_substitutes_follow_the_order():
    """Runs of bad samples, at the end of the epoch too: the next readable one modulo N, of whatever
    rank."""
    bad = [0, 7, 8, 9, 10, 25, 26]
    with folder() as path, Daemon() as daemon:
        source = make_folder(f"{path}/photos", bad)
        spec = ["--source", source, *HOST, "--last", "partial", "--batch", "4", "--epochs", "1"]
        got = daemon.batches(*spec, "--bad", "substitute")
        expect_equal(columns(got, "index"), substitutes(bad), "index")
        expect_equal(columns(got, "status"),
                     [SUBSTITUTE if i in bad else OK for i in range(SAMPLES)], "status")

        # Two ranks together get what one gets.
        ranks = [columns(daemon.batches("--source", source, *HOST, "--batch", "4", "--world", "2",
                                        "--rank", str(r), "--epochs", "1", "--bad", "substitute"),
                         "index") for r in range(2)]
        both = [ranks[p % 2][p // 2] for p in range(24)]
        expect_equal(both, substitutes(bad)[:24], "both ranks")

        # Padding that is bad is marked as what stands there.
        padded = daemon.batches("--source", source, *HOST, "--batch", "28", "--last", "pad",
                                "--epochs", "1", "--bad", "substitute")
        expect_equal(columns(padded, "index")[-1], 1, "in place of sample 0")
        expect_equal(columns(padded, "status")[-1], SUBSTITUTE, "its status")


def slow():
    """The environment of a daemon whose storage takes 1 ms a read: readers fetch the samples."""
    return {"LD_PRELOAD": program("tests", "integration", "slowio.so"), "SLOWIO_MS": "1",
            "SLOWIO_ALWAYS": "1",
            # The sanitizers want to be the first library.
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def test_pure_function():
    """The same bytes by one worker and by four, by readers or without, in any depth, through a ring
    or not."""
    bad = [1, 5, 6, 7, 13, 20]
    daemons = [(Daemon("workers.per_numa_node=1"), "host"),
               (Daemon("workers.per_numa_node=4"), "host"), (Daemon(env=slow()), "host")]
    if have_driver():
        daemons.append((Daemon("workers.per_numa_node=2", driver=True), "cuda:0"))
    with folder() as path:
        source = make_folder(f"{path}/photos", bad)
        spec = ["--source", source, "--image", "random-crop:16", "--flip", "0.5", "--batch", "4",
                "--seed", "5", "--last", "partial", "--epochs", "3", "--checksum"]
        sums = {}
        for daemon, device in daemons:
            with daemon:
                for how in ("substitute", "blank:6"):
                    for depth in ("1", "6"):
                        got = daemon.bench(*spec, "--bad", how, "--depth", depth, "--device", device)
                        sums.setdefault(how, set()).add(got["checksum"])
                limited = daemon.pinctl("--json", "bench", *spec, "--bad", "blank:5", "--device",
                                        device, check=False)
                expect_equal(limited.returncode, 1, "bench with more bad samples than the limit")
                expect("there are 6 bad samples in epoch 0, the limit is 5" in limited.stderr,
                       limited.stderr)
                expect(daemon.ask("stats")["bad"] >= 2 * 2 * 3 * len(bad), "all of them count")
        expect_equal([len(sums[how]) for how in sums], [1, 1], "checksums of each")
        expect(sums["substitute"] != sums["blank:6"], "they differ")


def test_resume():
    """A token holds what becomes of bad samples; behind it come the same batches."""
    bad = [2, 3, 11, 12]
    with folder() as path, Daemon() as daemon:
        source = make_folder(f"{path}/photos", bad)
        spec = ["--source", source, *IMAGE, "--device", "host", "--batch", "5", "--seed", "9",
                "--values"]
        whole = daemon.batches(*spec, "--bad", "substitute", "--batches", "9")
        part = daemon.batches(*spec, "--bad", "substitute", "--batches", "3")
        token = of(part, "token")[0]["token"]
        rest = daemon.batches(*spec, "--bad", "substitute:50", "--token", token, "--batches", "6")
        expect_equal(of(rest, "batch"), of(whole, "batch")[3:], "what comes behind the token")
        refused = of(daemon.batches(*spec, "--bad", "blank", "--token", token), "error")
        expect_equal(refused[0]["code"], -22, "the token is refused")
        expect("bad samples substitute" in refused[0]["text"] and
               "bad samples blank" in refused[0]["text"], refused[0]["text"])


def test_limits():
    """Counted in step order: the same step is the last one for one worker and four."""
    bad = [1, 9, 10, 17]  # steps 0, 2, 2, 4 in batches of 4
    for workers in (1, 4):
        with folder() as path, Daemon(f"workers.per_numa_node={workers}") as daemon:
            source = make_folder(f"{path}/photos", bad)
            spec = ["--source", source, *HOST, "--batch", "4", "--epochs", "2"]
            for limit, batches in (("substitute:4", 12), ("substitute:3", 4), ("blank:2", 2),
                                   ("blank:0", 0), ("substitute:8%", 2), ("substitute:13%", 4),
                                   ("substitute:17%", 12)):
                got = daemon.batches(*spec, "--bad", limit)
                expect_equal(len(of(got, "batch")), batches, f"batches with {limit}")
                errors = of(got, "error")
                expect_equal(len(errors), 0 if batches == 12 else 1, f"errors with {limit}")
                if limit == "substitute:3":
                    expect("with step 4 there are 4 bad samples in epoch 0, the limit is 3" in
                           errors[0]["text"], errors[0]["text"])
                    expect_equal(errors[0]["code"], -74, "the code")


def test_nothing_readable():
    with folder() as path, Daemon() as daemon:
        source = make_folder(f"{path}/photos", range(SAMPLES))
        got = daemon.batches("--source", source, *HOST, "--batch", "4", "--bad", "substitute")
        expect_equal(len(of(got, "batch")), 0, "batches")
        expect("c0/000.jpg" in of(got, "error")[0]["text"] and
               "nor is there a substitute" in of(got, "error")[0]["text"],
               of(got, "error")[0]["text"])


def test_storage_that_fails_is_no_bad_sample():
    """A file that is gone says nothing of its bytes."""
    with folder() as path, Daemon() as daemon:
        source = make_folder(f"{path}/photos", [])
        client = daemon.consume("--source", source, *HOST, "--batch", "9", "--depth", "1",
                                "--bad", "blank", "--batches", "3", "--step-ms", "500")
        expect("job" in client.stdout.readline(), "it opens")
        os.remove(f"{path}/photos/c2/005.jpg")
        output = client.stdout.read()  # communicate() would leave out what readline() read ahead
        client.wait()
        events = [json.loads(line) for line in output.splitlines()]
        expect_equal(len(of(events, "batch")), 2, "batches")
        expect_equal([event["code"] for event in of(events, "error")], [-2], "the error")
        expect("c2/005.jpg" in of(events, "error")[0]["text"], of(events, "error")[0]["text"])


def test_records_that_are_cut_off():
    """Blank keeps the label that is known."""
    with folder() as path, Daemon() as daemon:
        numpy.save(f"{path}/a.npy", numpy.arange(40 * 5000, dtype="u4").reshape(40, 5000))
        numpy.save(f"{path}/l.npy", numpy.arange(40) + 100)
        client = daemon.consume("--source", f"records:{path}/a.npy,labels={path}/l.npy",
                                "--device", "host", "--shuffle", "none", "--batch", "10",
                                "--depth", "1", "--bad", "blank", "--batches", "4", "--step-ms",
                                "500")
        expect("job" in client.stdout.readline(), "it opens")
        os.truncate(f"{path}/a.npy", 128 + 35 * 20000)
        output = client.stdout.read()
        client.wait()
        last = [line for line in output.splitlines() if '"step": 3' in line]
        expect_equal(len(last), 1, "the last batch")
        expect('"label": [130, 131, 132, 133, 134, 135, 136, 137, 138, 139]' in last[0], last[0])
        expect('"status": [0, 0, 0, 0, 0, 3, 3, 3, 3, 3]' in last[0], last[0])


def test_list():
    with folder() as path, Daemon() as daemon:
        bad = list(range(1, 27, 2))
        for source, places in (
                (make_folder(f"{path}/photos", bad),
                 [f"c{i // EACH}/{i % EACH:03}.jpg" for i in bad]),
                (make_tar(f"{path}/s.tar", bad), None)):
            client = daemon.consume("--source", source, *HOST, "--batch", "9", "--epochs", "2",
                                    "--bad", "blank", "--wait")
            job = None
            for line in client.stdout:
                job = job or (line.split('"id": ')[1].split(",")[0] if '"id"' in line else None)
                if '"token"' in line:
                    break
            rows = json.loads(daemon.pinctl("--json", "jobs", "--bad", job).stdout)["bad"]
            expect_equal([row["sample"] for row in rows], bad, "the samples, once each")
            if places:
                expect_equal([row["name"] for row in rows], places, "their paths")
            else:
                with tarfile.open(f"{path}/s.tar") as tar:
                    offsets = {member.name: member.offset_data for member in tar}
                expect_equal([row["name"] for row in rows],
                             [f"{path}/s.tar:{i:05}.jpg@{offsets[f'{i:05}.jpg']}" for i in bad],
                             "shard:member@offset")
            expect("empty" in rows[0]["reason"], rows[0]["reason"])
            expect_equal(daemon.jobs()[0]["bad"], 2 * len(bad), "the counter")
            text = daemon.pinctl("jobs", "--bad", job).stdout
            expect(rows[3]["name"] in text, text)
            client.stdin.close()
            client.wait()
        missing = daemon.pinctl("jobs", "--bad", "999", check=False)
        expect_equal(missing.returncode, 1, "pinctl jobs --bad of no job")
        expect("there is no job 999" in missing.stderr, missing.stderr)


def malformed():
    """One of each kind."""
    photo = images.photo(1)
    png = image_cases.encoded(photo, "PNG")
    baseline, progressive = (image_cases.encoded(photo, "JPEG", progressive=p) for p in (0, 1))
    return [baseline[:len(baseline) // 2], progressive[:len(progressive) // 2],
            image_cases.bomb(65500), b"\x1f\x8b" * 9, image_cases.encoded(photo, "BMP"),
            *(png[:size] for size in range(8))]


def test_malformed_files_without_end():
    """10,000 bad samples in 2 epochs: the log stays short, and the memory as it is."""
    quarantine = ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
    env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + quarantine}
    with folder() as path, Daemon(env=env) as daemon:
        os.makedirs(f"{path}/photos/c0")
        kinds = malformed()
        for i in range(10000):
            name = f"{path}/photos/c0/{i:05}.jpg"
            if i < len(kinds):
                with open(name, "wb") as file:
                    file.write(kinds[i])
            else:
                os.link(f"{path}/photos/c0/{i % len(kinds):05}.jpg", name)
        spec = ["--source", f"folder:{path}/photos", *HOST, "--batch", "500", "--bad", "blank"]
        before = len(daemon.log().splitlines())
        daemon.bench(*spec, "--epochs", "2")
        lines = daemon.log().splitlines()[before:]
        expect(len(lines) <= 20, f"{len(lines)} lines:\n" + "\n".join(lines))
        for i, why in enumerate(("JPEG: ", "JPEG: ", "65500x65500 = 4290250000 pixels", "is gzip data",
                                 "is BMP data")):
            expect(any(f"c0/{i:05}.jpg: {why}" in line for line in lines), f"{i}, {why}: {lines}")
        expect_equal(daemon.ask("stats")["bad"], 20000, "the counter")
        seen = [daemon.resident()]
        for epochs in (3, 4):
            daemon.bench(*spec, "--epochs", "1")
            expect_equal(daemon.ask("stats")["bad"], epochs * 10000, "the counter goes on")
            seen.append(daemon.resident())
        # ThreadSanitizer remembers accesses in memory of its own.
        if "thread" not in os.environ.get("PINSERVE_SANITIZED", ""):
            expect(seen[2] < seen[1] + MIB, f"resident bytes: {seen}")


run([test_an_empty_file_in_a_batch, test_substitutes_follow_the_order, test_pure_function,
     test_resume, test_limits, test_nothing_readable, test_storage_that_fails_is_no_bad_sample,
     test_records_that_are_cut_off, test_list, test_malformed_files_without_end])
