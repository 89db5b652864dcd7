/*
 * Reports as tables for people.
 */
#ifndef PINCTL_REPORT_TEXT_H
#define PINCTL_REPORT_TEXT_H

#include <stdio.h>

#include "query.h"

/* 0 or -ENOMEM. */
int report_text(const struct report *report, FILE *out);

/* The stages' means in microseconds. */
struct stages_us {
    double read, decode;          /* of a sample */
    double slot_wait, copy, hold; /* of a batch */
};

/* The means of what was added to stages since before (NULL: of all). Zeros where nothing was. */
struct stages_us stages_mean(const Pinserve__Stages *stages, const Pinserve__Stages *before);

/* A GPU's UUID cut to what tells GPUs of a machine apart; returns text. */
const char *format_device(const char *device, char *text, size_t size);

/* "3 d 04:05:06"; returns text. */
const char *format_uptime(uint64_t nanoseconds, char *text, size_t size);

#endif
