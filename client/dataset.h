/*
 * The files of a dataset: opened here, with this process's rights, and sent to
 * the daemon as descriptors.
 */
#ifndef PINSERVE_CLIENT_DATASET_H
#define PINSERVE_CLIENT_DATASET_H

#include <stddef.h>

#include "connection.h"
#include "spec.h"

/* Checks the `{000..099}` ranges of a pattern of files of a kind ("tar"). -EINVAL */
int dataset_pattern_check(const char *kind, const char *pattern, struct failure *failure);

/* The paths that a pattern stands for: ranges in the order of counting, the last one fastest; a
 * glob's files sorted by bytes. -ENOENT when a glob matches nothing; -EINVAL when there are more
 * than max. Free each path and the list. */
int dataset_expand(const char *kind, const char *pattern, size_t max, char ***paths_p, size_t *n_p,
                   struct failure *failure);

/* Opens the files that spec's source names, if any, and sends them; each is closed again once the
 * daemon has it. */
int dataset_send(const struct pinclient_spec *spec, struct connection *connection,
                 struct failure *failure);

#endif
