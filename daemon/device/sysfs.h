/*
 * What sysfs says of a PCI device.
 */
#ifndef PINSERVE_DEVICE_SYSFS_H
#define PINSERVE_DEVICE_SYSFS_H

/* The NUMA node of the device at this address, below root; -1 when it has none or is not there. */
int sysfs_numa_node(const char *root, const char *pci);

#endif
