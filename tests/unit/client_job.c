/*
 * client/job.c and ready.c: opening and closing a job, and a JobReady that
 * contradicts itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_peer.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void test_info(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_job_info info;

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    assert_int_equal(pinclient_job_info(job, &info), 0);
    assert_int_equal(info.id, PEER_JOB);
    assert_int_equal(info.steps, PEER_STEPS);
    assert_int_equal(info.samples, 24);
    assert_int_equal(info.batch, 4);
    assert_int_equal(info.depth, 2);
    assert_int_equal(info.n_tensors, 2);
    assert_string_equal(info.device, "host");
    assert_string_equal(info.delivery, "host");
    assert_string_equal(peer.device_asked, "host");
    assert_int_equal(peer.samples_asked, 24);
    assert_int_equal(peer.n_dataset_packets, 0);
    peer_close(&peer, job);
    assert_int_equal(peer.n_events, 1);
    assert_int_equal(peer.events[0].kind, PINSERVE__MESSAGE__BODY_CLOSE_JOB);
    pinclient_job_close(NULL);
    peer_deinit(&peer);
}

static void test_refusals(void **state)
{
    struct peer peer;
    struct pinclient_job *job = NULL;
    struct pinclient_spec *spec;

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    peer.refuse_job = "device GPU-1: unknown: there is host";
    assert_int_equal(peer_open_default(&peer, &job), -ENODEV);
    assert_string_equal(pinclient_error(peer.client), peer.refuse_job);
    assert_null(job);
    assert_int_equal(pinclient_spec_new(&spec), 0);
    assert_int_equal(pinclient_job_open(peer.client, spec, &job), -EINVAL);
    assert_error(peer.client, "no source");
    pinclient_spec_free(spec);
    peer_deinit(&peer);

    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    peer.fail_job = "/data: no image files";
    peer.opening_fails = true;
    assert_int_equal(peer_open_default(&peer, &job), -ENOENT);
    assert_string_equal(pinclient_error(peer.client), "/data: no image files");
    assert_int_equal(peer_count(&peer, PINSERVE__MESSAGE__BODY_CLOSE_JOB), 1);
    peer_deinit(&peer);

    struct pinclient *lost;
    assert_int_equal(pinclient_connect("/nonexistent/socket", &lost), -ENOENT);
    assert_int_equal(pinclient_spec_new(&spec), 0);
    assert_int_equal(pinclient_job_open(lost, spec, &job), -ENOTCONN);
    pinclient_spec_free(spec);
    pinclient_close(lost);
}

/* -- JobReady -------------------------------------------------------------------------------- */

static void no_steps(Pinserve__JobReady *ready)
{
    ready->steps = 0;
}

static void depth_of_129(Pinserve__JobReady *ready)
{
    ready->depth = 129;
}

static void tensor_outside(Pinserve__JobReady *ready)
{
    ready->tensors[1]->offset = PEER_SLOT - 31;
}

static void huge_stride(Pinserve__JobReady *ready)
{
    ready->tensors[0]->strides[0] = UINT64_MAX / 2;
}

static void other_batch(Pinserve__JobReady *ready)
{
    ready->tensors[0]->shape[0]++;
}

static void no_token(Pinserve__JobReady *ready)
{
    ready->token = NULL;
}

static void ring_missing(Pinserve__JobReady *ready)
{
    ready->delivery = PINSERVE__DELIVERY__DELIVERY_FD;
}

static void unknown_delivery(Pinserve__JobReady *ready)
{
    ready->delivery = (Pinserve__Delivery)99;
}

static void copy_without_a_gpu(Pinserve__JobReady *ready)
{
    ready->delivery = PINSERVE__DELIVERY__DELIVERY_COPY;
}

static void unknown_type(Pinserve__JobReady *ready)
{
    ready->tensors[0]->dtype = (Pinserve__DType)77;
}

static void test_contradictions(void **state)
{
    static const struct {
        void (*change)(Pinserve__JobReady *ready);
        int code;
        const char *text;
    } wrong[] = {
        {no_steps, -EPROTO, "described the job wrongly"},
        {depth_of_129, -EPROTO, "described the job wrongly"},
        {no_token, -EPROTO, "described the job wrongly"},
        {tensor_outside, -EPROTO, "\"index\" does not fit"},
        {huge_stride, -EPROTO, "\"data\" does not fit"},
        {other_batch, -EPROTO, "\"data\" wrongly"},
        {unknown_type, -EPROTO, "\"data\" wrongly"},
        {ring_missing, -EPROTO, "delivery fd without a ring"},
        {unknown_delivery, -EOPNOTSUPP, "delivery 99"},
        {copy_without_a_gpu, -ENODEV, "no access to host"},
    };
    struct peer peer;
    struct pinclient_job *job;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        peer_init(&peer);
        assert_int_equal(peer_connect(&peer), 0);
        peer.ready = wrong[i].change;
        peer.opening_fails = true;
        assert_int_equal(peer_open_default(&peer, &job), wrong[i].code);
        assert_error(peer.client, wrong[i].text);
        peer_deinit(&peer);
    }
}

static void exact_fit(Pinserve__JobReady *ready)
{
    ready->tensors[1]->offset = PEER_SLOT - 32;
}

static void test_exact_fit(void **state)
{
    struct peer peer;
    struct pinclient_job *job;

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    peer.ready = exact_fit;
    assert_int_equal(peer_open_default(&peer, &job), 0);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* A GPU without a driver in this process: what cannot be mapped is refused in words, host memory is
 * not. */
static void test_no_gpu(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_spec *spec;

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    assert_int_equal(pinclient_spec_new(&spec), 0);
    assert_int_equal(pinclient_spec_source(spec, "synthetic:4"), 0);
    assert_int_equal(pinclient_spec_device(spec, "GPU-00000000-dead"), 0);
    assert_int_equal(pinclient_job_open(peer.client, spec, &job), -ENODEV);
    assert_error(peer.client, "GPU-00000000-dead");
    assert_int_equal(pinclient_spec_delivery(spec, "host"), 0);
    peer.device = "GPU-00000000-dead-0000-0000-000000000000";
    assert_int_equal(peer_open(&peer, spec, &job), 0);
    assert_string_equal(peer.device_asked, "GPU-00000000-dead");
    pinclient_spec_free(spec);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* -- files ----------------------------------------------------------------------------------- */

static void spec_of(const char *source, struct pinclient_spec **spec_p)
{
    assert_int_equal(pinclient_spec_new(spec_p), 0);
    assert_int_equal(pinclient_spec_source(*spec_p, source), 0);
    assert_int_equal(pinclient_spec_device(*spec_p, "host"), 0);
}

static void test_files_are_sent(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_spec *spec;
    char source[256], path[256];

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof path, "%s/%03d.tar", peer.directory, i);
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    snprintf(source, sizeof source, "tar:%s/{000..011}.tar", peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), 0);
    pinclient_spec_free(spec);
    assert_int_equal(peer.n_dataset_fds, 12);
    assert_int_equal(peer.n_dataset_packets, 3); /* the peer takes five at a time */
    snprintf(path, sizeof path, "%s/000.tar", peer.directory);
    assert_string_equal(peer.first_name, path);
    peer_close(&peer, job);
    close(peer.job);
    peer.job = -1;

    snprintf(source, sizeof source, "tar:%s/{000..012}.tar", peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), -ENOENT);
    snprintf(path, sizeof path, "%s/012.tar: No such file", peer.directory);
    assert_error(peer.client, path);
    pinclient_spec_free(spec);
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof path, "%s/%03d.tar", peer.directory, i);
        unlink(path);
    }
    peer_deinit(&peer);
}

static void test_records_are_sent_with_their_labels(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_spec *spec;
    char source[640], path[256];

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    snprintf(path, sizeof path, "%s/a.npy", peer.directory);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    snprintf(source, sizeof source, "records:%s,labels=%s", path, path);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), 0);
    pinclient_spec_free(spec);
    assert_int_equal(peer.n_dataset_fds, 2);
    assert_int_equal(peer.n_dataset_packets, 1);
    assert_string_equal(peer.first_name, path);
    peer_close(&peer, job);
    close(peer.job);
    peer.job = -1;

    snprintf(source, sizeof source, "records:%s,labels=%s/b.npy", path, peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), -ENOENT);
    assert_error(peer.client, "b.npy: No such file");
    pinclient_spec_free(spec);
    unlink(path);
    peer_deinit(&peer);
}

static void test_a_folder_is_sent_with_its_list(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_spec *spec;
    char source[640], list[256];

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    snprintf(list, sizeof list, "%s/list.txt", peer.directory);
    close(open(list, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    snprintf(source, sizeof source, "folder:%s,list=%s", peer.directory, list);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), 0);
    assert_int_equal(peer.n_dataset_fds, 2);
    assert_int_equal(peer.n_dataset_packets, 1);
    assert_string_equal(peer.first_name, peer.directory);
    peer_close(&peer, job);
    close(peer.job);
    peer.job = -1;

    unlink(list);
    assert_int_equal(peer_open(&peer, spec, &job), -ENOENT);
    snprintf(source, sizeof source, "list %s: No such file", list);
    assert_error(peer.client, source);
    pinclient_spec_free(spec);
    peer_deinit(&peer);
}

static void test_folders(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_spec *spec;
    char source[256];

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    snprintf(source, sizeof source, "folder:%s", peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), 0);
    pinclient_spec_free(spec);
    assert_int_equal(peer.n_dataset_fds, 1);
    assert_string_equal(peer.first_name, peer.directory);
    peer_close(&peer, job);
    close(peer.job);
    peer.job = -1;

    snprintf(source, sizeof source, "folder:%s/absent", peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), -ENOENT);
    assert_error(peer.client, source + 7);
    pinclient_spec_free(spec);
    peer_deinit(&peer);

    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    snprintf(source, sizeof source, "tar:%s", peer.directory);
    spec_of(source, &spec);
    assert_int_equal(peer_open(&peer, spec, &job), -EINVAL);
    assert_error(peer.client, "not a regular file, but a directory: name the files in it");
    pinclient_spec_free(spec);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_exact_fit),
        cmocka_unit_test(test_no_gpu),
        cmocka_unit_test(test_files_are_sent),
        cmocka_unit_test(test_records_are_sent_with_their_labels),
        cmocka_unit_test(test_a_folder_is_sent_with_its_list),
        cmocka_unit_test(test_folders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
