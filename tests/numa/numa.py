"""Placement on machines with several NUMA nodes, as the kernel sees it: two guests, whose daemons serve
the host device near a PCI device and are asked while they feed a bench.

Every trial of two_nodes.sh and uneven_nodes.sh left its sections here: the pool's pages by
numa_maps and by pinctl, the threads' CPUs, warnings, exit status, log.
"""

import contextlib
import functools
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

from daemon import BUILD, PINCTL, PINSERVED, Failed, expect, expect_equal, run  # noqa: E402
from guest import Guest, GuestFailed, Missing, find_part  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
REGION = 8 << 20
at_end = contextlib.ExitStack()
PLUGIN = find_part("hwloc_pci.so", "/usr/lib/*/hwloc/hwloc_pci.so")
PCIACCESS = find_part("libpciaccess.so.0", "/usr/lib/*/libpciaccess.so.0")


def node(number, mib=0, cpus=""):
    arguments = f"node,nodeid={number}" + (f",cpus={cpus}" if cpus else "")
    if not mib:
        return ["-numa", arguments]
    return ["-object", f"memory-backend-ram,id=m{number},size={mib}M",
            "-numa", f"{arguments},memdev=m{number}"]


def device_on(number, bus):
    """A root complex of its own on a NUMA node, and behind its port one device: bus + 1, 00.0."""
    return ["-device", f"pxb-pcie,id=root{number},bus_nr={bus},numa_node={number},bus=pcie.0",
            "-device", f"pcie-root-port,id=behind{number},bus=root{number},chassis={number}",
            "-device", f"virtio-rng-pci,bus=behind{number}"]


def distances(*pairs):
    return [word for one, other, value in pairs
            for word in ("-numa", f"dist,src={one},dst={other},val={value}")]


@functools.cache
def guest():
    made = Guest()
    at_end.enter_context(made)
    for program in PINSERVED, PINCTL, os.path.join(BUILD, "tests", "numa", "refuse"):
        made.archive.program(program, os.path.join("bin", os.path.basename(program)))
    made.archive.copy(os.path.join(HERE, "init.sh"), "init")
    if PLUGIN and PCIACCESS:
        made.archive.copy(PLUGIN, "plugins/hwloc_pci.so")
        made.archive.copy(PCIACCESS, "lib/x86_64-linux-gnu/libpciaccess.so.0")
    return made


@functools.cache
def sections_or_error(name):
    machine = {"two_nodes": two_nodes, "uneven_nodes": uneven_nodes}[name]()
    try:
        return guest().boot(name, os.path.join(HERE, f"{name}.sh"), machine), None
    except GuestFailed as error:
        print(error)
        return None, f"the guest with {name} failed"


def sections(name):
    found, error = sections_or_error(name)
    expect(not error, error)
    return found


def two_nodes():
    disk = guest().path("disk")
    with open(disk, "wb") as file:
        file.truncate(512 << 20)
    return ["-m", "832", "-smp", "4", *node(0, 512, "0-1"), *node(1, 320, "2-3"),
            "-device", "virtio-rng-pci,bus=pcie.0,addr=2", *device_on(1, 0x80),
            "-drive", f"id=disk,if=none,format=raw,file={disk}",
            "-device", "nvme,serial=disk,drive=disk,bus=pcie.0"]


def uneven_nodes():
    return ["-m", "896", "-smp", "4",
            *node(0, 512, "0-1"), *node(1, 0, "2"), *node(2, 256, "3"), *node(3, 128),
            *distances((0, 1, 21), (0, 2, 31), (0, 3, 40), (1, 2, 15), (1, 3, 40), (2, 3, 20)),
            *device_on(1, 0x80), *device_on(3, 0xa0)]


class Trial:
    def __init__(self, machine, name):
        found = sections(machine)
        expect(f"{name}.exit" in found, f"{name}: there is no such trial")
        self.name = name
        self.found = {key[len(name) + 1:]: text for key, text in found.items()
                      if key.startswith(name + ".")}
        self.log = self.found["log"]

    def exit(self):
        return int(self.found["exit"])

    def fed(self):
        """It served, the bench got its batches, and both ended well."""
        expect("bench" in self.found, f"{self.name}: it did not serve:\n{self.log}")
        expect_equal(self.found["bench.exit"], "0",
                     f"{self.name}: bench\n{self.found['bench']}\n{self.log}")
        expect(json.loads(self.found["bench"])["batches"] > 0, f"{self.name}: no batch came")
        expect_equal(self.exit(), 0, f"{self.name}: the daemon\n{self.log}")
        return self

    def refused(self, *words):
        """It did not even begin to serve, and said why."""
        expect("bench" not in self.found, f"{self.name}: it served")
        expect_equal(self.exit(), 1, f"{self.name}: the daemon\n{self.log}")
        for text in words:
            expect(text in self.log, f"{self.name}: {text!r} is not in\n{self.log}")

    def pages(self):
        """Of the pool's pages, how many are on each NUMA node, by the kernel."""
        counts = {}
        for number, pages in re.findall(r" N(\d+)=(\d+)", self.found["maps"]):
            counts[int(number)] = counts.get(int(number), 0) + int(pages)
        return counts

    def pool(self):
        return json.loads(self.found["pools"])["pools"][0]

    def device(self):
        return json.loads(self.found["devices"])["devices"][0]

    def warnings(self):
        return json.loads(self.found["status"])["warnings"]

    def worker_cpus(self):
        threads = [line.split(" ") for line in self.found["threads"].splitlines()]
        return {cpus for thread, cpus in threads if thread == "pinserve-worker"}

    def all_pages_on(self, number):
        pool = self.pool()
        pages = pool["bytes"] // 4096
        expect(pages >= 4 * 32 * 3 * 224 * 224 // 4096, f"{self.name}: the pool is too small")
        expect_equal(self.pages(), {number: pages}, f"{self.name}: pages by numa_maps")
        expect_equal((pool["numa_node"], pool["binding"], pool["pages"], pool["pages_local"]),
                     (number, "bound", pages, pages), f"{self.name}: the pool")

    def warned_once(self, text):
        expect_equal(self.warnings(), [text], f"{self.name}: warnings")
        expect_equal(self.log.count("warning: "), 1, f"{self.name}: warnings in\n{self.log}")

    def not_warned(self):
        expect_equal(self.warnings(), [], f"{self.name}: warnings")


# -- two nodes of CPUs and memory --------------------------------------------------------------

def two(name):
    return Trial("two_nodes", name)


def test_the_guest_is_what_it_should_be():
    expect_equal(sections("two_nodes")["facts"].split(), ["0-1", "1", "-1"], "two nodes")
    expect_equal(sections("uneven_nodes")["facts"].split(),
                 ["0-3", "0,2-3", "0-2", "1", "3"], "uneven nodes")


def test_pool_and_workers_are_near_the_device():
    for name in "near", "strict":
        trial = two(name).fed()
        trial.all_pages_on(1)
        expect_equal(trial.worker_cpus(), {"2-3"}, f"{name}: CPUs of the workers")
        device = trial.device()
        expect_equal((device["pci"], device["numa_node"], device["placement"]),
                     ("0000:81:00.0", 1, "NUMA node 1, nearest to 0000:81:00.0"), name)
        trial.not_warned()


def test_same_with_the_devices_that_hwloc_finds():
    if not (PLUGIN and PCIACCESS):
        print("     without hwloc's PCI plugin: run tests/setup.sh")
        return
    trial = two("plugin").fed()
    expect(int(trial.found["plugin"]) > 0, "the plugin was not loaded")
    expect_equal(int(two("near").found["plugin"]), 0, "the plugin was loaded without being there")
    trial.all_pages_on(1)
    expect_equal(trial.worker_cpus(), {"2-3"}, "CPUs of the workers")
    trial.not_warned()


def test_host_without_a_device_is_bound_to_no_node():
    trial = two("anywhere").fed()
    pool = trial.pool()
    expect_equal((pool["numa_node"], pool["binding"]),
                 (-1, "unbound: host: all allowed CPUs, memory of any NUMA node"), "pool")
    expect_equal(sum(trial.pages().values()), pool["pages"], "pages by numa_maps")
    expect_equal(trial.worker_cpus(), {"0-3"}, "CPUs of the workers")
    trial.not_warned()


def test_device_that_is_not_there():
    two("absent").refused("device.use = host:0000:99:00.0: there is no PCI device 0000:99:00.0")


def test_numa_node_unknown():
    why = ("device host: 0000:00:02.0: numa_node unknown: all allowed CPUs, memory of the first "
           "node that has any, 0")
    trial = two("stray").fed()
    trial.all_pages_on(0)
    expect_equal(trial.worker_cpus(), {"0-3"}, "CPUs of the workers")
    trial.warned_once(why)
    two("stray-strict").refused(f"{why}; placement.numa = strict")


def test_cpuset_that_excludes_the_local_node():
    why = ("device host: NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory of node 0; it "
           "has no allowed CPUs: CPUs of node 0")
    trial = two("first").fed()
    trial.all_pages_on(0)
    expect_equal(trial.worker_cpus(), {"0-1"}, "CPUs of the workers")
    trial.warned_once(why)
    two("first-strict").refused(f"{why}; placement.numa = strict")


def test_cpuset_that_excludes_the_local_memory():
    trial = two("memory").fed()
    trial.all_pages_on(0)
    expect_equal(trial.worker_cpus(), {"2-3"}, "CPUs of the workers")
    trial.warned_once("device host: NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory of "
                      "node 0")


def test_cpuset_whose_nodes_have_too_little_memory():
    trial = two("scarce")
    expect_equal(trial.exit(), 0, f"the daemon was not killed\n{trial.log}")
    expect_equal(trial.found["bench.exit"], "1", "bench")
    expect("too little memory: 7 regions need 469762048 bytes" in trial.found["bench"] and
           "are left of what the cpuset (NUMA nodes 0) allows" in trial.found["bench"],
           trial.found["bench"])


def test_mbind_refused():
    why = (f"cannot bind {REGION} bytes to NUMA node 1: mbind: Operation not permitted (a "
           "container's seccomp profile refuses mbind")
    trial = two("refused").fed()
    expect(trial.pool()["binding"].startswith(f"unbound: {why}"), trial.pool()["binding"])
    expect("unbound: cannot bind" in trial.found["table"], trial.found["table"])
    expect_equal(len(trial.warnings()), 1, "warnings")
    expect(why in trial.warnings()[0], trial.warnings()[0])
    two("refused-strict").refused("device host: cannot bind 4096 bytes to NUMA node 1: mbind: "
                                  "Operation not permitted", "placement.numa = strict")


def test_node_full_of_page_cache_gives_it_back():
    free = sections("two_nodes")["cached.free"]
    expect(int(free) < 3 * REGION // 1024, f"the node was not full: {free} KiB")
    trial = two("cached").fed()
    trial.all_pages_on(1)
    trial.not_warned()


def test_node_that_is_full():
    free = sections("two_nodes")["full.free"]
    expect(int(free) < 60 << 10, f"the node was not full: {free} KiB")
    trial = two("full").fed()
    pages, pool = trial.pages(), trial.pool()
    expect(pages.get(0, 0) > 0, f"nothing is elsewhere: {pages}")
    expect_equal((pool["pages"], pool["pages_local"]), (sum(pages.values()), pages.get(1, 0)),
                 "the pool's pages")
    expect_equal(len(trial.warnings()), 1, "warnings")
    expect("pool of host: NUMA node 1 has no room: " in trial.warnings()[0], trial.warnings()[0])
    # It starts: a page fits. The job whose pool does not is refused.
    strict = two("full-strict")
    expect_equal(strict.exit(), 0, f"the daemon\n{strict.log}")
    expect_equal(strict.found["bench.exit"], "1", "bench")
    expect("pages of a region are not on NUMA node 1, which is full; placement.numa = strict" in
           strict.found["bench"], strict.found["bench"])


# -- nodes that lack something ------------------------------------------------------------------

def uneven(name):
    return Trial("uneven_nodes", name)


def test_node_without_memory():
    for name in "no-memory", "no-memory-strict":
        trial = uneven(name).fed()
        trial.all_pages_on(2)
        expect_equal(trial.worker_cpus(), {"2"}, f"{name}: CPUs of the workers")
        trial.warned_once("device host: NUMA node 1, nearest to 0000:81:00.0, has no memory: memory "
                          "of node 2")


def test_node_without_cpus():
    trial = uneven("no-cpus").fed()
    trial.all_pages_on(3)
    expect_equal(trial.worker_cpus(), {"3"}, "CPUs of the workers")
    expect_equal(trial.device()["placement"],
                 "NUMA node 3, nearest to 0000:a1:00.0, with the CPUs of node 2", "placement")
    trial.not_warned()


def test_nearest_memory_is_not_allowed():
    why = "device host: NUMA node 1, nearest to 0000:81:00.0, has no memory: memory of node 0"
    trial = uneven("excluded").fed()
    trial.all_pages_on(0)
    trial.warned_once(why)
    uneven("excluded-strict").refused(f"{why}; placement.numa = strict")


if __name__ == "__main__":
    with at_end:
        try:
            guest()
        except Missing as missing:
            print(missing)
            sys.exit(77)
        run([value for key, value in list(globals().items()) if key.startswith("test_")])
