# Two NUMA nodes of CPUs and memory. Devices: 0000:81:00.0 on the second node, 0000:00:02.0 on none.
near=device.use=host:0000:81:00.0
stray=device.use=host:0000:00:02.0

facts() {
    cat /sys/devices/system/node/online
    cat /sys/bus/pci/devices/0000:81:00.0/numa_node /sys/bus/pci/devices/0000:00:02.0/numa_node
}
section facts facts

trial near $near
HWLOC_PLUGINS_PATH=/plugins trial plugin $near
trial strict $near placement.numa=strict
trial anywhere device.use=host placement.numa=strict
trial absent device.use=host:0000:99:00.0

trial stray $stray
trial stray-strict $stray placement.numa=strict

# Only the first node is allowed; only its memory is.
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/first /sys/fs/cgroup/memory
echo 0-1 >/sys/fs/cgroup/first/cpuset.cpus
echo 0 >/sys/fs/cgroup/first/cpuset.mems
echo 0 >/sys/fs/cgroup/memory/cpuset.mems
trial first --in first $near
trial first-strict --in first $near placement.numa=strict
trial memory --in memory $near
# A pool that the machine has room for, and its first node has not.
serve scarce --in first $near pool.region=64MiB pool.max=460MiB && feed --batch 400 --depth 7
finish

# As in a container that may not use the calls of NUMA.
trial refused --by refuse $near
trial refused-strict --by refuse $near placement.numa=strict

free_kib() {
    sed -n 's/.*MemFree: *\([0-9]*\) kB/\1/p' /sys/devices/system/node/node1/meminfo
}

# The second node is full of page cache: of a disk, read from a CPU of that node and kept open. The
# thread that takes it back in the background hardly runs, as on a machine where memory is touched
# faster than that.
exec 4</dev/nvme0n1
taskset 8 cat <&4 >/dev/null
taskset 1 sh -c 'while :; do :; done' &
busy=$!
renice -n -20 -p $busy
taskset -p 1 "$(pidof kswapd1)"
renice -n 19 -p "$(pidof kswapd1)"
section cached.free free_kib
trial cached $near placement.numa=strict
kill $busy
renice -n 0 -p "$(pidof kswapd1)"
exec 4<&-
echo 3 >/proc/sys/vm/drop_caches

# The second node is full of what cannot be taken back, but for less than the pool.
mkdir /tmp/full
mount -t tmpfs -o mpol=bind:1,size=100% full /tmp/full
dd if=/dev/zero of=/tmp/full/full bs=1M count=$(($(free_kib) / 1024 - 40)) 2>/dev/null
section full.free free_kib
large="pool.region=16MiB pool.max=128MiB"
serve full $near $large && feed --batch 96
finish
serve full-strict $near $large placement.numa=strict && feed --batch 96
finish
