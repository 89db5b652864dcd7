"""Any bytes on a peer's socket end at worst in its own disconnection: one log line, nothing leaks,
others go on."""

import os
import random
import sys

import rawpeer
from daemon import Daemon, Failed, expect, expect_equal, run, wait_for
from rawpeer import RawPeer, field, message


def in_a_child(attack):
    """A process of its own: what a peer leases stays until its process is gone."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            attack()
            status = 0
        except (Failed, AssertionError, OSError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def dropped(daemon, attack, what):
    before = daemon.log().count("dropped:")
    expect_equal(in_a_child(attack), 0, what)
    wait_for(lambda: daemon.log().count("dropped:") > before, f"{what}: a log line")
    expect_equal(daemon.log().count("dropped:"), before + 1, f"{what}: log lines")


def sends(daemon, data, fds=(), greet=True):
    def attack():
        peer = RawPeer(daemon.socket, greet=greet)
        peer.send(data, fds)
        expect(peer.gone(), "the peer is not dropped")
        peer.close()
    return attack


def open_job(daemon, **options):
    peer = RawPeer(daemon.socket)
    peer.send(rawpeer.synthetic_job(**options))
    job = peer.expect(rawpeer.JOB_OPENED)[1][0]
    return peer, job


def in_a_job(daemon, make):
    """Sends make(job, a batch) in the middle of a running job."""
    def attack():
        peer, job = open_job(daemon)
        batch = peer.expect(rawpeer.BATCH_READY)
        peer.send(make(job, batch))
        expect(peer.gone(), "the peer is not dropped")
        peer.close()
    return attack


def release(job, lease, generation):
    return message(rawpeer.RELEASE, (1, job), (2, lease), (3, generation))


def test_wrong_messages_end_their_peer_alone():
    null = os.open("/dev/null", os.O_RDONLY)
    with Daemon("log.lines_per_second=1000") as daemon:
        bystander = daemon.consume("--source", "synthetic:8:u8", "--batch", "4", "--step-ms", "2")
        bystander.stdout.readline()
        good_hello = rawpeer.hello()
        attacks = {
            "garbage": sends(daemon, b"\xff" * 200, greet=False),
            "garbage after hello": sends(daemon, os.urandom(300)),
            "oversized": sends(daemon, good_hello + field(99, b"x" * 70000), greet=False),
            "truncated": sends(daemon, good_hello[:-3], greet=False),
            "an empty message": sends(daemon, field(1, 7)),
            "a request before hello": sends(daemon, message(rawpeer.QUERY, ident=3), greet=False),
            "a second hello": sends(daemon, good_hello),
            "a reply": sends(daemon, message(rawpeer.DONE, ident=3)),
            "an event": sends(daemon, message(rawpeer.BATCH_READY)),
            "a request without id": sends(daemon, message(rawpeer.QUERY)),
            "64 fds where none belong": sends(daemon, message(rawpeer.QUERY, ident=3), [null] * 64),
            "65 fds": sends(daemon, message(rawpeer.QUERY, ident=3), [null] * 65),
            "fds without names": sends(daemon, message(rawpeer.DATASET_FDS), [null] * 2),
            "names without fds": sends(daemon, message(rawpeer.DATASET_FDS, (1, "a"))),
            "release of nothing": sends(daemon, release(1, 0, 0)),
            "close of nothing": sends(daemon, message(rawpeer.CLOSE_JOB, (1, 99), ident=3)),
            "ring of nothing": sends(daemon, message(rawpeer.RING_OPENED, (1, 99), (2, 1), (3, 1))),
            "a wrong generation": in_a_job(
                daemon, lambda job, b: release(job, b.get(2, [0])[0], b.get(3, [0])[0] + 1)),
            "a lease out of range": in_a_job(daemon, lambda job, b: release(job, 500, 0)),
            "a ring on host": in_a_job(
                daemon, lambda job, b: message(rawpeer.RING_CLOSED, (1, job), (2, 1))),
            "another's job": in_a_job(
                daemon, lambda job, b: message(rawpeer.CLOSE_JOB, (1, job - 1), ident=9)),
        }
        for what, attack in attacks.items():
            dropped(daemon, attack, what)
        wait_for(lambda: len(daemon.jobs()) == 1, "only the bystander's job is left")
        expect(bystander.poll() is None, "the bystander goes on")
        bystander.stdin.close()
        bystander.kill()
        bystander.wait()
    os.close(null)


def test_double_release():
    with Daemon() as daemon:
        def attack():
            peer, job = open_job(daemon)
            batch = peer.expect(rawpeer.BATCH_READY)
            lease, generation = batch.get(2, [0])[0], batch.get(3, [0])[0]
            peer.send(release(job, lease, generation))
            peer.send(release(job, lease, generation))
            expect(peer.gone(), "the peer is not dropped")
        dropped(daemon, attack, "a second release of the same lease")


def test_no_common_version_is_refused_in_words():
    with Daemon() as daemon:
        for hello in (rawpeer.hello(major=2), rawpeer.hello(low=5, high=9)):
            peer = RawPeer(daemon.socket, greet=False)
            peer.send(hello)
            body, fields = peer.receive()
            expect_equal(body, rawpeer.ERROR, "the answer")
            expect(b"no common protocol version" in fields[2][0], f"the text: {fields[2][0]}")
            expect(peer.gone(), "the connection ends")


def test_wrong_values_are_refused_and_the_peer_lives():
    with Daemon("limits.jobs=2") as daemon:
        peer = RawPeer(daemon.socket)
        wrong = {
            b"batch": rawpeer.synthetic_job(batch=0),
            b"depth": rawpeer.synthetic_job(depth=129),
            b"nowhere": rawpeer.synthetic_job(device="nowhere"),
            b"source": message(rawpeer.OPEN_JOB, (4, 1), (6, 1), ident=2),
            b"kind 77": message(rawpeer.OPEN_JOB, (1, field(1, 77) + field(2, "x")), (4, 1),
                                (6, 1), ident=2),
            b"unknown": message(rawpeer.QUERY, (1, 88), ident=2),
        }
        for word, data in wrong.items():
            peer.send(data)
            body, fields = peer.receive()
            expect_equal(body, rawpeer.ERROR, f"the answer to a wrong {word}")
            expect(word in fields[2][0], f"the text names it: {fields[2][0]}")
        for _ in range(2):
            peer.send(rawpeer.synthetic_job(depth=1))
            peer.expect(rawpeer.JOB_OPENED)
        peer.send(rawpeer.synthetic_job(depth=1))
        while True:
            body, fields = peer.receive()
            if body == rawpeer.ERROR:
                break
        expect(b"2" in fields[2][0] and b"jobs" in fields[2][0], f"the limit: {fields[2][0]}")


def test_a_peer_that_does_not_read():
    """It is queued for up to its credits and not read meanwhile; it cannot grow the daemon."""
    with Daemon() as daemon:
        quiet = RawPeer(daemon.socket)
        quiet.socket.setblocking(False)
        try:
            for i in range(20000):
                quiet.send(message(rawpeer.QUERY, (1, 0), ident=i + 1))
        except BlockingIOError:
            pass
        expect_equal(daemon.bench("--source", "synthetic:64:u8", "--batch", "4", "--batches",
                                  "50", "--device", "host")["batches"], 50, "others go on")
        status = daemon.ask("status")
        expect(status["peers"] >= 2, f"it is still there: {status}")
        quiet.close()


def test_random_bytes_for_a_while():
    """Seeded mutations of real messages; the daemon is as it was after them."""
    rng = random.Random(20260101)
    seeds = [rawpeer.hello(), rawpeer.synthetic_job(), message(rawpeer.QUERY, (1, 3), ident=4),
             release(1, 0, 0), message(rawpeer.CLOSE_JOB, (1, 1), ident=5)]
    with Daemon("log.level=error", "limits.peers=64") as daemon:
        daemon.ask("status")
        wait_for(lambda: daemon.ask("status")["peers"] == 1, "only the one that asks")
        before = daemon.fds()
        for _ in range(400):
            peer = RawPeer(daemon.socket, greet=rng.random() < 0.7)
            for _ in range(4):
                data = bytearray(rng.choice(seeds))
                for _ in range(rng.randrange(4)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                try:
                    peer.send(bytes(data[:rng.randrange(1, len(data) + 1)]))
                except OSError:
                    break
            peer.close()
        wait_for(lambda: daemon.ask("status")["peers"] == 1 and not daemon.jobs(), "all are gone")
        wait_for(lambda: daemon.fds() <= before + 8, f"no fd leaks: {before}, {daemon.fds()}")


def test_fds_of_a_dataset_are_closed_with_their_peer():
    with Daemon() as daemon:
        wait_for(lambda: daemon.ask("status")["peers"] == 1, "only the one that asks")
        before = daemon.fds()
        null = os.open("/dev/null", os.O_RDONLY)
        peers = [RawPeer(daemon.socket) for _ in range(4)]
        for peer in peers:
            for _ in range(8):
                peer.send(b"".join([field(10, b"".join(field(1, f"n{i}") for i in range(60)))]),
                          [null] * 60)
        wait_for(lambda: daemon.fds() >= before + 4 * 480, "the fds arrive")
        for peer in peers:
            peer.close()
        wait_for(lambda: daemon.fds() <= before + 2, "the fds are closed")
        os.close(null)


def test_files_have_a_limit():
    """One tenant cannot take all fds of the daemon: it is told, and others go on."""
    with Daemon(prefix=["prlimit", "--nofile=400:400"]) as daemon:
        null = os.open("/dev/null", os.O_RDONLY)
        peers = [RawPeer(daemon.socket) for _ in range(5)]
        names = b"".join(field(1, f"n{i}") for i in range(60))
        before = daemon.fds()
        for i, peer in enumerate(peers):
            peer.send(field(rawpeer.DATASET_FDS, names), [null] * 60)
            wait_for(lambda n=60 * min(i + 1, 3): daemon.fds() > before + n - 20, "they arrive", 5)
        told = []
        for peer in peers[3:]:
            body, fields = peer.receive()
            expect_equal(body, rawpeer.ERROR, "the answer")
            told.append(fields[2][0])
            expect(peer.gone(), "the connection ends")
        expect(all(b"200 open files" in text and b"60" in text for text in told), f"{told}")
        expect_equal(daemon.bench("--source", "synthetic:64:u8", "--batch", "4", "--batches", "5",
                                  "--device", "host")["batches"], 5, "others go on")
        for peer in peers:
            peer.close()
        os.close(null)


run([test_wrong_messages_end_their_peer_alone, test_double_release,
     test_no_common_version_is_refused_in_words,
     test_wrong_values_are_refused_and_the_peer_lives, test_a_peer_that_does_not_read,
     test_random_bytes_for_a_while, test_fds_of_a_dataset_are_closed_with_their_peer,
     test_files_have_a_limit])
