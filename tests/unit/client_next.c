/*
 * client/next.c: what pinclient_next returns for what the daemon announces, and
 * for what it does not.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_peer.h"
#include "interrupted.h"
#include "proto/token.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

struct fixture {
    struct peer peer;
    struct pinclient_job *job;
};

static void open_job(struct fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    peer_init(&fixture->peer);
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

static void next_and_release(struct fixture *fixture, uint64_t epoch, uint64_t step)
{
    struct pinclient_batch *batch;
    struct pinclient_batch_info info;

    assert_int_equal(pinclient_next(fixture->job, 5000, &batch), 0);
    pinclient_batch_info(batch, &info);
    assert_int_equal(info.epoch, epoch);
    assert_int_equal(info.step, step);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
}

static bool is_readable(const struct pinclient_job *job)
{
    struct pollfd pollfd = {.fd = pinclient_get_fd(job), .events = POLLIN};

    return poll(&pollfd, 1, 0) == 1;
}

static void check_token(const struct pinclient_job *job, uint64_t epoch, uint64_t position)
{
    char text[1024];
    size_t size = sizeof text;
    Pinserve__ResumeToken *token;
    struct failure failure;

    assert_int_equal(pinclient_job_token(job, text, &size), 0);
    assert_int_equal(size, strlen(text) + 1);
    assert_int_equal(token_parse(text, &token, &failure), 0);
    assert_int_equal(token->epoch, epoch);
    assert_int_equal(token->position, position);
    assert_string_equal(token->dataset, "synthetic:4");
    pinserve__resume_token__free_unpacked(token, NULL);
    size = 3;
    assert_int_equal(pinclient_job_token(job, text, &size), -ENOSPC);
    assert_int_equal(size, strlen(text) + 1);
}

/* Two epochs; the peer's global batch is 8. */
static void test_epochs(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;

    (void)state;
    open_job(&f);
    check_token(f.job, 0, 0);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        for (uint64_t step = 0; step < PEER_STEPS; step++) {
            assert_false(is_readable(f.job));
            peer_send_batch(&f.peer, step % 2, 5, epoch, step, 0);
            assert_true(is_readable(f.job));
            next_and_release(&f, epoch, step);
            check_token(f.job, epoch, (step + 1) * 8);
        }
        peer_send_epoch_end(&f.peer, epoch);
        assert_int_equal(pinclient_next(f.job, 5000, &batch), PINCLIENT_EPOCH_END);
        check_token(f.job, epoch + 1, 0);
        assert_int_equal(pinclient_next(f.job, 0, &batch), -ETIMEDOUT);
    }
    close_job(&f);
}

/* What is read ahead of the caller is not on the socket any more: the fd tells of it all the same.
 */
static void test_fd_tells_what_was_read_ahead(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    assert_false(is_readable(f.job));
    peer_send_batch(&f.peer, 0, 5, 0, 0, 0);
    peer_send_batch(&f.peer, 1, 5, 0, 1, 0);
    next_and_release(&f, 0, 0);
    assert_true(is_readable(f.job));
    next_and_release(&f, 0, 1);
    assert_false(is_readable(f.job));
    peer_send_batch(&f.peer, 0, 6, 0, 2, 0);
    assert_true(is_readable(f.job));
    next_and_release(&f, 0, 2);
    assert_false(is_readable(f.job));
    close_job(&f);
}

static void test_timeouts(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;
    struct timespec before, after;

    (void)state;
    open_job(&f);
    assert_int_equal(pinclient_next(f.job, 0, &batch), -ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(pinclient_next(f.job, 50, &batch), -ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_in_range((after.tv_sec - before.tv_sec) * 1000 +
                        (after.tv_nsec - before.tv_nsec) / 1000000,
                    48, 5000);
    assert_error(f.job, "50 ms");
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    close_job(&f);
}

/* A handler with SA_RESTART does not change it. */
static void test_interrupted(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    assert_int_equal(interrupted_next(f.job), -EINTR);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    next_and_release(&f, 0, 0);
    close_job(&f);
}

static void test_all_leased(void **state)
{
    struct fixture f;
    struct pinclient_batch *batches[2], *none;

    (void)state;
    open_job(&f);
    for (uint32_t i = 0; i < 2; i++) {
        peer_send_batch(&f.peer, i, 1, 0, i, 0);
        assert_int_equal(pinclient_next(f.job, 5000, &batches[i]), 0);
    }
    assert_int_equal(pinclient_next(f.job, -1, &none), -EBUSY);
    assert_error(f.job, "all 2 batches");
    assert_int_equal(pinclient_release(batches[1], PINCLIENT_NO_STREAM), 0);
    assert_int_equal(pinclient_next(f.job, 0, &none), -ETIMEDOUT);
    peer_send_batch(&f.peer, 1, 2, 0, 2, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &batches[1]), 0);

    /* The end of the epoch needs no lease: it is waited for. */
    assert_int_equal(pinclient_next(f.job, 10, &none), -ETIMEDOUT);
    peer_send_epoch_end(&f.peer, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &none), PINCLIENT_EPOCH_END);
    assert_int_equal(pinclient_next(f.job, -1, &none), -EBUSY);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pinclient_release(batches[i], PINCLIENT_NO_STREAM), 0);
    close_job(&f);
}

static void check_final(struct fixture *f, int code, const char *text)
{
    struct pinclient_batch *batch;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(pinclient_next(f->job, 5000, &batch), code);
        assert_error(f->job, text);
        assert_true(is_readable(f->job));
    }
}

static void test_fails_after_the_steps_before(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_failed(&f.peer, -EBADMSG, "c1/b.JPEG: cut short");
    next_and_release(&f, 0, 0);
    check_final(&f, -EBADMSG, "c1/b.JPEG: cut short");
    close_job(&f);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_CLOSE_JOB), 1);
}

/* What was announced before the daemon's death is delivered, and stays readable. */
static void test_daemon_dies(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;
    struct pinclient_tensor tensor;

    (void)state;
    open_job(&f);
    f.peer.region[0] = 17;
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_hang_up(&f.peer);
    assert_int_equal(pinclient_next(f.job, 5000, &batch), 0);
    check_final(&f, -EPIPE, "is gone");
    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    assert_int_equal(*(const uint8_t *)tensor.data, 17);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), -EPIPE);
    assert_error(f.job, "is gone");
    pinclient_job_close(f.job);
    peer_deinit(&f.peer);
}

static void test_garbage(void **state)
{
    struct fixture f;

    (void)state;
    open_job(&f);
    assert_int_equal(send(f.peer.job, "\xff\xff\xff", 3, 0), 3);
    check_final(&f, -EPROTO, "no message of the protocol");
    close_job(&f);
}

static void test_contradictions(void **state)
{
    static const struct {
        uint32_t lease, ring;
        uint64_t epoch, step;
        const char *text;
    } wrong[] = {
        {0, 0, 0, 1, "step 1 of epoch 0 in place of step 0"},
        {0, 0, 1, 0, "step 0 of epoch 1 in place of step 0 of epoch 0"},
        {2, 0, 0, 0, "lease 2 of 2"},
        {0, 9, 0, 0, "ring 9"},
    };
    struct fixture f;
    struct pinclient_batch *batch;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_job(&f);
        peer_send_batch(&f.peer, wrong[i].lease, 1, wrong[i].epoch, wrong[i].step, wrong[i].ring);
        check_final(&f, -EPROTO, wrong[i].text);
        close_job(&f);
    }
    open_job(&f);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_batch(&f.peer, 0, 1, 0, 1, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &batch), 0);
    check_final(&f, -EPROTO, "lease 0, which is not free");
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    close_job(&f);

    open_job(&f);
    peer_send_epoch_end(&f.peer, 0);
    check_final(&f, -EPROTO, "ended epoch 0 before step 0");
    close_job(&f);

    open_job(&f);
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    peer_send(&f.peer, &message, -1);
    check_final(&f, -EPROTO, "does not expect");
    close_job(&f);
}

/* A child may do nothing, and its end changes nothing for the parent. */
static void test_fork(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch, *none;
    struct peer_event event;
    int status;

    (void)state;
    open_job(&f);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &batch), 0);
    peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool good =
            pinclient_next(f.job, 0, &none) == -EPERM && strstr(pinclient_error(f.job), "forked") &&
            pinclient_release(batch, PINCLIENT_NO_STREAM) == -EPERM &&
            pinclient_batch_use(batch, NULL) == -EPERM && pinclient_get_fd(f.job) == -EPERM &&
            pinclient_job_open(f.peer.client, NULL, NULL) == -EPERM;
        pinclient_job_close(f.job);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(peer_expect(&f.peer, 50, &event));
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_true(peer_expect(&f.peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    next_and_release(&f, 0, 1);
    close_job(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),         cmocka_unit_test(test_fd_tells_what_was_read_ahead),
        cmocka_unit_test(test_timeouts),       cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_all_leased),     cmocka_unit_test(test_fails_after_the_steps_before),
        cmocka_unit_test(test_daemon_dies),    cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_contradictions), cmocka_unit_test(test_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
