/*
 * What a job wants, in the words of the protocol. The spec owns its texts; the
 * messages that it is put into point to them.
 */
#ifndef PINSERVE_CLIENT_SPEC_H
#define PINSERVE_CLIENT_SPEC_H

#include <stdbool.h>

#include "handle.h"
#include "pinclient.h"
#include "pinserve.pb-c.h"
#include "proto/limits.h"

struct pinclient_spec {
    struct handle handle;
    Pinserve__Source source;
    char *source_text;        /* as the user wrote it; NULL: none yet */
    char *source_path;        /* the folder, the pattern or the file; NULL: no files */
    char *labels_path;        /* of records; NULL: none */
    char *list_path;          /* of a folder; NULL: none */
    uint32_t shape[DIMS_MAX]; /* of synthetic samples and of records */
    struct spec_blend *blend; /* NULL: no blend */
    struct spec_push *push;   /* NULL: no source push */
    Pinserve__Pipeline pipeline;
    Pinserve__Order order;
    uint32_t batch, depth;
    char *device;
    Pinserve__Delivery delivery;
    Pinserve__BadSamples bad;
    bool has_bad_limit;
    Pinserve__BadLimit bad_limit;
    uint64_t epoch, step;
    bool live;                    /* start where its mates are, instead */
    Pinserve__ResumeToken *token; /* NULL: start at epoch and step */
    char *name;
    bool reconnect;
};

/* Puts a copy of text in the place of *text_p. -ENOMEM */
int spec_text_replace(struct pinclient_spec *spec, char **text_p, const char *text);

/* NULL is allowed. */
void spec_push_free(struct spec_push *push);

/* A spec of its own that wants the same, but starts at the beginning; NULL: no memory. Not of
 * source push. */
struct pinclient_spec *spec_clone(const struct pinclient_spec *spec);

/* Fills an OpenJob, which points into spec, but for the device: that one is the caller's. */
void spec_open_job(const struct pinclient_spec *spec, Pinserve__OpenJob *open);

#endif
