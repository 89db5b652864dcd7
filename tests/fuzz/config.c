/*
 * Fuzz target: any bytes as a configuration file, and its first line as a --set.
 * What is accepted, printed and read again is the same configuration.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "fuzz.h"
#include "memory_file.h"

#define MEMORY (UINT64_C(16) << 30)

/* 0, or why it is refused. */
static int config_read(struct config *config, const void *bytes, size_t size)
{
    int fd = memory_file(bytes, size);
    char path[64];
    struct failure failure = {0};

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    config_init(config, MEMORY);
    int r = config_read_file(config, path, &failure);
    close(fd);
    if (r == 0)
        r = config_finish(config, &failure);
    if (r < 0 && (r != failure.code || !*failure.text))
        abort();
    return r;
}

static char *config_text(const struct config *config, size_t *size_p)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, size_p);

    if (!stream)
        abort();
    config_print(config, stream);
    fclose(stream);
    return text;
}

static void print_and_read(const struct config *config)
{
    struct config again;
    size_t size = 0, size_again = 0;
    char *text = config_text(config, &size);

    if (config_read(&again, text, size) < 0)
        abort();
    char *text_again = config_text(&again, &size_again);
    if (size != size_again || memcmp(text, text_again, size) != 0)
        abort();
    free(text);
    free(text_again);
    config_deinit(&again);
}

static void set(const uint8_t *bytes, size_t size)
{
    struct config config;
    struct failure failure;
    const uint8_t *end = memchr(bytes, '\n', size);
    char *line = strndup((const char *)bytes, end ? (size_t)(end - bytes) : size);

    if (!line)
        abort();
    config_init(&config, MEMORY);
    if (config_set(&config, line, &failure) == 0)
        config_finish(&config, &failure);
    config_deinit(&config);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct config config;

    if (config_read(&config, bytes, size) == 0)
        print_and_read(&config);
    config_deinit(&config);
    if (size > 0)
        set(bytes, size);
    return 0;
}
