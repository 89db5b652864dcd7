"""Text as people have it, through a real daemon: files of nanoGPT, llm.c and Megatron-LM, windows
across and within documents, and blends, against an implementation in NumPy."""

import json
import os
import resource
import subprocess
import time

import numpy

import text_files
from daemon import (PATIENCE, PINCTL, PINSERVED, SANITIZED, Daemon, environment, expect,
                    expect_equal, folder, run)

ON_HOST = ("--device", "host")
TYPES = {2: "<i8", 8: "<i4"}
SEQ = 16


def tensor(event):
    return numpy.frombuffer(bytes.fromhex(event["values"]), TYPES[event["dtype"]]).reshape(
        event["shape"])


def of(events, kind):
    return [event for event in events if event["event"] == kind]


def serve(daemon, source, *options, seq=SEQ):
    return daemon.batches("--source", source, "--seq", str(seq), *ON_HOST, *options, "--values")


def compare(events, wanted, fields=()):
    """Batches of a client against those of the reference: sample numbers and every tensor."""
    got = of(events, "batch")
    wanted = list(wanted)
    expect(not of(events, "error"), f"no error: {of(events, 'error')}")
    expect_equal(len(got), len(wanted), "the number of batches")
    for event, (numbers, samples) in zip(got, wanted):
        where = f"epoch {event['epoch']}, step {event['step']}"
        expect_equal(event["index"], numbers, f"{where}: the samples' numbers")
        expect_equal(event["label"], [-1] * len(numbers), f"{where}: labels")
        tensors = {"tokens": tensor(event)}
        tensors.update((t["tensor"], tensor(t)) for t in event.get("further", []))
        expect_equal(sorted(tensors), sorted(["tokens", *fields]), f"{where}: the tensors")
        for at, name in enumerate(["tokens", "position", "document"]):
            if name in tensors:
                right = numpy.stack([sample[at] for sample in samples])
                expect(numpy.array_equal(tensors[name], right),
                       f"{where}: {name} is\n{tensors[name]}\nnot\n{right}")


def epochs(daemon, dataset, source, *options, fields=(), seq=SEQ, batch=5):
    """Two epochs in each order."""
    for shuffle in ("none", "full"):
        events = serve(daemon, source, "--batch", str(batch), "--seed", "7", "--shuffle", shuffle,
                       "--epochs", "2", *options, seq=seq)
        expect_equal(of(events, "job")[0]["samples"], dataset.samples, "samples")
        compare(events, text_files.batches(dataset, batch, 2, 7, shuffle == "full"), fields)


def refused(daemon, words, source, code=-22, seq=SEQ):
    events = serve(daemon, source, "--batch", "1", seq=seq)
    error = of(events, "error")
    expect(error, f"{source} is refused")
    expect_equal(error[0]["code"], code, f"{source}: {error[0]['text']}")
    for word in [words] if isinstance(words, str) else words:
        expect(word in error[0]["text"], f"\"{error[0]['text']}\" lacks \"{word}\"")


# -- files ---------------------------------------------------------------------------------------


def mixed(path):
    """One file of each kind, named in this order."""
    documents = [[40], [3, 9], [1], [0], [], [100, 20, 17], [16], [17]]
    return [text_files.write_bare(f"{path}/t0.bin", text_files.tokens_of(203, 1)),
            text_files.write_llmc(f"{path}/t1.bin", text_files.tokens_of(190, 2)),
            text_files.write_llmc(f"{path}/t2.bin", text_files.tokens_of(101, 3, 120000), "<u4"),
            text_files.write_megatron(f"{path}/t3", documents),
            text_files.write_megatron(f"{path}/t4", documents, "<i4")]


def test_files_of_every_kind():
    """Headers and indexes are told by their bytes, and no header is ever trained on."""
    with Daemon() as daemon, folder() as path:
        files = mixed(path)
        for pattern, options in [("t{0..4}.bin", ""), ("t*", ",out=i64"),
                                 ("t*.*", ",stride=5,vocab=120000")]:
            stride = 5 if "stride" in options else None
            dataset = text_files.Plain(text_files.windows(files, SEQ, stride))
            epochs(daemon, dataset, f"tokens:{path}/{pattern}{options}")
            epochs(daemon, dataset, f"tokens:{path}/{pattern}{options},document,position",
                   fields=("position", "document"))


def test_windows_within_documents():
    with Daemon() as daemon, folder() as path:
        files = mixed(path)
        for stride in (None, 3):
            dataset = text_files.Plain(text_files.windows(files, SEQ, stride, within=True))
            options = f",stride={stride}" if stride else ""
            epochs(daemon, dataset, f"tokens:{path}/t*.bin,documents=within,position{options}",
                   fields=("position",))
        # An index means its pair, wherever the pattern comes upon it.
        dataset = text_files.Plain(text_files.windows(files[3:], SEQ, within=True))
        epochs(daemon, dataset, f"tokens:{path}/t{{3..4}}.idx,documents=within,document",
               fields=("document",))


def test_random_windows_within_documents():
    """Each lies within its document as its file has it, and other epochs have other ones."""
    with Daemon() as daemon, folder() as path:
        files = mixed(path)
        source = f"tokens:{path}/t*,documents=within,random,position,document"
        samples = len(text_files.windows(files, SEQ, within=True))
        starts = [(file, start, end) for file in files
                  for start, end in zip(file.starts, file.starts[1:])]
        seen = []
        for again in range(2):
            events = serve(daemon, source, "--batch", "1", "--epochs", "3")
            expect_equal(of(events, "job")[0]["samples"], samples, "as many as at a stride of seq")
            for event in of(events, "batch"):
                position, document = (tensor(t)[0] for t in event["further"])
                file, start, end = starts[document[0]]
                expect(all(document == document[0]), f"one document: {document}")
                expect_equal(position.tolist(),
                             list(range(position[0], position[0] + SEQ + 1)), "positions")
                expect(start + position[-1] < end, "within its document")
                right = file.tokens[start + position[0]:start + position[-1] + 1]
                expect_equal(tensor(event)[0].tolist(), right.tolist(), "tokens")
                if not again:
                    seen.append((int(document[0]), int(position[0])))
        expect_equal(len(seen), 3 * samples, "windows")
        expect(len(set(seen)) > samples, "other epochs, other places")


def test_an_offset_in_bytes():
    with Daemon() as daemon, folder() as path:
        tokens = text_files.tokens_of(100, 1)
        files = [text_files.write_bare(f"{path}/a", tokens, "<i4", b"x" * 37),
                 text_files.write_bare(f"{path}/b", tokens, "<i4", b"y" * 37)]
        dataset = text_files.Plain(text_files.windows(files, SEQ))
        epochs(daemon, dataset, f"tokens:{path}/*:i32,offset=37")
        refused(daemon, ["/a: its 401 bytes behind the offset of 36", "multiple of 4"],
                f"tokens:{path}/a:i32,offset=36")
        refused(daemon, "/a: its 437 bytes end before the offset of 438",
                f"tokens:{path}/a:i32,offset=438")


def test_what_is_refused():
    with Daemon() as daemon, folder() as path:
        mixed(path)
        text_files.write_bare(f"{path}/eval.bin", [1] * 99,
                              before=text_files.llmc_header(20240522, 1, 3))
        text_files.write_bare(f"{path}/long.bin", [1] * 99,
                              before=text_files.llmc_header(20240520, 1, 98))
        refused(daemon, "eval.bin: is an evaluation file", f"tokens:{path}/eval.bin")
        refused(daemon, ["long.bin: its header names 98 tokens", "1220 bytes", "it has 1222"],
                f"tokens:{path}/long.bin")
        refused(daemon, "t2.bin: its tokens are u32, as its header says, not u16",
                f"tokens:{path}/t2.bin:u16")
        refused(daemon, "t3.bin: its tokens are u16, as its index says, not i32",
                f"tokens:{path}/t3.bin:i32")
        os.rename(f"{path}/t3.bin", f"{path}/gone.bin")
        refused(daemon, "t3.bin: No such file", f"tokens:{path}/t*.idx", code=-2)
        os.rename(f"{path}/t3.idx", f"{path}/t3")
        refused(daemon, "/t3: is an index of Megatron-LM", f"tokens:{path}/t3")
        os.truncate(f"{path}/t4.bin", 400)
        refused(daemon, ["t4.idx: sequence", "t4.bin has 400 bytes"], f"tokens:{path}/t4.bin")


def test_a_vocabulary_counts_from_the_files_start():
    with Daemon() as daemon, folder() as path:
        tokens = text_files.tokens_of(100, 1, 500)
        tokens[53] = 777
        text_files.write_llmc(f"{path}/a.bin", tokens)
        events = serve(daemon, f"tokens:{path}/a.bin,vocab=777", "--batch", "1", "--epochs", "1")
        error = of(events, "error")[0]["text"]
        expect(f"a.bin: token 777 at byte {1024 + 2 * 53} is not in the vocabulary of 777" in error,
               error)


# -- blends --------------------------------------------------------------------------------------


def blended(path):
    """Three parts, of which the second is small and the third large for their weights."""
    web = [text_files.write_bare(f"{path}/web{i}.bin", text_files.tokens_of(300 + i, i))
           for i in range(3)]
    code = [text_files.write_megatron(f"{path}/code", [[30], [21, 20], [5], [44]])]
    books = [text_files.write_llmc(f"{path}/books{i}.bin", text_files.tokens_of(900, 9 + i))
             for i in range(2)]
    return web, code, books


def blend_of(path, within=False):
    parts, made, first = blended(path), [], 0
    for weight, files in zip((70, 25, 5), parts):
        made.append((weight, text_files.windows(files, SEQ, None, within, first)))
        first += sum(file.documents for file in files)
    source = f"tokens:blend=0.7:{path}/web*.bin,0.25:{path}/code.idx,0.05:{path}/books{{0..1}}.bin"
    return text_files.Blend(made), source + (",documents=within" if within else "")


def test_a_blend_is_a_function_of_position():
    with Daemon() as daemon, folder() as path:
        for within in (False, True):
            dataset, source = blend_of(path, within)
            expect_equal(dataset.period, 20, "14, 5 and 1 in 20")
            expect(dataset.draws[1] > 2 * len(dataset.made[1]), "the small part repeats")
            expect(2 * dataset.draws[2] < len(dataset.made[2]), "the large one goes on")
            epochs(daemon, dataset, f"{source},position,document", fields=("position", "document"))


def test_blends_resume_and_other_worlds():
    with Daemon() as daemon, folder() as path:
        dataset, source = blend_of(path)
        spec = ("--seed", "7", "--batch", "6")
        events = serve(daemon, source, *spec, "--batches", "30")
        token = of(events, "token")[0]["token"]
        wanted = list(text_files.batches(dataset, 6, 3, 7))
        expect(dataset.samples // 6 < 30, "the token is of the second epoch")
        compare(events, wanted[:30])
        compare(serve(daemon, source, *spec, "--token", token, "--batches", "9"), wanted[30:39])
        for rank in range(2):
            events = serve(daemon, source, "--seed", "7", "--batch", "3", "--rank", str(rank),
                           "--world", "2", "--token", token, "--batches", "9")
            compare(events, [(numbers[rank::2], samples[rank::2])
                             for numbers, samples in wanted[30:39]])
        for other in (source.replace("0.25", "0.26"), source.replace("web*", "web{0..1}"),
                      source + ",documents=within", source.split(",")[0]):
            error = of(serve(daemon, other, *spec, "--token", token), "error")
            expect(error and "fingerprint" in error[0]["text"], f"{other}: {error}")
        # The same shares in other words are the same blend.
        same = source.replace("0.7:", "14:").replace("0.25:", "5:").replace("0.05:", "1:")
        compare(serve(daemon, same, *spec, "--token", token, "--batches", "2"), wanted[30:32])


def test_a_blend_of_random_windows():
    with Daemon() as daemon, folder() as path:
        dataset, source = blend_of(path)
        events = serve(daemon, f"{source},random,document", "--batch", "10", "--shuffle", "none",
                       "--epochs", "2")
        first = numpy.cumsum([0] + [sum(f.documents for f in part) for part in blended(path)])
        for event in of(events, "batch"):
            for number, document in zip(event["index"], tensor(event["further"][0])):
                part = dataset.table[number % dataset.period][0]
                expect(first[part] <= document[0] < first[part + 1], "the part of the sample")


def test_a_part_without_a_window_is_refused():
    with Daemon() as daemon, folder() as path:
        _, source = blend_of(path)
        refused(daemon, ["code.idx", "no window of 201 tokens", "the longest has 120"], source,
                code=-2, seq=200)


# -- size ----------------------------------------------------------------------------------------


def resident(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as file:
        return [int(line.split()[1]) for line in file if line.startswith("VmRSS")][0] * 1024


def opened(files, size):
    """Resident bytes that a job on so many files of so many bytes adds, and how long it took."""
    with Daemon() as daemon, folder() as path:
        for i in range(files):
            with open(f"{path}/t{i:04}.bin", "wb") as file:
                file.truncate(size)
        before = resident(daemon)
        began = time.monotonic()
        client = daemon.consume("--source", f"tokens:{path}/t*.bin", "--seq", "1024", *ON_HOST,
                                "--batch", "4", "--batches", "1", "--wait")
        job = client.stdout.readline()
        took = time.monotonic() - began
        expect('"samples"' in job, job)
        client.stdout.readline()
        grown = resident(daemon) - before
        client.communicate("")
        return job, grown, took


def test_a_trillion_tokens_take_no_memory():
    """1,000 files of 10^9 tokens each, sparse, against as many of 2,000."""
    _, small, _ = opened(1000, 4000)
    job, large, took = opened(1000, 2 * 10**9)
    expect(f'"samples": {1000 * ((10**9 - 1025) // 1024 + 1)}' in job, job)
    print(f"     a job on 10^12 tokens in 1,000 files opens in {1000 * took:.0f} ms, "
          f"{large / 1e6:.1f} MB (small files: {small / 1e6:.1f} MB)")
    expect(large < small + (8 << 20 if SANITIZED else 2 << 20),
           f"memory grew by {large}, with small files by {small}")


def test_a_thousand_pairs_with_a_private_daemon():
    """2,000 descriptors, with the limit on open files that many systems set for a process."""
    with folder() as path:
        files = [text_files.write_megatron(f"{path}/p{i:04}", [[30], [21, 20], [5], [44]])
                 for i in range(1000)]
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = min(hard, 1024)
        result = subprocess.run(
            [PINSERVED, "run", "--set", "device.use=host", "--", PINCTL, "--json", "bench",
             "--source", f"tokens:{path}/*.bin,documents=within", "--seq", str(SEQ), "--batch", "1000",
             "--epochs", "1", *ON_HOST], env=environment(), capture_output=True, text=True,
            timeout=PATIENCE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                    (soft, hard)))
        expect_equal(result.returncode, 0, f"exit status: {result.stderr}")
        samples = len(text_files.windows(files, SEQ, within=True))
        expect_equal(json.loads(result.stdout)["samples"], samples // 1000 * 1000, "samples")


run([test_files_of_every_kind, test_windows_within_documents, test_random_windows_within_documents,
     test_an_offset_in_bytes, test_what_is_refused, test_a_vocabulary_counts_from_the_files_start,
     test_a_blend_is_a_function_of_position, test_blends_resume_and_other_worlds,
     test_a_blend_of_random_windows, test_a_part_without_a_window_is_refused,
     test_a_trillion_tokens_take_no_memory, test_a_thousand_pairs_with_a_private_daemon])
