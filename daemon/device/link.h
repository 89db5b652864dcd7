/*
 * The PCI Express link of a device, as sysfs tells.
 */
#ifndef PINSERVE_DEVICE_LINK_H
#define PINSERVE_DEVICE_LINK_H

struct link {
    unsigned generation, width;         /* now: a GPU without work may have slowed down */
    unsigned generation_max, width_max; /* of the device, and of the port above it */
};

/* Of the device at this address, below root ("" for the real one); zeros for what is unknown. May
 * wait for a device that sleeps. */
void link_get(const char *root, const char *pci, struct link *link_p);

#endif
