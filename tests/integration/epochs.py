"""What a client is given: every sample exactly once an epoch, its right label, in an order that
ranks, tokens and restarts agree on."""

import os

import arrays
import images
import numpy
from daemon import Daemon, expect, expect_equal, folder, run

SYNTHETIC = ["--source", "synthetic:8:u8:26"]


def batches(events):
    return [event for event in events if event["event"] == "batch"]


def column(events, name, epoch=None):
    return [value for event in batches(events) if epoch is None or event["epoch"] == epoch
            for value in event[name]]


def token(events):
    return [event["token"] for event in events if event["event"] == "token"][0]


def error(events):
    return [event for event in events if event["event"] == "error"][0]


def test_partial_has_every_sample_once():
    with Daemon() as daemon:
        events = daemon.batches(*SYNTHETIC, "--batch", "8", "--last", "partial", "--epochs", "2")
        for epoch in (0, 1):
            expect_equal(sorted(column(events, "index", epoch)), list(range(26)), "indices")
        expect(column(events, "index", 0) != column(events, "index", 1), "epochs are shuffled anew")
        expect_equal([b["count"] for b in batches(events)], [8, 8, 8, 2] * 2, "counts")
        ends = [i for i, event in enumerate(events) if event["event"] == "epoch_end"]
        expect_equal(ends, [5, 10], "the ends of the epochs come after their last batches")


def test_pad_marks_what_it_repeats():
    with Daemon() as daemon:
        events = daemon.batches(*SYNTHETIC, "--batch", "8", "--last", "pad", "--epochs", "1")
        index, status = column(events, "index"), column(events, "status")
        once = [i for i, s in zip(index, status) if s == 0]
        expect_equal(sorted(once), list(range(26)), "unmarked samples")
        expect_equal(status, [0] * 26 + [1] * 6, "marks")
        expect_equal(index[26:], index[:6], "padding begins the epoch again")


def test_uneven_shards():
    """26 samples, 4 ranks, batch 6: drop gives 1 step each, pad 2 steps each."""
    with Daemon() as daemon:
        for last, steps in (("drop", 1), ("pad", 2)):
            seen = []
            for rank in range(4):
                events = daemon.batches(*SYNTHETIC, "--batch", "6", "--last", last, "--rank",
                                        str(rank), "--world", "4", "--epochs", "1")
                expect_equal(len(batches(events)), steps, f"steps of rank {rank}, {last}")
                seen += [i for i, s in zip(column(events, "index"), column(events, "status"))
                         if s == 0]
            expect_equal(len(seen), len(set(seen)), f"{last}: no sample on two ranks")
            expect_equal(len(seen), 24 if last == "drop" else 26, f"{last}: samples")


def test_labels_of_a_folder():
    with folder() as path:
        n = images.make_folder(path, classes=4, each=6)
        open(os.path.join(path, "c1", "notes.txt"), "w").close()
        with Daemon() as daemon:
            events = daemon.batches("--source", f"folder:{path}", "--image", "center-crop:16",
                                    "--batch", "5", "--last", "partial", "--epochs", "1")
            pairs = list(zip(column(events, "index"), column(events, "label")))
            expect_equal(sorted(i for i, _ in pairs), list(range(n)), "indices")
            expect(all(label == i // 6 for i, label in pairs), f"labels: {pairs}")


def test_labels_of_tar_shards():
    with folder() as path:
        for shard in range(2):
            images.make_tar(f"{path}/s{shard:02}.tar", 8 * shard, 8)
        with Daemon() as daemon:
            for pattern in ("s{00..01}.tar", "s*.tar"):
                events = daemon.batches("--source", f"tar:{path}/{pattern}", "--image",
                                        "center-crop:16", "--batch", "4", "--epochs", "1")
                pairs = list(zip(column(events, "index"), column(events, "label")))
                expect_equal(sorted(i for i, _ in pairs), list(range(16)), "indices")
                expect(all(label == i % 5 for i, label in pairs), f"labels: {pairs}")


def test_fewer_shards_than_ranks():
    """Ranks share samples, not shards: nobody is left without."""
    with folder() as path, Daemon() as daemon:
        images.make_tar(f"{path}/s.tar", 0, 16)
        ranks = [column(daemon.batches("--source", f"tar:{path}/s.tar", "--image", "center-crop:16",
                                       "--batch", "2", "--rank", str(rank), "--world", "4",
                                       "--epochs", "1"), "index") for rank in range(4)]
        expect_equal([len(rank) for rank in ranks], [4] * 4, "samples of each rank")
        expect_equal(sorted(sum(ranks, [])), list(range(16)), "samples of all")


def values(events, dtype):
    """Sample number -> its values, of one epoch."""
    out = {}
    for batch in batches(events):
        array = numpy.frombuffer(bytes.fromhex(batch["values"]), dtype).reshape(batch["shape"])
        out.update(zip(batch["index"], array))
    return out


WHOLE = ["--last", "partial", "--epochs", "1", "--values"]


def same_bytes(got, wanted, what):
    expect_equal(sorted(got), list(range(len(wanted))), f"{what}: indices")
    for i, sample in enumerate(wanted):
        expect(got[i].tobytes() == numpy.ascontiguousarray(sample).tobytes(),
               f"{what}: sample {i} has other bytes")


def test_records_are_what_numpy_sees():
    with folder() as path, Daemon() as daemon:
        for name, array in arrays.make_arrays(path).items():
            events = daemon.batches("--source", f"records:{path}/{name}.npy", "--batch", "4",
                                    *WHOLE)
            batch = batches(events)[0]
            native = array.dtype.newbyteorder("=")
            expect_equal((batch["tensor"], batch["shape"], arrays.TYPES[batch["dtype"]]),
                         ("data", [4, *array.shape[1:]], native.str[1:]), f"{name}: tensor")
            same_bytes(values(events, native), numpy.load(f"{path}/{name}.npy").astype(native),
                       name)
            expect_equal(set(column(events, "label")), {-1}, f"{name}: labels that are not there")
        array.tofile(f"{path}/raw.bin")
        events = daemon.batches("--source", f"records:{path}/raw.bin:70x1000:u8", "--batch", "4",
                                *WHOLE)
        expect_equal(batches(events)[0]["shape"], [4, 70, 1000], "the shape that is given")
        same_bytes(values(events, "u1"), array, "a raw file")


def test_header_versions_are_equal():
    array = arrays.numbers(6 * 4, "<f4").reshape(6, 4)
    with folder() as path, Daemon() as daemon:
        for version in (1, 2, 3):
            with open(f"{path}/v{version}.npy", "wb") as file:
                numpy.lib.format.write_array(file, array, version=(version, 0))
            events = daemon.batches("--source", f"records:{path}/v{version}.npy", "--batch", "4",
                                    *WHOLE)
            same_bytes(values(events, "<f4"), array, f"version {version}")


def test_labels_of_records():
    with folder() as path, Daemon() as daemon:
        numpy.save(f"{path}/a.npy", numpy.zeros((10, 3), "u1"))
        for dtype in ("u1", "i1", "<i2", ">u2", "<i4", ">i8"):
            labels = (numpy.arange(10) * 12).astype(dtype)
            numpy.save(f"{path}/l,{dtype}.npy", labels)
            events = daemon.batches(
                "--source", f"records:{path}/a.npy,labels={path}/l,{dtype}.npy", "--batch", "3",
                "--last", "partial", "--epochs", "1")
            pairs = dict(zip(column(events, "index"), column(events, "label")))
            expect_equal(pairs, {i: int(label) for i, label in enumerate(labels)}, dtype)


def test_windows_of_tokens():
    sizes = [100, 0, 9, 8, 1234]
    with folder() as path, Daemon() as daemon:
        for width, dtype, high in (("u16", "<u2", 2**16), ("u32", "<u4", 2**31),
                                   ("i32", "<i4", 2**31)):
            files = arrays.make_tokens(path, sizes, dtype, high)
            for stride, out in ((8, "i32"), (3, "i64"), (20, "i32")):
                events = daemon.batches(
                    "--source", f"tokens:{path}/t{{0..4}}.bin:{width},stride={stride},out={out}",
                    "--seq", "8", "--batch", "32", *WHOLE)
                expect_equal(batches(events)[0]["tensor"], "tokens", "the tensor's name")
                native = "<i4" if out == "i32" else "<i8"
                same_bytes(values(events, native),
                           [w.astype(native) for w in arrays.windows(files, 8, stride)],
                           f"{width}, stride {stride}")


def test_random_windows():
    """As many as at a stride of seq, other ones in each epoch, the same for the same seed."""
    with folder() as path, Daemon() as daemon:
        files = arrays.make_tokens(path, [3000, 500], high=2**16)
        known = {w.astype("<i4").tobytes() for w in arrays.windows(files, 16, 1)}
        spec = ["--source", f"tokens:{path}/t*.bin,stride=random", "--seq", "16", "--batch", "10",
                "--last", "partial", "--values"]
        first = daemon.batches(*spec, "--epochs", "2")
        count = len(arrays.windows(files, 16, 16))
        epochs = []
        for epoch in (0, 1):
            events = [e for e in batches(first) if e["epoch"] == epoch]
            epochs.append(values(events, "<i4"))
            expect_equal(sorted(epochs[-1]), list(range(count)), "samples of an epoch")
            expect(all(w.tobytes() in known for w in epochs[-1].values()), "windows of the files")
        moved = sum(epochs[0][i].tobytes() != epochs[1][i].tobytes() for i in range(count))
        expect(moved > count * 0.9, f"{moved} of {count} windows differ between epochs")
        again = daemon.batches(*spec, "--start", "1:0", "--epochs", "1")
        expect_equal([b["values"] for b in batches(again)],
                     [b["values"] for b in batches(first) if b["epoch"] == 1],
                     "an epoch by itself")


def test_tokens_of_another_length_are_other_data():
    with folder() as path, Daemon() as daemon:
        arrays.make_tokens(path, [3000])
        spec = ["--source", f"tokens:{path}/t0.bin", "--batch", "4"]
        saved = token(daemon.batches(*spec, "--seq", "16", "--batches", "1"))
        refused = error(daemon.batches(*spec, "--seq", "17", "--token", saved))
        expect("t0.bin" in refused["text"], refused["text"])
        events = daemon.batches(*spec, "--seq", "16", "--token", saved, "--batches", "1")
        expect_equal(batches(events)[0]["step"], 1, "the same length goes on")


def test_resume_in_order():
    """20 unshuffled samples, batch 4, token after 2 batches, daemon restarted: 8 to 11 come next,
    and the following epoch has all 20."""
    spec = ["--source", "synthetic:8:u8:20", "--batch", "4", "--shuffle", "none"]
    with Daemon() as daemon:
        first = daemon.batches(*spec, "--batches", "2")
    with Daemon() as daemon:
        events = daemon.batches(*spec, "--token", token(first), "--epochs", "2")
    expect_equal(batches(events)[0]["index"], [8, 9, 10, 11], "the next samples")
    expect_equal(column(events, "index", 0), list(range(8, 20)), "the rest of the epoch")
    expect_equal(column(events, "index", 1), list(range(20)), "the following epoch")


def test_resume_while_shuffling():
    spec = ["--source", "synthetic:8:u8:40", "--batch", "4", "--seed", "7", "--depth", "8"]
    with Daemon() as daemon:
        whole = daemon.batches(*spec, "--epochs", "3")
        first = daemon.batches(*spec, "--batches", "13")
        rest = daemon.batches(*spec, "--token", token(first), "--batches", "17")
    expect_equal(column(first, "index") + column(rest, "index"), column(whole, "index"),
                 "interrupted and uninterrupted")


def test_token_after_the_last_batch_resumes_with_the_end():
    spec = ["--source", "synthetic:8:u8:20", "--batch", "4"]
    with Daemon() as daemon:
        first = daemon.batches(*spec, "--batches", "5")
        events = daemon.batches(*spec, "--token", token(first), "--batches", "1")
    expect_equal([e["event"] for e in events[1:3]], ["epoch_end", "batch"], "events")
    expect_equal((events[2]["epoch"], events[2]["step"]), (1, 0), "the batch after the end")


def test_another_world_with_the_same_global_batch():
    base = ["--source", "synthetic:8:u8:48", "--seed", "3"]
    with Daemon() as daemon:
        first = daemon.batches(*base, "--batch", "6", "--world", "2", "--rank", "0",
                               "--batches", "2")
        per_rank = [batches(daemon.batches(*base, "--batch", "4", "--world", "3", "--rank", str(r),
                                           "--token", token(first), "--batches", "2"))
                    for r in range(3)]
        two = [batches(daemon.batches(*base, "--batch", "6", "--world", "2", "--rank", str(r),
                                      "--token", token(first), "--batches", "2"))
               for r in range(2)]
        for step in range(2):
            expect_equal(sorted(i for rank in per_rank for i in rank[step]["index"]),
                         sorted(i for rank in two for i in rank[step]["index"]),
                         f"global batch {step}")
        refused = error(daemon.batches(*base, "--batch", "5", "--world", "2",
                                       "--token", token(first)))
        expect("a global batch of 12 samples, the job has 10 " in refused["text"],
               f"both global batches are named: {refused['text']}")


def test_token_for_something_else_is_refused():
    base = ["--source", "synthetic:8:u8:48", "--batch", "4"]
    with Daemon() as daemon:
        saved = token(daemon.batches(*base, "--batches", "1"))
        other = error(daemon.batches("--source", "synthetic:9:u8:48", "--batch", "4", "--token",
                                     saved))
        expect("synthetic:8:u8:48" in other["text"] and "synthetic:9:u8:48" in other["text"],
               f"both datasets are named: {other['text']}")
        seed = error(daemon.batches(*base, "--seed", "5", "--token", saved))
        expect("seed" in seed["text"], seed["text"])
        cut = error(daemon.batches(*base, "--token", saved[:-3]))
        expect_equal(cut["call"], "spec", "a token cut short is refused at once")


def test_batch_larger_than_the_data():
    with Daemon() as daemon:
        small = ["--source", "synthetic:8:u8:5", "--batch", "8"]
        refused = error(daemon.batches(*small))
        expect("takes 8 samples" in refused["text"] and "the dataset has 5" in refused["text"],
               refused["text"])
        events = daemon.batches(*small, "--last", "partial", "--epochs", "1")
        expect_equal([b["count"] for b in batches(events)], [5], "one batch of all")


def crops(daemon, *arguments):
    """Every sample as (epoch, index, pixels), in order."""
    out = []
    for batch in batches(daemon.batches(*arguments, "--values")):
        rows = numpy.frombuffer(bytes.fromhex(batch["values"]), "u1").reshape(batch["shape"][0], -1)
        out += [(batch["epoch"], index, rows[i].tobytes()) for i, index in enumerate(batch["index"])]
    return out


def test_randomness_is_the_samples():
    """8 copies of one image: crops differ by sample and by epoch, and are the same with 1 and 4
    workers; epoch 3 is the same after a restart."""
    with folder() as path:
        os.mkdir(f"{path}/c")
        for i in range(8):
            with open(f"{path}/c/{i}.jpg", "wb") as file:
                file.write(images.jpeg(5))
        spec = ["--source", f"folder:{path}", "--image", "random-crop:16", "--flip", "0.5",
                "--batch", "4", "--seed", "11"]
        passes = []
        for workers in (1, 4):
            with Daemon(f"workers.per_numa_node={workers}") as daemon:
                passes.append(crops(daemon, *spec, "--epochs", "5"))
        expect_equal([p[:2] for p in passes[1]], [p[:2] for p in passes[0]], "order by 4 workers")
        expect(passes[1] == passes[0], "other crops by 4 workers")
        expect_equal(len(passes[0]), 40, "samples")
        expect_equal(len({pixels for _, _, pixels in passes[0]}), 40, "different crops")
        orders = [[i for e, i, _ in passes[0] if e == epoch] for epoch in range(5)]
        expect_equal([sorted(order) for order in orders], [list(range(8))] * 5, "each sample once")
        expect(len({tuple(order) for order in orders}) >= 4, f"other orders: {orders}")
        with Daemon() as daemon:
            again = crops(daemon, *spec, "--start", "3:0", "--epochs", "1")
        expect(again == [sample for sample in passes[0] if sample[0] == 3], "epoch 3 by itself")


def test_resume_with_other_workers():
    """In the middle of an epoch from 4 workers to 1: order and pixels are those of one run."""
    with folder() as path:
        images.make_folder(path, classes=2, each=12)
        spec = ["--source", f"folder:{path}", "--image", "random-crop:16", "--flip", "0.5",
                "--batch", "4", "--seed", "3"]
        with Daemon("workers.per_numa_node=4") as daemon:
            first = daemon.batches(*spec, "--batches", "4", "--values")
        with Daemon("workers.per_numa_node=1") as daemon:
            rest = daemon.batches(*spec, "--token", token(first), "--batches", "8", "--values")
            whole = daemon.batches(*spec, "--epochs", "2", "--values")
        expect_equal(len(batches(whole)), 12, "batches")
        expect(batches(first) + batches(rest) == batches(whole), "other batches")


run([test_partial_has_every_sample_once, test_pad_marks_what_it_repeats, test_uneven_shards,
     test_labels_of_a_folder, test_labels_of_tar_shards,
     test_fewer_shards_than_ranks, test_records_are_what_numpy_sees,
     test_header_versions_are_equal, test_labels_of_records, test_windows_of_tokens,
     test_random_windows, test_tokens_of_another_length_are_other_data, test_resume_in_order,
     test_resume_while_shuffling, test_token_after_the_last_batch_resumes_with_the_end,
     test_another_world_with_the_same_global_batch, test_token_for_something_else_is_refused,
     test_batch_larger_than_the_data, test_randomness_is_the_samples,
     test_resume_with_other_workers])
