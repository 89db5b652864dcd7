/*
 * What sysfs says of a PCI device. root is "" or a folder of tests. An address
 * may be written as the driver or the NVML do: 00000000:C1:00.0.
 */
#ifndef PINSERVE_DEVICE_SYSFS_H
#define PINSERVE_DEVICE_SYSFS_H

#include <stdbool.h>

/* The NUMA node of the device at this address; -1 when it has none or is not there. */
int sysfs_numa_node(const char *root, const char *pci);

bool sysfs_has_device(const char *root, const char *pci);

#endif
