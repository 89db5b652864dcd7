# Four NUMA nodes: 0 of CPUs and memory; 1 of CPUs alone, with the device 0000:81:00.0; 2 of CPUs and
# memory, the nearest to 1; 3 of memory alone, with the device 0000:a1:00.0, the nearest to 2.
facts() {
    cat /sys/devices/system/node/online /sys/devices/system/node/has_memory
    cat /sys/devices/system/node/has_cpu
    cat /sys/bus/pci/devices/0000:81:00.0/numa_node /sys/bus/pci/devices/0000:a1:00.0/numa_node
}
section facts facts

trial no-memory device.use=host:0000:81:00.0
trial no-memory-strict device.use=host:0000:81:00.0 placement.numa=strict
trial no-cpus device.use=host:0000:a1:00.0 placement.numa=strict

# The nearest memory is not allowed: what is left is not the nearest any more.
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/first
echo 0 >/sys/fs/cgroup/first/cpuset.mems
trial excluded --in first device.use=host:0000:81:00.0
trial excluded-strict --in first device.use=host:0000:81:00.0 placement.numa=strict
