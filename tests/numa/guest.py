"""A guest machine for a test: qemu in software emulation, a kernel, and nothing but busybox and what
the test brings. The guest measures, its host judges: a script inside writes sections to its second
serial port, which come back as a dictionary.

The kernel is any that has NUMA, cpusets, NVMe and the serial port built in, as Debian's cloud kernel
has: $PINSERVE_KERNEL, or the one that tests/setup.sh put into build/guest, or one in /boot.
"""

import glob
import os
import shutil
import stat
import subprocess
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = os.path.join(SOURCE, "build", "guest")
SECONDS_MAX = 190


class Missing(Exception):
    """The machine lacks what a guest needs: the test is skipped."""


class GuestFailed(Exception):
    """It did not come to its end: the text has the end of what it said."""


def find_part(name, *elsewhere):
    """A file that setup.sh unpacked from a package, or else where the package is installed; or None."""
    for pattern in [os.path.join(PARTS, name), *elsewhere]:
        for path in sorted(glob.glob(pattern), reverse=True):
            if os.access(path, os.R_OK):
                return path
    return None


def find_kernel():
    kernel = os.environ.get("PINSERVE_KERNEL") or find_part("vmlinuz", "/boot/vmlinuz-*")
    if not kernel:
        raise Missing("no kernel for the guest: run tests/setup.sh, or set PINSERVE_KERNEL")
    return kernel


def find_program(name):
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is not installed: run tests/setup.sh")
    return path


def libraries(program):
    """What the dynamic loader would load for it, and the loader, as paths; nothing for a static one."""
    result = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return sorted({word for word in result.stdout.split() if word.startswith("/")})


class Archive:
    """An initial file system: a cpio archive of the kind that kernels unpack. Of two archives, one
    behind the other, both are unpacked."""

    def __init__(self):
        self.entries = {}

    def folder(self, path):
        if path and path not in self.entries:
            self.folder(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, b"")

    def file(self, path, data, mode=0o644):
        path = path.lstrip("/")
        self.folder(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, data)

    def copy(self, source, path):
        with open(source, "rb") as file:
            self.file(path, file.read(), 0o755)

    def program(self, source, path):
        """A program, and its libraries where the loader finds them."""
        self.copy(source, path)
        for library in libraries(source):
            self.copy(library, library)

    def pack(self):
        parts = []
        # Folders come before what is in them.
        entries = [*sorted(self.entries.items()), ("TRAILER!!!", (0, b""))]
        for number, (path, (mode, data)) in enumerate(entries, start=1):
            name = path.encode() + b"\0"
            fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
            head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
            parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]
        return b"".join(parts)


class Guest:
    """The parts of a guest, in a folder of its own; it can be booted again and again."""

    def __init__(self):
        self.qemu = find_program("qemu-system-x86_64")
        self.kernel = find_kernel()
        busybox = find_program("busybox")
        if libraries(busybox):
            raise Missing("busybox is not a static one: run tests/setup.sh")
        self.archive = Archive()
        self.archive.copy(busybox, "bin/busybox")
        self.archive.folder("tmp")
        self.folder = tempfile.mkdtemp(prefix="pinserve-guest-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def boot(self, name, script, machine, seconds=SECONDS_MAX):
        """Runs the script (a path) in a guest with these arguments of qemu; gives the sections that it
        wrote, by name."""
        more = Archive()
        more.copy(script, "case.sh")
        if not os.path.exists(self.path("base")):
            with open(self.path("base"), "wb") as file:
                file.write(self.archive.pack())
        with open(self.path("initrd"), "wb") as file, open(self.path("base"), "rb") as base:
            shutil.copyfileobj(base, file)
            file.write(more.pack())
        console, report = self.path(f"{name}.console"), self.path(f"{name}.report")
        command = [self.qemu, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
                   "-nodefaults", "-no-reboot", "-display", "none",
                   "-kernel", self.kernel, "-initrd", self.path("initrd"),
                   "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
                   "-serial", f"file:{console}", "-serial", f"file:{report}", *machine]
        try:
            subprocess.run(command, check=True, timeout=seconds, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            why = error.stderr or f"not within {seconds} s"
            raise GuestFailed(f"{name}: {why}\n{tail(console)}\n{tail(report)}") from None
        sections = sections_read(report)
        if "end" not in sections:
            raise GuestFailed(f"{name}: its script did not end\n{tail(console)}\n{tail(report)}")
        return sections


def tail(path):
    try:
        with open(path, errors="replace") as file:
            return f"--- {os.path.basename(path)} ---\n{file.read()[-4000:]}"
    except FileNotFoundError:
        return ""


def sections_read(path):
    sections, current = {}, None
    with open(path, errors="replace") as file:
        for line in file.read().splitlines():
            if line.startswith("== "):
                current = sections.setdefault(line[3:], [])
            elif current is not None:
                current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}
