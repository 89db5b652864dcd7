/*
 * What a job wants, in the words of the protocol. The spec owns its texts; the
 * messages that it is put into point to them.
 */
#ifndef PINSERVE_CLIENT_SPEC_H
#define PINSERVE_CLIENT_SPEC_H

#include "handle.h"
#include "pinclient.h"
#include "pinserve.pb-c.h"
#include "proto/limits.h"

struct pinclient_spec {
    struct handle handle;
    Pinserve__Source source;
    char *source_text;        /* as the user wrote it; NULL: none yet */
    const char *source_path;  /* in source_text: the folder or the pattern; NULL: no files */
    uint32_t shape[DIMS_MAX]; /* of synthetic samples */
    Pinserve__Pipeline pipeline;
    Pinserve__Order order;
    uint32_t batch, depth;
    char *device;
    Pinserve__Delivery delivery;
    uint64_t epoch, step;
    Pinserve__ResumeToken *token; /* NULL: start at epoch and step */
    char *name;
};

/* Fills an OpenJob, which points into spec, but for the device: that one is the caller's. */
void spec_open_job(const struct pinclient_spec *spec, Pinserve__OpenJob *open);

#endif
