/*
 * client/reconnect.c and seek.c: what pinclient_next returns when the daemon
 * goes and another one comes, and what that one is told.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dlpack.h"
#include "client_peer.h"
#include "interrupted.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

struct fixture {
    struct peer peer;
    struct pinclient_job *job;
};

/* Of the JobReady that comes next. */
static struct {
    uint64_t epoch, step, more_samples;
} ready_at;

static void ready_change(Pinserve__JobReady *ready)
{
    ready->epoch = ready_at.epoch;
    ready->step = ready_at.step;
    ready->samples += ready_at.more_samples;
}

static void open_job(struct fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    memset(&ready_at, 0, sizeof ready_at);
    peer_init(&fixture->peer);
    fixture->peer.reconnect = true;
    fixture->peer.ready = ready_change;
    assert_int_equal(peer_connect(&fixture->peer), 0);
    int r = peer_open_default(&fixture->peer, &fixture->job);
    if (r < 0)
        fail_msg("%s", pinclient_error(fixture->peer.client));
}

static void close_job(struct fixture *fixture)
{
    peer_close(&fixture->peer, fixture->job);
    peer_deinit(&fixture->peer);
}

static bool is_readable(const struct pinclient_job *job, int timeout_ms)
{
    struct pollfd pollfd = {.fd = pinclient_get_fd(job), .events = POLLIN};

    return poll(&pollfd, 1, timeout_ms) == 1;
}

static int64_t clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The daemon dies, which next notices. */
static void lose(struct fixture *f)
{
    struct pinclient_batch *batch;

    peer_hang_up(&f->peer);
    assert_int_equal(pinclient_next(f->job, 0, &batch), -ETIMEDOUT);
    assert_error(f->job, f->peer.path);
    assert_error(f->job, "is gone");
}

/* It is back, with JobReady for this step. */
static void come_back(struct fixture *f, uint64_t epoch, uint64_t step)
{
    ready_at.epoch = epoch;
    ready_at.step = step;
    f->peer.start_asked = PINSERVE__START__START_CURSOR;
    peer_open_start(&f->peer);
    peer_open_end(&f->peer);
    assert_int_equal(f->peer.start_asked, PINSERVE__START__START_TOKEN);
}

static void next_and_release(struct fixture *f, uint64_t epoch, uint64_t step)
{
    struct pinclient_batch *batch;
    struct pinclient_batch_info info;

    int r = pinclient_next(f->job, 5000, &batch);
    if (r < 0)
        fail_msg("%s", pinclient_error(f->job));
    assert_int_equal(r, 0);
    pinclient_batch_info(batch, &info);
    assert_int_equal(info.epoch, epoch);
    assert_int_equal(info.step, step);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
}

/* The new daemon hears nothing of the leases of the old one, though their numbers are the same. */
static void test_goes_on(void **state)
{
    struct fixture f;
    struct pinclient_batch *held;
    struct pinclient_job_info info;
    struct peer_event event;

    (void)state;
    open_job(&f);
    int fd = pinclient_get_fd(f.job);
    f.peer.region[0] = 17;
    held = peer_take(&f.peer, f.job, 0, 0, 0);
    assert_int_equal(pinclient_release(peer_take(&f.peer, f.job, 1, 1, 0), PINCLIENT_NO_STREAM), 0);
    assert_false(is_readable(f.job, 0));
    peer_hang_up(&f.peer);
    assert_true(is_readable(f.job, 5000));
    lose(&f);
    assert_false(is_readable(f.job, 20));
    assert_int_equal(pinclient_job_info(f.job, &info), 0);
    assert_int_equal(info.steps, PEER_STEPS);
    assert_string_equal(info.device, "host");

    come_back(&f, 0, 2);
    assert_int_equal(f.peer.epoch_asked, 0);
    assert_int_equal(f.peer.position_asked, 2 * 8);
    assert_true(is_readable(f.job, 5000));
    peer_send_batch(&f.peer, 0, 9, 0, 2, 0);
    assert_int_equal(pinclient_get_fd(f.job), fd);
    next_and_release(&f, 0, 2);
    assert_true(peer_expect(&f.peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.lease, 0);
    assert_int_equal(event.generation, 9);

    assert_int_equal(peer_first_byte(held), 17);
    assert_int_equal(pinclient_batch_use(held, NULL), 0);
    assert_int_equal(pinclient_release(held, NULL), 0);
    assert_false(peer_expect(&f.peer, 50, &event));
    assert_false(is_readable(f.job, 0));
    peer_send_epoch_end(&f.peer, 0);
    assert_true(is_readable(f.job, 5000));
    assert_int_equal(pinclient_next(f.job, 5000, &held), PINCLIENT_EPOCH_END);
    close_job(&f);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_CLOSE_JOB), 1);
}

/* What was announced before the end is still handed out, and released without an error. */
static void test_what_was_announced(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
    peer_hang_up(&f.peer);
    next_and_release(&f, 0, 0);
    next_and_release(&f, 0, 1);
    lose(&f);
    come_back(&f, 0, 2);
    assert_int_equal(f.peer.position_asked, 2 * 8);
    close_job(&f);
}

static void test_end_of_an_epoch(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;

    (void)state;
    open_job(&f);
    for (uint32_t step = 0; step < PEER_STEPS; step++) {
        peer_send_batch(&f.peer, step % 2, 1, 0, step, 0);
        next_and_release(&f, 0, step);
    }
    lose(&f);
    come_back(&f, 0, PEER_STEPS);
    assert_int_equal(f.peer.epoch_asked, 0);
    assert_int_equal(f.peer.position_asked, PEER_STEPS * 8);
    peer_send_epoch_end(&f.peer, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &batch), PINCLIENT_EPOCH_END);
    lose(&f);
    come_back(&f, 1, 0);
    assert_int_equal(f.peer.epoch_asked, 1);
    assert_int_equal(f.peer.position_asked, 0);
    peer_send_batch(&f.peer, 1, 1, 1, 0, 0);
    next_and_release(&f, 1, 0);
    close_job(&f);
}

/* The token of a job that is lost is that of its last batch. */
static void test_token(void **state)
{
    struct fixture f;
    char before[1024], after[1024];
    size_t size = sizeof before;

    (void)state;
    open_job(&f);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    assert_int_equal(pinclient_job_token(f.job, before, &size), 0);
    lose(&f);
    size = 3;
    assert_int_equal(pinclient_job_token(f.job, after, &size), -ENOSPC);
    assert_int_equal(size, strlen(before) + 1);
    assert_int_equal(pinclient_job_token(f.job, after, &size), 0);
    assert_string_equal(before, after);
    pinclient_job_close(f.job);
    peer_deinit(&f.peer);
}

static void check_final(struct fixture *f, int code, const char *text)
{
    struct pinclient_batch *batch;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(pinclient_next(f->job, 5000, &batch), code);
        assert_error(f->job, text);
        assert_true(is_readable(f->job, 0));
    }
}

static void test_refusals_are_final(void **state)
{
    static const struct {
        const char *refuse, *fail;
        uint64_t step, more_samples;
        int code;
        const char *text;
    } cases[] = {
        {"no GPU-9", NULL, 1, 0, -ENODEV, "after reconnecting: no GPU-9"},
        {NULL, "no folder", 1, 0, -ENOENT, "after reconnecting: no folder"},
        {NULL, NULL, 2, 0, -EPROTO, "after reconnecting: the daemon at "},
        {NULL, NULL, 1, 1, -EPROTO, "after reconnecting: the daemon at "},
    };
    struct fixture f;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_job(&f);
        peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
        next_and_release(&f, 0, 0);
        lose(&f);
        f.peer.refuse_job = cases[i].refuse;
        f.peer.fail_job = cases[i].fail;
        f.peer.opening_fails = cases[i].fail != NULL;
        ready_at.step = cases[i].step;
        ready_at.more_samples = cases[i].more_samples;
        peer_open_start(&f.peer);
        if (!cases[i].refuse && !cases[i].fail) {
            /* The client closes that job within next. */
            peer_open_end(&f.peer);
            peer_close_start(&f.peer);
        }
        check_final(&f, cases[i].code, cases[i].text);
        pinclient_job_close(f.job);
        peer_open_end(&f.peer);
        peer_deinit(&f.peer);
    }
}

/* What lacks for a moment only is asked for again, and told meanwhile. */
static void test_scarce(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;

    (void)state;
    open_job(&f);
    lose(&f);
    f.peer.refuse_job = "3 MiB are wanted";
    f.peer.refuse_code = -ENOMEM;
    come_back(&f, 0, 0);
    for (int i = 0; i < 50 && !strstr(pinclient_error(f.job), "MiB"); i++)
        assert_int_equal(pinclient_next(f.job, 100, &batch), -ETIMEDOUT);
    assert_error(f.job, "is gone: 3 MiB are wanted");
    peer_hang_up(&f.peer);
    f.peer.refuse_job = NULL;
    come_back(&f, 0, 0);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    close_job(&f);
}

/* JobFailed is final, whatever comes behind it. */
static void test_failed_before(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    peer_send_failed(&f.peer, -EPIPE, "c1/b.JPEG: cut short");
    peer_hang_up(&f.peer);
    check_final(&f, -EPIPE, "c1/b.JPEG: cut short");
    assert_null(strstr(pinclient_error(f.job), "reconnect"));
    pinclient_job_close(f.job);
    peer_deinit(&f.peer);
}

/* A daemon that dies while the job is being opened is waited for again. */
static void test_dies_again(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;

    (void)state;
    open_job(&f);
    lose(&f);
    for (int i = 0; i < 3; i++) {
        f.peer.keep_opening = true;
        come_back(&f, 0, 0);
        assert_int_equal(pinclient_next(f.job, 10, &batch), -ETIMEDOUT);
        peer_hang_up(&f.peer);
    }
    f.peer.keep_opening = false;
    come_back(&f, 0, 0);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    close_job(&f);
}

/* Closing waits neither for a dataset to be indexed, nor for a daemon that does not answer. */
static void test_close_meanwhile(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    lose(&f);
    f.peer.keep_opening = true;
    come_back(&f, 0, 0);
    int64_t began = clock_ms();
    close_job(&f);
    assert_in_range(clock_ms() - began, 0, 5000);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_CLOSE_JOB), 1);

    /* One that was opened, and that next never saw. */
    open_job(&f);
    lose(&f);
    come_back(&f, 0, 0);
    assert_true(is_readable(f.job, 5000));
    close_job(&f);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_CLOSE_JOB), 1);

    open_job(&f);
    lose(&f);
    began = clock_ms();
    pinclient_job_close(f.job);
    assert_in_range(clock_ms() - began, 0, 5000);
    peer_deinit(&f.peer);
}

static void test_interrupted(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    lose(&f);
    assert_int_equal(interrupted_next(f.job), -EINTR);
    come_back(&f, 0, 0);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    close_job(&f);
}

static void test_fork(void **state)
{
    struct fixture f;
    struct pinclient_batch *held, *none;
    int status;

    (void)state;
    open_job(&f);
    held = peer_take(&f.peer, f.job, 0, 0, 0);
    for (int lost = 0; lost < 2; lost++) {
        pid_t pid = fork();
        if (pid == 0) {
            bool good = pinclient_next(f.job, 0, &none) == -EPERM &&
                        strstr(pinclient_error(f.job), "forked") &&
                        pinclient_release(held, PINCLIENT_NO_STREAM) == -EPERM &&
                        pinclient_get_fd(f.job) == -EPERM;
            pinclient_job_close(f.job);
            _exit(good ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        if (!lost)
            lose(&f);
    }
    come_back(&f, 0, 1);
    assert_int_equal(pinclient_release(held, PINCLIENT_NO_STREAM), 0);
    peer_send_batch(&f.peer, 0, 1, 0, 1, 0);
    next_and_release(&f, 0, 1);
    close_job(&f);
}

static void *delete_thread(void *argument)
{
    struct dlpack_managed *managed = argument;

    managed->deleter(managed);
    return NULL;
}

/* An exported tensor outlives its daemon, the job, and the thread it was made by. */
static void test_exported(void **state)
{
    struct fixture f;
    struct pinclient_batch *held;
    void *managed;
    pthread_t thread;

    (void)state;
    open_job(&f);
    f.peer.region[0] = 23;
    held = peer_take(&f.peer, f.job, 0, 0, 0);
    lose(&f);
    assert_int_equal(pinclient_batch_dlpack(held, "data", 0, &managed), 0);
    assert_int_equal(pinclient_release(held, NULL), 0);
    come_back(&f, 0, 1);
    peer_send_batch(&f.peer, 0, 1, 0, 1, 0);
    next_and_release(&f, 0, 1);
    close_job(&f);
    assert_int_equal(*(const uint8_t *)((struct dlpack_managed *)managed)->tensor.data, 23);
    assert_int_equal(pthread_create(&thread, NULL, delete_thread, managed), 0);
    pthread_join(thread, NULL);
}

static void test_push_cannot(void **state)
{
    struct pinclient_spec *spec;

    (void)state;
    assert_int_equal(pinclient_spec_new(&spec), 0);
    assert_int_equal(pinclient_spec_push(spec, "mine", 100), 0);
    assert_int_equal(pinclient_spec_reconnect(spec, 1), -EINVAL);
    assert_error(spec, "\"push:mine\" cannot reconnect");
    assert_int_equal(pinclient_spec_reconnect(spec, 0), 0);
    assert_int_equal(pinclient_spec_source(spec, "synthetic:4"), 0);
    assert_int_equal(pinclient_spec_reconnect(spec, 1), 0);
    assert_int_equal(pinclient_spec_push(spec, "mine", 100), -EINVAL);
    assert_error(spec, "push \"mine\" cannot reconnect");
    pinclient_spec_free(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_what_was_announced),
        cmocka_unit_test(test_end_of_an_epoch),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_refusals_are_final),
        cmocka_unit_test(test_scarce),
        cmocka_unit_test(test_failed_before),
        cmocka_unit_test(test_dies_again),
        cmocka_unit_test(test_close_meanwhile),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_exported),
        cmocka_unit_test(test_push_cannot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
