"""An error names the thing: from the library and from pinctl, with the documented exit status."""

import json
import os
import tarfile

import arrays
import images
import numpy
from daemon import (Daemon, expect, expect_equal, folder, have_driver, no_other_users, run,
                    wait_for)


def both(daemon, words, *arguments):
    """The library's error and pinctl's say each of the words; pinctl ends with 1."""
    events = daemon.batches(*arguments, "--epochs", "1")
    errors = [event for event in events if event["event"] == "error"]
    expect_equal(len(errors), 1, f"errors of the library: {events}")
    result = daemon.pinctl("bench", *arguments, check=False)
    expect_equal(result.returncode, 1, f"exit status of pinctl ({result.stderr})")
    for word in words:
        expect(word in errors[0]["text"], f"the library says {word!r}: {errors[0]['text']}")
        expect(word in result.stderr, f"pinctl says {word!r}: {result.stderr}")
    wait_for(lambda: all(job["state"] == "running" for job in daemon.jobs()), "no job is left")


ON_HOST = ["--device", "host"]
CROP = ["--image", "random-crop:16", *ON_HOST]


def test_missing_and_empty_datasets():
    with Daemon() as daemon, folder() as path:
        both(daemon, [f"{path}/none"], "--source", f"folder:{path}/none", *CROP, "--batch", "2")
        both(daemon, [f"{path}/none"], "--source", f"tar:{path}/none-{{0..3}}.tar", *CROP,
             "--batch", "2")
        both(daemon, [path], "--source", f"folder:{path}", *CROP, "--batch", "2")
        os.mkdir(f"{path}/c0")
        open(f"{path}/c0/readme.txt", "w").close()
        both(daemon, [path], "--source", f"folder:{path}", *CROP, "--batch", "2")
        open(f"{path}/empty.tar", "w").close()
        both(daemon, ["empty.tar"], "--source", f"tar:{path}/empty.tar", *CROP, "--batch", "2")


def test_wrong_values():
    with Daemon("pool.max=64MiB", "pool.region=2MiB") as daemon:
        both(daemon, ["device", "GPU-1234"], "--source", "synthetic:8", "--device", "GPU-1234",
             "--batch", "2")
        both(daemon, ["pinned"], "--source", "synthetic:1048576", *ON_HOST, "--batch", "128")
        both(daemon, ["takes 128 samples", "has 64"], "--source", "synthetic:8:u8:64", *ON_HOST, "--batch", "128")
        both(daemon, ["synthetic:8", "crop"], "--source", "synthetic:8", *CROP, "--batch", "2")
        both(daemon, ["copy"], "--source", "synthetic:8", *ON_HOST, "--batch", "2", "--deliver",
             "copy")
        events = daemon.batches("--source", "synthetic:8", "--batch", "0")
        expect("batch" in events[0]["text"], f"a batch of 0: {events}")
        result = daemon.pinctl("bench", "--source", "synthetic:8", "--batch", "0", check=False)
        expect(result.returncode in (1, 2) and "batch" in result.stderr,
               f"pinctl, a batch of 0: {result.returncode} {result.stderr}")


def test_a_corrupt_sample_is_named():
    with Daemon() as daemon, folder() as path:
        images.make_folder(path, classes=2, each=6)
        with open(f"{path}/c1/002.jpg", "rb") as file:
            whole = file.read()
        spec = ["--source", f"folder:{path}", *CROP, "--batch", "3", "--shuffle", "none"]
        for broken in (b"", whole[:len(whole) // 2], b"no image at all"):
            with open(f"{path}/c1/002.jpg", "wb") as file:
                file.write(broken)
            events = daemon.batches(*spec, "--epochs", "1")
            expect_equal([e["index"] for e in events if e["event"] == "batch"],
                         [[0, 1, 2], [3, 4, 5]], "the batches before it arrive")
            expect_equal(events[-1]["event"], "error", "then the job fails")
            expect("c1/002.jpg" in events[-1]["text"], events[-1]["text"])
            both(daemon, ["c1/002.jpg"], *spec)


def test_a_corrupt_tar_member_is_named():
    with Daemon() as daemon, folder() as path:
        images.make_tar(f"{path}/a.tar", 0, 8)
        with tarfile.open(f"{path}/a.tar") as tar:
            offset = tar.getmember("00003.jpg").offset_data
        with open(f"{path}/a.tar", "r+b") as file:
            file.seek(offset)
            file.write(b"\0" * 64)
        both(daemon, ["a.tar", "00003"], "--source", f"tar:{path}/a.tar", *CROP, "--batch", "4")
        with open(f"{path}/cut.tar", "wb") as file:
            with open(f"{path}/a.tar", "rb") as whole:
                file.write(whole.read(offset + 100))
        both(daemon, ["cut.tar"], "--source", f"tar:{path}/cut.tar", *CROP, "--batch", "2")


def test_arrays_that_are_not_served():
    with Daemon() as daemon, folder() as path:
        numpy.save(f"{path}/object.npy", numpy.array([{}, 1], dtype=object), allow_pickle=True)
        numpy.save(f"{path}/struct.npy", numpy.zeros(3, [("a", "<f4")]))
        numpy.save(f"{path}/complex.npy", numpy.zeros((3, 4), "c8"))
        numpy.save(f"{path}/a.npy", numpy.zeros((3, 4), "f4"))
        numpy.save(f"{path}/two.npy", numpy.zeros(2, "i8"))
        with open(f"{path}/cut.npy", "wb") as file, open(f"{path}/a.npy", "rb") as whole:
            file.write(whole.read()[:-1])
        for source, words in (
                ("none.npy", ["none.npy"]), ("object.npy", ["object.npy", "never unpickled"]),
                ("struct.npy", ["struct.npy", "fields"]), ("complex.npy", ["'<c8'"]),
                ("cut.npy", ["cut.npy", "48 bytes", "47"]),
                (f"a.npy,labels={path}/two.npy", ["two.npy", "3 records"]),
                (f"a.npy,labels={path}/a.npy", ["labels", "2 dimensions"]),
                (f"a.npy,labels={path}/gone.npy", ["gone.npy"]),
                ("two.npy:5x7:u8", ["144 bytes", "multiple of 35"])):
            both(daemon, words, "--source", f"records:{path}/{source}", *ON_HOST, "--batch", "1")
        both(daemon, ["a.npy", "crop"], "--source", f"records:{path}/a.npy", *CROP, "--batch", "1")


def test_tokens_that_are_not_served():
    with Daemon() as daemon, folder() as path:
        arrays.make_tokens(path, [5, 100])
        for source, seq, words in (
                ("t{0..1}.bin:u32", "2", ["t0.bin", "10 bytes", "not a multiple of 4"]),
                ("t0.bin", "5", ["window of 6", "longest has 5"]),
                ("t1.bin,vocab=10", "8", ["t1.bin", "at byte", "vocabulary of 10"]),
                ("t{2..3}.bin", "8", ["t2.bin"]), ("x*.bin", "8", ["x*.bin", "no file matches"])):
            both(daemon, words, "--source", f"tokens:{path}/{source}", "--seq", seq, *ON_HOST,
                 "--shuffle", "none", "--batch", "1")
        events = daemon.batches("--source", f"tokens:{path}/t1.bin", "--batch", "1")
        expect("sequence length" in events[0]["text"], f"tokens without seq: {events}")
        events = daemon.batches("--source", "synthetic:8", "--seq", "8", "--batch", "1")
        expect("seq 8" in events[0]["text"], f"seq without tokens: {events}")


def test_a_file_that_shrinks_while_in_use():
    """The records that are left arrive, the first that is not is named, and nobody dies."""
    with Daemon() as daemon, folder() as path:
        numpy.save(f"{path}/a.npy", numpy.zeros((1000, 4096), "u1"))
        arrays.make_tokens(path, [1000 * 2048 + 1])
        for source, name, more in ((f"records:{path}/a.npy", "a.npy: record", []),
                                   (f"tokens:{path}/t0.bin", "t0.bin: the window",
                                    ["--seq", "2048"])):
            process = daemon.consume("--source", source, *more, "--batch", "1", "--depth", "2",
                                     "--shuffle", "none", "--step-ms", "2")
            for _ in range(20):
                process.stdout.readline()
            file = source.split(":", 1)[1]
            os.truncate(file, os.path.getsize(file) // 2)
            events = [json.loads(line) for line in process.communicate()[0].splitlines()]
            expect_equal(events[-1]["event"], "error", "the job fails")
            expect_equal(events[-2]["index"], [events[-2]["step"]], "batches until then")
            expect(400 < events[-2]["step"] < 500, f"half of them arrived: {events[-2]}")
            expect(name in events[-1]["text"] and "shorter" in events[-1]["text"],
                   events[-1]["text"])
        expect_equal(daemon.bench("--source", "synthetic:8", "--batch", "8", "--device", "host",
                                  "--batches", "3")["batches"], 3, "the daemon goes on")


def test_an_unreadable_file_is_named():
    if os.geteuid() == 0:
        return None if no_other_users() else as_another_user()
    with Daemon() as daemon, folder() as path:
        images.make_folder(path, classes=1, each=4)
        os.chmod(f"{path}/c0/001.jpg", 0)
        both(daemon, ["001.jpg"], "--source", f"folder:{path}", *CROP, "--batch", "4")
    return None


def as_another_user():
    """A daemon of root opens files with the eyes of the peer: what it cannot read, it cannot get."""
    with Daemon("daemon.socket_mode=0666") as daemon, folder() as path:
        os.chmod(daemon.folder, 0o755)
        os.chmod(path, 0o755)
        images.make_folder(path, classes=1, each=4)
        os.chmod(f"{path}/c0/001.jpg", 0o600)
        spec = ["--source", f"folder:{path}", *CROP, "--batch", "4", "--epochs", "1"]
        expect_equal(daemon.batches(*spec)[-1]["event"], "token", "root reads its own file")
        process = daemon.consume(*spec, preexec_fn=lambda: (os.setgroups([]), os.setgid(65534),
                                                            os.setuid(65534)))
        output, _ = process.communicate()
        expect("001.jpg" in output and '"error"' in output, f"another user: {output}")


def test_a_symlink_that_leaves_the_folder():
    with Daemon() as daemon, folder() as path, folder() as other:
        images.make_folder(path, classes=1, each=3)
        os.symlink(f"{path}/c0/000.jpg", f"{other}/elsewhere.jpg")
        os.symlink(f"{other}/elsewhere.jpg", f"{path}/c0/out.jpg")
        both(daemon, ["out.jpg"], "--source", f"folder:{path}", *CROP, "--batch", "2")
        os.unlink(f"{path}/c0/out.jpg")
        os.symlink("000.jpg", f"{path}/c0/in.jpg")
        events = daemon.batches("--source", f"folder:{path}", *CROP, "--batch", "4", "--epochs",
                                "1")
        expect_equal(events[-1]["event"], "token", f"a link within is followed: {events}")


def test_no_gpu_for_this_job():
    with Daemon(driver=have_driver()) as daemon:
        result = daemon.pinctl("bench", "--source", "synthetic:8", "--batch", "2", "--device",
                               "cuda:7", check=False)
        expect_equal(result.returncode, 1, "exit status")
        expect("cuda:7" in result.stderr, result.stderr)


def test_too_little_pool_leaves_others_alone():
    with Daemon("pool.max=8MiB", "pool.region=2MiB") as daemon:
        first = daemon.consume("--source", "synthetic:1048576:u8", "--batch", "1", "--depth", "3",
                               "--batches", "3", "--hold", "3", "--wait")
        for _ in range(4):
            first.stdout.readline()
        # Four slots of a little more than 4 MiB.
        both(daemon, ["the limit is 8388608 bytes of pinned memory (limits.pinned), 6291456 are in use "
                      "and 25165824 more were asked for"], "--source", "synthetic:1048576:u8", *ON_HOST,
             "--batch", "4")
        expect(first.poll() is None, "the first goes on")
        first.communicate()
        expect_equal(first.returncode, 0, "the first ends well")
        wait_for(lambda: not daemon.jobs(), "no job")
        result = daemon.bench("--source", "synthetic:1048576:u8", *ON_HOST, "--batch", "2",
                              "--depth", "2", "--batches", "4")
        expect_equal(result["batches"], 4, "there is room again")


def test_a_job_that_needs_more_than_the_machine_has():
    """Refused with both figures before any of it is made; others go on."""
    first_to_die = ["sh", "-c", 'echo 1000 >/proc/self/oom_score_adj; exec "$@"', "sh"]
    with Daemon("pool.max=100%", "pool.region=2MiB", prefix=first_to_die) as daemon:
        other = daemon.consume("--source", "synthetic:8:u8", "--batch", "4", "--batches", "1",
                               "--hold", "1", "--wait")
        wait_for(lambda: '"batch"' in other.stdout.readline(), "a batch")
        before = daemon.ask("status")["pinned_bytes"]
        batch = (daemon.ask("status")["pinned_max"] - before) // (4 * 8 << 20)
        both(daemon, ["too little memory: 4 regions need ", " bytes (", "are left of what"],
             "--source", "synthetic:8388608:u8", *ON_HOST, "--batch", str(batch - 2))
        expect_equal(daemon.ask("status")["pinned_bytes"], before, "bytes pinned")
        expect_equal(daemon.bench("--source", "synthetic:8:u8", *ON_HOST, "--batch", "4",
                                  "--batches", "5")["batches"], 5, "others go on")
        other.communicate()


run([test_missing_and_empty_datasets, test_wrong_values, test_a_corrupt_sample_is_named,
     test_a_corrupt_tar_member_is_named, test_arrays_that_are_not_served,
     test_tokens_that_are_not_served, test_a_file_that_shrinks_while_in_use,
     test_an_unreadable_file_is_named,
     test_a_symlink_that_leaves_the_folder, test_no_gpu_for_this_job,
     test_too_little_pool_leaves_others_alone, test_a_job_that_needs_more_than_the_machine_has])
