/*
 * The files of a dataset: opened here, with this process's rights, and sent to
 * the daemon as descriptors.
 */
#ifndef PINSERVE_CLIENT_DATASET_H
#define PINSERVE_CLIENT_DATASET_H

#include <stddef.h>

#include "connection.h"
#include "spec.h"
#include "spec_tokens.h"

/* Checks the `{000..099}` ranges of a pattern of files of a kind ("tar"). -EINVAL */
int dataset_pattern_check(const char *kind, const char *pattern, struct failure *failure);

/* The paths that a pattern stands for: ranges in the order of counting, the last one fastest; a
 * glob's files sorted by bytes. -ENOENT when a glob matches nothing; -EINVAL when there are more
 * than max. Free each path and the list. */
int dataset_expand(const char *kind, const char *pattern, size_t max, char ***paths_p, size_t *n_p,
                   struct failure *failure);

/* Puts the index of Megatron-LM behind each .bin file that has one, and the .bin file before an
 * index that was named alone. The list is replaced, unless this fails; -EINVAL when there are more
 * than max then. */
int dataset_pair(size_t max, char ***paths_p, size_t *n_p, struct failure *failure);

void dataset_paths_free(char **paths, size_t n);

/* Opens the files that spec's source names, if any, and sends them; each is closed again once the
 * daemon has it. blend, NULL or a clone of spec's, learns how many files each part has. */
int dataset_send(const struct pinclient_spec *spec, struct spec_blend *blend,
                 struct connection *connection, struct failure *failure);

#endif
