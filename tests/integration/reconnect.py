"""Jobs that outlive their daemon: what comes with another one is what would have come without."""

import contextlib
import json
import os
import random
import shutil
import signal
import time

from daemon import GPU, Daemon, expect, expect_equal, folder, have_driver, run, wait_for

SPEC = ["--source", "synthetic:64:u8:800", "--batch", "4", "--depth", "4", "--values"]
STEPS = 200
# A GPU's memory is not read by the client: there the steps are compared, on the stand-in all bytes.
ON_DEVICE = ["--device", "cuda:0"] + ([] if GPU else ["--peek"])


@contextlib.contextmanager
def mortal(*settings, driver=False):
    """A daemon that can be killed, and started again with the same socket and the same log."""
    daemon = Daemon(*settings, driver=driver, check_exit=False).start()
    try:
        yield daemon
    except BaseException:
        print(daemon.log())
        raise
    finally:
        kill(daemon)
        shutil.rmtree(daemon.folder, ignore_errors=True)


def kill(daemon):
    if daemon.process.poll() is None:
        daemon.process.kill()
    daemon.process.wait()


class Consumer:
    def __init__(self, daemon, *arguments):
        self.process = daemon.consume(*arguments)
        self.events = []

    def read(self, event, n=1):
        """Reads until n such events came, and gives the last."""
        while n > 0:
            text = self.process.stdout.readline()
            expect(text, f"the client ended before {event}: {self.events[-3:]}")
            self.events.append(json.loads(text))
            n -= self.events[-1]["event"] == event
        return self.events[-1]

    def end(self, status=0):
        self.process.stdin.close()
        self.events += [json.loads(line) for line in self.process.stdout]
        expect_equal(self.process.wait(60), status, f"exit status, behind {self.events[-1]}")
        return self.stream()

    def stream(self):
        return [event for event in self.events if event["event"] != "job"]

    def go(self):
        """Ends its pause."""
        self.process.stdin.write("x")
        self.process.stdin.flush()


def undisturbed(daemon, *arguments):
    events = daemon.batches(*arguments)
    return [event for event in events if event["event"] != "job"]


def outlive(driver, kills, *spec):
    with mortal(driver=driver) as daemon:
        wanted = undisturbed(daemon, *spec, "--epochs", "2")
        expect_equal(len(wanted), 2 * (STEPS + 1) + 1, "batches, epochs and the token")
        client = Consumer(daemon, *spec, "--epochs", "2", "--reconnect", "--step-ms", "1")
        for _ in range(kills):
            client.read("batch", random.randint(1, STEPS // kills))
            kill(daemon)
            daemon.start()
        got = client.end()
        for place, (ours, theirs) in enumerate(zip(got, wanted)):
            expect_equal(ours, theirs, f"event {place}")
        expect_equal(len(got), len(wanted), "events")
        wait_for(lambda: not daemon.jobs(), "the job is closed")


def test_ten_deaths_in_an_epoch():
    outlive(False, 10, *SPEC)


def test_each_delivery():
    if not have_driver():
        return
    for how in ("fd", "ipc", "copy", "mapped"):
        outlive(True, 2, *SPEC, *ON_DEVICE, "--deliver", how)


def test_two_jobs_of_one_process():
    with mortal() as daemon:
        wanted = undisturbed(daemon, *SPEC, "--epochs", "1")
        client = Consumer(daemon, *SPEC, "--epochs", "1", "--reconnect", "--second")
        for _ in range(2):
            client.read("batch", 20)
            kill(daemon)
            daemon.start()
        expect_equal(client.end(), wanted, "both")


def test_the_end_of_an_epoch():
    """The daemon dies around it: it comes once."""
    spec = [*SPEC[:1], "synthetic:64:u8:24", *SPEC[2:], "--epochs", "3"]
    with mortal() as daemon:
        wanted = undisturbed(daemon, *spec)
        for last, depth in ((6, 1), (6, 8), (7, 1), (7, 8)):
            # At depth 1, what comes next was not announced yet while a batch is leased.
            client = Consumer(daemon, *spec, "--depth", str(depth), "--reconnect", "--pause",
                              str(last))
            client.read("batch", last)
            kill(daemon)
            daemon.start()
            client.go()
            expect_equal(client.end(), wanted, f"behind batch {last}, depth {depth}")


def test_an_orderly_end():
    with mortal() as daemon:
        wanted = undisturbed(daemon, *SPEC, "--epochs", "1")
        client = Consumer(daemon, *SPEC, "--epochs", "1", "--reconnect", "--step-ms", "1")
        client.read("batch", 10)
        daemon.stop()
        daemon.start()
        expect_equal(client.end(), wanted, "batches")


def test_no_daemon_for_a_while():
    """next comes back at its timeout, with words, sleeps meanwhile, and goes on later."""
    with mortal() as daemon:
        wanted = undisturbed(daemon, *SPEC, "--batches", "40")
        client = Consumer(daemon, *SPEC, "--batches", "40", "--reconnect", "--patient", "--timeout",
                          "200", "--pause", "10")
        client.read("batch", 10)
        kill(daemon)
        client.go()
        began = time.monotonic()
        used = cpu_seconds(client.process.pid)
        for _ in range(4):
            error = client.read("error")
        took = time.monotonic() - began
        expect(0.7 < took < 10, f"four timeouts of 200 ms took {took:.2f} s")
        expect(cpu_seconds(client.process.pid) - used < 0.2, "it sleeps")
        expect_equal(error["code"], -110, f"ETIMEDOUT: {error}")
        expect("is gone" in error["text"] and daemon.socket in error["text"], error["text"])
        daemon.start()
        client.end()
        got = [event for event in client.stream() if event["event"] != "error"]
        expect_equal(got, wanted, "batches")


def test_a_stopped_daemon_is_not_gone():
    with mortal() as daemon:
        client = Consumer(daemon, *SPEC, "--epochs", "1", "--reconnect", "--patient", "--timeout",
                          "100", "--step-ms", "1")
        client.read("batch", 10)
        daemon.process.send_signal(signal.SIGSTOP)
        error = client.read("error", 2)
        expect_equal((error["code"], error["text"]), (-110, "no batch within 100 ms"), "ETIMEDOUT")
        daemon.process.send_signal(signal.SIGCONT)
        got = [event["step"] for event in client.end() if event["event"] == "batch"]
        expect_equal(got, list(range(STEPS)), "steps")
        expect_equal(daemon.log().count("job 2"), 0, "second jobs")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_leases_of_a_dead_daemon():
    """They keep their bytes, and the new job has all of its depth besides."""
    places = [[]]
    if have_driver():
        places += [[*ON_DEVICE, "--deliver", how] for how in ("fd", "copy")]
    for place in places:
        with mortal(driver=have_driver()) as daemon:
            client = Consumer(daemon, *SPEC, *place, "--reconnect", "--hold", "8", "--pause", "3",
                              "--batches", "7", "--close-first")
            client.read("batch", 3)
            kill(daemon)
            daemon.start()
            client.go()
            client.end()
            got = [event for event in client.stream() if event["event"] == "batch"]
            expect_equal([event["step"] for event in got], 2 * list(range(7)), "steps")
            expect_equal(got[7:], got[:7], f"{place}: read again")
            wait_for(lambda d=daemon: not d.jobs(), "the job ends with its leases")
            expect_equal(sum(pool["used_bytes"] for pool in daemon.ask("pools")["pools"]), 0,
                         "bytes in slots")


def test_other_data():
    """A token for other data is refused, in words, and for good."""
    with folder() as path, mortal() as daemon:
        tokens = os.path.join(path, "tokens")
        with open(tokens, "wb") as file:
            file.write(bytes(8000))
        client = Consumer(daemon, "--source", f"tokens:{tokens}:u16", "--seq", "16", "--batch", "4",
                          "--reconnect", "--pause", "3")
        client.read("batch", 3)
        kill(daemon)
        with open(tokens, "wb") as file:
            file.write(bytes(9000))
        daemon.start()
        client.go()
        error = client.end(1)[-1]
        expect_equal((error["event"], error["code"]), ("error", -22), f"EINVAL: {error}")
        expect(error["text"].startswith("after reconnecting: "), error["text"])


if __name__ == "__main__":
    run([test_ten_deaths_in_an_epoch, test_each_delivery, test_two_jobs_of_one_process,
         test_the_end_of_an_epoch, test_an_orderly_end, test_no_daemon_for_a_while,
         test_a_stopped_daemon_is_not_gone, test_leases_of_a_dead_daemon, test_other_data])
