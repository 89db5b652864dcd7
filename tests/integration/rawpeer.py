"""A peer that speaks the protocol byte by byte, so that it can also speak it wrong. An encoding of
its own, independent of the one under test."""

import array
import socket

# Message.body, by field number; see proto/pinserve.proto.
HELLO, DATASET_FDS, OPEN_JOB, CLOSE_JOB, QUERY = 2, 10, 11, 12, 13
EVICT, DRAIN = 15, 16
RING_OPENED, RELEASE, RING_CLOSED = 20, 21, 22
ERROR, DONE, JOB_OPENED, REPORT = 30, 31, 32, 33
PROGRESS, REGION_ADDED, JOB_READY, BATCH_READY = 40, 41, 42, 43
EPOCH_END, RING_REPLACED, JOB_FAILED, GOODBYE = 44, 45, 46, 47


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray)):
        return varint(number << 3 | 2) + varint(len(value)) + bytes(value)
    return varint(number << 3) + varint(value)


def message(body, *fields, ident=0):
    head = field(1, ident) if ident else b""
    return head + field(body, b"".join(field(n, v) for n, v in fields))


def hello(major=1, low=0, high=0):
    return message(HELLO, (1, major), (2, low), (3, high), (4, "raw peer"), (5, "host"), ident=1)


def synthetic_job(batch=4, depth=2, samples=64, device="host", ident=2):
    source = field(1, 3) + field(2, "synthetic:8:u8") + field(3, 8) + field(4, "u8") \
        + field(5, samples)
    order = field(5, 1)
    return message(OPEN_JOB, (1, source), (3, order), (4, batch), (5, device), (6, depth),
                   ident=ident)


def parse(data):
    """{field: [values]}; groups and fixed widths do not occur in what we read."""
    out, i = {}, 0

    def number():
        nonlocal i
        value = shift = 0
        while True:
            byte = data[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            value = number()
        elif kind == 1:
            value, i = data[i:i + 8], i + 8
        elif kind == 5:
            value, i = data[i:i + 4], i + 4
        else:
            size = number()
            value, i = data[i:i + size], i + size
        out.setdefault(key >> 3, []).append(value)
    return out


class Gone(Exception):
    pass


class RawPeer:
    def __init__(self, path, timeout=20, greet=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        if greet:
            self.send(hello())
            self.expect(HELLO)

    def send(self, data, fds=()):
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], control)

    def receive(self):
        """(body, fields); Gone at the end of the connection. Fds that came are closed."""
        try:
            data, control, _, _ = self.socket.recvmsg(1 << 17, socket.CMSG_SPACE(64 * 4))
        except ConnectionError:
            raise Gone() from None
        for _, _, fds in control:
            for fd in array.array("i", fds):
                socket.close(fd)
        if not data:
            raise Gone()
        fields = parse(data)
        body = [n for n in fields if n != 1][0]
        return body, parse(fields[body][0])

    def expect(self, body):
        while True:
            got, fields = self.receive()
            if got == body:
                return fields
            if got in (ERROR, JOB_FAILED, GOODBYE):
                raise AssertionError(f"message {got}: {fields}")

    def gone(self):
        """Reads until the end; False when it does not come in time."""
        try:
            while True:
                self.receive()
        except Gone:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.socket.close()
