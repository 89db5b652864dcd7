/*
 * pinctl probe: what the daemon makes of image files.
 */
#ifndef PINCTL_PROBE_H
#define PINCTL_PROBE_H

#include <stdio.h>

#include "options.h"

/* A word of the command line as a file and a member of it. */
struct probe_name {
    char *file;
    const char *member; /* within the word; "" for the file itself */
};

/* FILE where there is such a file, else SHARD:MEMBER by the first colon behind which there is a
 * shard before it, else FILE all the same. -ENOMEM. file is to be freed. */
int probe_name_split(const char *word, struct probe_name *name_p);

/* Asks for each of options->files and prints. An exit status. */
int probe_run(const struct options *options, FILE *out, struct failure *failure);

#endif
