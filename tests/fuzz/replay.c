/*
 * Runs a fuzz target over a corpus, as a plain test: each file, and each cut
 * off at a few places.
 *
 * usage: PROGRAM FOLDER
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define CUTS 16

/* From a copy that ends where the bytes end. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        abort();
    memcpy(copy + 1, bytes, size);
    LLVMFuzzerTestOneInput(copy + 1, size);
    free(copy);
}

static int run_file(const char *folder, const char *name)
{
    static uint8_t bytes[1 << 20];
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t i = 0; i <= CUTS; i++)
        run(bytes, size * i / CUTS);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *entry;
    unsigned files = 0;
    int failed = 0;

    if (!dir) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        failed |= run_file(argv[1], entry->d_name);
        files++;
    }
    closedir(dir);
    printf("%u files\n", files);
    return failed || files == 0;
}
