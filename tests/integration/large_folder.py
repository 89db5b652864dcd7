"""Folders of many files, and jobs on them by a peer of its own: what the opening of a job tells."""

import os
import time

import rawpeer
from daemon import PATIENCE, wait_for
from rawpeer import RawPeer, field, message

FOLDER, CENTER, BLANK = 1, 2, 1


def make(path, classes, each, text=b""):
    """Class folders of files that only have a name; how many files."""
    for c in range(classes):
        os.makedirs(f"{path}/c{c:04}")
        directory = os.open(f"{path}/c{c:04}", os.O_RDONLY)
        for i in range(each):
            fd = os.open(f"{i:06}.jpg", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=directory)
            if text:
                os.write(fd, text)
            os.close(fd)
        os.close(directory)
    return classes * each


def write_list(path, classes, each, labels=True):
    """All of them, in the order of the class folders."""
    with open(path, "w") as file:
        for c in range(classes):
            file.writelines(f"c{c:04}/{i:06}.jpg{f' {c}' if labels else ''}\n" for i in range(each))


def anonymous_bytes(daemon):
    """The daemon's private memory: its indexes, no pool."""
    with open(f"/proc/{daemon.process.pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def indexing_threads(daemon):
    tasks = f"/proc/{daemon.process.pid}/task"
    names = []
    for task in os.listdir(tasks):
        try:
            with open(f"{tasks}/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass  # it ended meanwhile
    return names.count("pinserve-index")


class Opening:
    """A job that is opened on files of these paths, the folder first. name is what it is called."""

    def __init__(self, daemon, paths, name):
        self.daemon = daemon
        self.peer = RawPeer(daemon.socket, timeout=PATIENCE)
        fds = [os.open(path, os.O_RDONLY) for path in paths]
        self.peer.send(message(rawpeer.DATASET_FDS, *((1, path) for path in paths)), fds)
        for fd in fds:
            os.close(fd)
        source = field(1, FOLDER) + field(2, name)
        pipeline = field(1, CENTER) + field(2, 8) + field(3, 16)
        self.began = time.monotonic()
        self.peer.send(message(rawpeer.OPEN_JOB, (1, source), (2, pipeline), (4, 4), (5, "host"),
                               (6, 1), (12, BLANK), ident=2))
        self.job = self.peer.expect(rawpeer.JOB_OPENED)[1][0]

    def finish(self):
        """(the samples that Progress told, seconds until the job was ready, samples)"""
        told = []
        while True:
            body, fields = self.peer.receive()
            if body == rawpeer.PROGRESS:
                told.append(fields.get(2, [0])[0])
            elif body == rawpeer.JOB_READY:
                return told, time.monotonic() - self.began, fields[7][0]
            elif body in (rawpeer.ERROR, rawpeer.JOB_FAILED):
                raise ValueError(fields)

    def cancel(self):
        """Closes it once it told of progress; seconds until nothing is left of it."""
        self.peer.expect(rawpeer.PROGRESS)
        began = time.monotonic()
        self.peer.send(message(rawpeer.CLOSE_JOB, (1, self.job), ident=3))
        self.peer.expect(rawpeer.DONE)
        wait_for(lambda: indexing_threads(self.daemon) == 0, "the index thread ends")
        seconds = time.monotonic() - began
        self.peer.close()
        return seconds

    def close(self):
        """With its one batch given back: a lease stays until its process is gone."""
        batch = self.peer.expect(rawpeer.BATCH_READY)
        self.peer.send(message(rawpeer.CLOSE_JOB, (1, self.job), ident=3))
        self.peer.expect(rawpeer.DONE)
        self.peer.send(message(rawpeer.RELEASE, (1, self.job), (2, batch.get(2, [0])[0]),
                               (3, batch.get(3, [0])[0])))
        wait_for(lambda: not self.daemon.jobs(), "the job is gone")
        self.peer.close()
