"""What a client is given: every sample exactly once an epoch, its right label, in an order that
ranks, tokens and restarts agree on."""

import os

import images
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
        expect("12" in refused["text"] and "10" in refused["text"],
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
        expect("8" in refused["text"] and "5" in refused["text"], refused["text"])
        events = daemon.batches(*small, "--last", "partial", "--epochs", "1")
        expect_equal([b["count"] for b in batches(events)], [5], "one batch of all")


run([test_partial_has_every_sample_once, test_pad_marks_what_it_repeats, test_uneven_shards,
     test_labels_of_a_folder, test_labels_of_tar_shards, test_resume_in_order,
     test_resume_while_shuffling, test_token_after_the_last_batch_resumes_with_the_end,
     test_another_world_with_the_same_global_batch, test_token_for_something_else_is_refused,
     test_batch_larger_than_the_data])
