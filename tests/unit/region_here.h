/*
 * Regions on this machine, for their tests. What needs another uid, a limit or
 * a system call filter is done in a child, which answers by its exit status: 0,
 * or 1 with the line that failed on stderr.
 */
#ifndef PINSERVE_TESTS_REGION_HERE_H
#define PINSERVE_TESTS_REGION_HERE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "machine.h"
#include "memory/region.h"

#define MIB ((size_t)1 << 20)
#define BYTES (2 * MIB)

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static inline struct region_spec spec_of(size_t bytes)
{
    return (struct region_spec){
        .bytes = bytes, .lock = REGION_LOCK_TRY, .placement = &here, .topology = machine};
}

static inline struct region *region_make(size_t bytes)
{
    struct region_spec spec = spec_of(bytes);
    struct region *region = NULL;
    struct failure failure = {0};

    if (region_new(&spec, &region, &failure))
        fail_msg("%s", failure.text);
    return region;
}

static inline void region_end(struct region *region)
{
    assert_true(region_destroy(region));
    region_free(region);
}

/* Runs body in a child; with drop as nobody, when this is root. */
static inline void in_child(int (*body)(void), bool drop)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        if (drop && geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(99);
        _exit(body());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
