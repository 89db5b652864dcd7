/*
 * Sources: what all kinds have in common.
 */
#include "source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "temp_dir.h"

#define FILES 64
#define UNIT 2000 /* bytes that a file is longer than the one before */
#define THREADS 4

static struct temp_dir dir;

static int make_files(void **state)
{
    char path[64];
    char *bytes = malloc(FILES * UNIT);

    (void)state;
    if (!bytes || !temp_dir_init(&dir))
        return -1;
    for (int i = 0; i < FILES; i++) {
        memset(bytes, i + 1, FILES * UNIT);
        snprintf(path, sizeof path, "c%d/%02d.jpg", i % 2, i);
        if (!temp_dir_write(&dir, path, bytes, (size_t)(i + 1) * UNIT))
            return -1;
    }
    free(bytes);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_deinit(&dir);
    return 0;
}

static struct source *open_folder(void)
{
    struct source_spec spec = {
        .kind = SOURCE_KIND_FOLDER, .name = "photos", .fds = &dir.fd, .n_fds = 1};
    struct source *source = NULL;
    struct failure failure = {0};

    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    return source;
}

/* The number that the bytes of a sample are made of: its file's, plus one. */
static int expected_byte(uint64_t index)
{
    return (int)(index < FILES / 2 ? 2 * index + 1 : 2 * (index - FILES / 2) + 2);
}

static bool sample_right(const struct sample *sample, uint64_t index)
{
    int byte = expected_byte(index);

    if (sample->size != (size_t)byte * UNIT || sample->label != (index >= FILES / 2))
        return false;
    for (size_t i = 0; i < sample->size; i++) {
        if (sample->bytes[i] != byte)
            return false;
    }
    return true;
}

static void the_buffer_grows_and_is_kept(void **state)
{
    struct source *source = open_folder();
    struct sample sample = {0};

    (void)state;
    assert_int_equal(source_read(source, FILES - 1, &sample, NULL), 0);
    assert_true(sample_right(&sample, FILES - 1));
    const uint8_t *buffer = sample.buffer;
    size_t capacity = sample.capacity;
    assert_true(capacity >= FILES * UNIT);
    for (uint64_t i = 0; i < FILES; i++) {
        assert_int_equal(source_read(source, i, &sample, NULL), 0);
        assert_true(sample_right(&sample, i));
        assert_ptr_equal(sample.buffer, buffer);
        assert_int_equal(sample.capacity, capacity);
    }
    sample_deinit(&sample);
    assert_null(sample.buffer);
    assert_int_equal(sample.capacity, 0);
    source_unref(source);
}

static void encoded_samples_have_no_shape(void **state)
{
    struct source *source = open_folder();
    struct failure failure;
    uint32_t shape[7];
    size_t n_dims;
    enum sample_dtype dtype;
    int64_t label;
    uint8_t out[1];

    (void)state;
    assert_int_equal(source_shape(source, shape, &n_dims, &dtype), -EINVAL);
    assert_int_equal(source_fill(source, 0, (struct sample_key){0}, out, &label, &failure),
                     -EINVAL);
    assert_string_equal(failure.text, "source photos: its samples are encoded, not raw");
    source_unref(source);
}

static void there_is_nothing_behind_the_last_sample(void **state)
{
    struct source *source = open_folder();
    struct sample sample = {0};
    struct failure failure;
    char text[64];

    (void)state;
    assert_int_equal(source_read(source, FILES, &sample, &failure), -EINVAL);
    assert_string_equal(failure.text, "source photos: no sample 64, there are 64");
    assert_int_equal(source_read(source, UINT64_MAX, &sample, &failure), -EINVAL);
    assert_string_equal(source_sample_name(source, FILES, text, sizeof text),
                        "photos: no sample 64");
    sample_deinit(&sample);
    source_unref(source);
}

static void names_are_cut_to_their_room(void **state)
{
    struct source *source = open_folder();
    char text[6] = "xxxxx";

    (void)state;
    assert_string_equal(source_name(source), "photos");
    assert_string_equal(source_sample_name(source, 0, text, sizeof text), "c0/00");
    source_unref(source);
}

static void lives_until_its_last_reference(void **state)
{
    int before = open_fds();
    struct source *source = open_folder();
    struct sample sample = {0};

    (void)state;
    assert_ptr_equal(source_ref(source), source);
    source_unref(source);
    assert_int_equal(source_read(source, 3, &sample, NULL), 0);
    source_unref(source);
    source_unref(NULL);
    sample_deinit(&sample);
    assert_int_equal(open_fds(), before);
}

static void unknown_kinds_are_refused(void **state)
{
    struct source_spec spec = {.kind = (enum source_kind)77, .name = "x"};
    struct source *source = NULL;
    struct failure failure;

    (void)state;
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -EINVAL);
    assert_string_equal(failure.text, "source x: unknown kind 77");
}

static void *thread_read(void *arg)
{
    struct source *source = arg;
    struct sample sample = {0};
    void *wrong = NULL;

    for (int round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < FILES && !wrong; i++) {
            if (source_read(source, i, &sample, NULL) != 0 || !sample_right(&sample, i))
                wrong = "a sample was read wrong";
        }
    }
    sample_deinit(&sample);
    source_unref(source);
    return wrong;
}

static void many_threads_read_at_once(void **state)
{
    struct source *source = open_folder();
    pthread_t threads[THREADS];
    void *wrong;

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_read, source_ref(source)), 0);
    source_unref(source);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_buffer_grows_and_is_kept),
        cmocka_unit_test(encoded_samples_have_no_shape),
        cmocka_unit_test(there_is_nothing_behind_the_last_sample),
        cmocka_unit_test(names_are_cut_to_their_room),
        cmocka_unit_test(lives_until_its_last_reference),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(many_threads_read_at_once),
    };

    return cmocka_run_group_tests_name("source", tests, make_files, remove_files);
}
