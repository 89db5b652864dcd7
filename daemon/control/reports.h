/*
 * What the files that answer queries share.
 */
#ifndef PINSERVE_CONTROL_REPORTS_H
#define PINSERVE_CONTROL_REPORTS_H

#include "control/peer.h"

#define REPORT_ROWS_MAX 32 /* of at most about 1,500 bytes each */

void peer_send_report(struct peer *peer, uint64_t id, Pinserve__Report *report);

/* devices.c. Answers at once, or when the devices' links were looked at. */
void report_devices(struct peer *peer, uint64_t id, uint32_t skip);

#endif
