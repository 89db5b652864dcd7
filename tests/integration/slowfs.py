"""A file system that answers when the test likes: a FUSE server of a few files, spoken byte by byte.
An operation that is held gets its answer when it is let go, or an error when the file system ends.

Whoever holds a file open on it may hang in close: the clients of a test are processes of their own,
and the server is one too, so that the test itself never waits for it."""

import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
NAMES = {"read": READ, "flush": FLUSH, "readdir": READDIR}
LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


class Server:
    """Shows the tree below `root`; `held` are (operation, part of a path)."""

    def __init__(self, fd, root):
        self.fd, self.root = fd, root
        self.paths = {1: ""}
        self.held, self.waiting = [], []

    def node(self, path):
        for node, known in self.paths.items():
            if known == path:
                return node
        self.paths[len(self.paths) + 1] = path
        return len(self.paths)

    def attributes(self, node):
        st = os.stat(os.path.join(self.root, self.paths[node]))
        return struct.pack("<6Q10I", node, st.st_size, 1, 0, 0, 0, 0, 0, 0, st.st_mode, 1,
                           st.st_uid, st.st_gid, 0, 4096, 0)

    def answer(self, unique, data=b"", error=0):
        try:
            os.write(self.fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # whoever asked does not wait any more
                raise

    def lookup(self, node, name):
        path = os.path.join(self.paths[node], name)
        if not os.path.exists(os.path.join(self.root, path)):
            return None
        child = self.node(path)
        return struct.pack("<4Q2I", child, 0, 0, 0, 0, 0) + self.attributes(child)

    def entries(self, node, offset, size):
        names = [".", "..", *sorted(os.listdir(os.path.join(self.root, self.paths[node])))]
        out = b""
        for i, name in enumerate(names[offset:], offset):
            kind = stat.S_IFMT(os.stat(os.path.join(self.root, self.paths[node], name)).st_mode)
            row = struct.pack("<2Q2I", 1, i + 1, len(name), kind >> 12) + name.encode()
            row += b"\0" * (-len(row) % 8)
            if len(out) + len(row) > size:
                break
            out += row
        return out

    def serve(self, request):
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        body = request[40:]
        if code in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        path = self.paths.get(node, "")
        if any(code == held and part in path for held, part in self.held):
            self.waiting.append(request)
            return
        if code == INIT:
            self.answer(unique, struct.pack("<4I2H2I2H8I", 7, 31, 1 << 17, 0, 0, 0, 1 << 17, 1, 0,
                                            0, *[0] * 8))
        elif code == LOOKUP:
            found = self.lookup(node, body.rstrip(b"\0").decode())
            self.answer(unique, found or b"", 0 if found else errno.ENOENT)
        elif code == GETATTR:
            self.answer(unique, struct.pack("<Q2I", 0, 0, 0) + self.attributes(node))
        elif code in (OPEN, OPENDIR):
            self.answer(unique, struct.pack("<Q2I", 0, 1 if code == OPEN else 0, 0))
        elif code == READ:
            offset, size = struct.unpack_from("<QI", body, 8)
            with open(os.path.join(self.root, path), "rb") as file:
                file.seek(offset)
                self.answer(unique, file.read(size))
        elif code == READDIR:
            offset, size = struct.unpack_from("<QI", body, 8)
            self.answer(unique, self.entries(node, offset, size))
        elif code in (FLUSH, RELEASE, RELEASEDIR):
            self.answer(unique)
        else:
            self.answer(unique, error=errno.ENOSYS)

    def command(self, text):
        """hold OPERATION PART, or go."""
        words = text.split()
        if words and words[0] == "hold":
            self.held.append((NAMES[words[1]], words[2]))
        elif words:
            waiting, self.held, self.waiting = self.waiting, [], []
            for request in waiting:
                self.serve(request)
        print("ok", len(self.waiting), flush=True)


def mount(path):
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if LIBC.mount(b"slowfs", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount of FUSE")
    return fd


def main(root, path):
    """Serves until its standard input ends; then all that waits fails."""
    try:
        fd = mount(path)
    except OSError as error:
        print(f"no: {error}", flush=True)
        return
    server = Server(fd, root)
    print("ok", flush=True)
    while True:
        ready, _, _ = select.select([fd, 0], [], [])
        if fd in ready:
            server.serve(os.read(fd, 1 << 18))
        if 0 in ready:
            text = sys.stdin.buffer.raw.readline().decode()
            if not text:
                break
            server.command(text)
    LIBC.umount2(path.encode(), MNT_DETACH)


class SlowFs:
    """The server as the test sees it."""

    def __init__(self, root, path):
        self.path = path
        os.makedirs(path, exist_ok=True)
        self.process = subprocess.Popen([sys.executable, "-B", __file__, root, path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        bufsize=1)
        first = self.process.stdout.readline()
        self.refused = None if first == "ok\n" else first.strip()

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def hold(self, operation, part):
        self.ask(f"hold {operation} {part}")

    def waiting(self):
        return self.ask("")

    def go(self):
        self.ask("go")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
