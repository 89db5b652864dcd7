/*
 * The log: its lines as they come out of stderr.
 */
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "temp_dir.h"

#define THREADS 4
#define LINES_EACH 200

/* stderr goes to a file while a test runs. */
static struct temp_dir dir;
static int stderr_saved = -1;

static int capture(void **state)
{
    (void)state;
    if (!temp_dir_init(&dir))
        return -1;
    fflush(stderr);
    stderr_saved = dup(STDERR_FILENO);
    int fd = openat(dir.fd, "log", O_RDWR | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    unsetenv("JOURNAL_STREAM");
    log_init(LOG_LEVEL_INFO, 10);
    return 0;
}

static int restore(void **state)
{
    (void)state;
    dup2(stderr_saved, STDERR_FILENO);
    close(stderr_saved);
    temp_dir_deinit(&dir);
    return 0;
}

/* All that was logged so far. */
static const char *logged(void)
{
    static char text[1 << 17];
    ssize_t n = pread(STDERR_FILENO, text, sizeof text - 1, 0);

    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static size_t lines_logged(void)
{
    size_t n = 0;

    for (const char *at = logged(); (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

static void second_begin(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep((unsigned)((1000000000 - now.tv_nsec) / 1000 + 1000));
}

static void writes_program_level_and_text(void **state)
{
    char expected[128];

    (void)state;
    log_warning("pool %s: %d bytes", "host", 5);
    snprintf(expected, sizeof expected, " %s: warning: pool host: 5 bytes\n",
             program_invocation_short_name);
    const char *text = logged();
    /* "2024-05-06 07:08:09.123" comes first. */
    assert_true(text[4] == '-' && text[13] == ':' && text[19] == '.');
    assert_string_equal(text + 23, expected);
}

static void leaves_out_what_is_below_the_level(void **state)
{
    (void)state;
    log_debug("not this");
    log_info("but this");
    assert_null(strstr(logged(), "not this"));
    assert_non_null(strstr(logged(), "info: but this\n"));
    log_init(LOG_LEVEL_ERROR, 10);
    log_warning("nor this");
    log_error("and this");
    assert_null(strstr(logged(), "nor this"));
    assert_non_null(strstr(logged(), "error: and this\n"));
    log_init(LOG_LEVEL_DEBUG, 10);
    log_debug("now this");
    assert_non_null(strstr(logged(), "debug: now this\n"));
}

static void gives_priorities_to_the_journal(void **state)
{
    struct stat st;
    char stream[64];

    (void)state;
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init(LOG_LEVEL_INFO, 10);
    log_warning("one");
    log_error("two");
    assert_string_equal(logged(), "<4>one\n<3>two\n");
    /* Another stream than stderr. */
    setenv("JOURNAL_STREAM", "1:1", 1);
    log_init(LOG_LEVEL_INFO, 10);
    log_warning("three");
    assert_non_null(strstr(logged(), "warning: three\n"));
    unsetenv("JOURNAL_STREAM");
}

static void one_place(int i)
{
    log_info("line %d", i);
}

static void bounds_the_lines_of_one_place(void **state)
{
    (void)state;
    second_begin();
    for (int i = 0; i < 25; i++)
        one_place(i);
    log_info("another place");
    assert_int_equal(lines_logged(), 11);
    assert_non_null(strstr(logged(), "line 9\n"));
    assert_null(strstr(logged(), "line 10"));
    second_begin();
    one_place(25);
    one_place(26);
    assert_non_null(strstr(logged(), "line 25 (15 more like this were held back)\n"));
    assert_non_null(strstr(logged(), "line 26\n"));
}

static void no_bound_is_none(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_INFO, 0);
    for (int i = 0; i < 50; i++)
        one_place(i);
    assert_int_equal(lines_logged(), 50);
}

static void keeps_one_text_on_one_line(void **state)
{
    (void)state;
    log_error("file a\nerror: forged\x1b[31m\x7f");
    assert_int_equal(lines_logged(), 1);
    assert_non_null(strstr(logged(), "file a?error: forged?[31m?\n"));
}

static void cuts_a_long_line(void **state)
{
    char name[5000];

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    log_error("%s", name);
    assert_int_equal(lines_logged(), 1);
    assert_in_range(strlen(logged()), 1900, 2048);
}

static void keeps_errno(void **state)
{
    (void)state;
    errno = EXDEV;
    log_error("failed: %m");
    assert_int_equal(errno, EXDEV);
    assert_non_null(strstr(logged(), strerror(EXDEV)));
}

static void *thread_log(void *arg)
{
    static struct log_site site;

    for (int i = 0; i < LINES_EACH; i++)
        log_write(&site, LOG_LEVEL_INFO, "thread %d line %d end", *(int *)arg, i);
    return NULL;
}

static void threads_do_not_mix_lines(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    size_t whole = 0;

    (void)state;
    log_init(LOG_LEVEL_INFO, 0);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, thread_log, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(lines_logged(), THREADS * LINES_EACH);
    for (const char *at = logged(); (at = strstr(at, " end\n")); at++)
        whole++;
    assert_int_equal(whole, THREADS * LINES_EACH);
}

static void threads_together_stay_within_the_bound(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS] = {0};

    (void)state;
    second_begin();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_log, &numbers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Ten, or twenty when a slow machine needs into the next second. */
    assert_in_range(lines_logged(), 10, 20);
}

/* A client's name for its dataset must not steer the terminal that shows the log. */
static void names_steer_no_terminal(void **state)
{
    (void)state;
    log_info("<%s>", "a\x1b[2J\x7f \xc2\x9b"
                     "31m \x9b"
                     "1A \xe0\xa4 \xff c\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x88");
    assert_non_null(
        strstr(logged(), "<a?[2J? ??31m ?1A ?? ? c\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x88>\n"));
}

#define log_test(f) cmocka_unit_test_setup_teardown(f, capture, restore)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(writes_program_level_and_text),
        log_test(leaves_out_what_is_below_the_level),
        log_test(gives_priorities_to_the_journal),
        log_test(bounds_the_lines_of_one_place),
        log_test(no_bound_is_none),
        log_test(keeps_one_text_on_one_line),
        log_test(names_steer_no_terminal),
        log_test(cuts_a_long_line),
        log_test(keeps_errno),
        log_test(threads_do_not_mix_lines),
        log_test(threads_together_stay_within_the_bound),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
