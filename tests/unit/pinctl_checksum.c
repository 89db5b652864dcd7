/*
 * The checksum: XXH64 of the samples' bytes alone, however they lie in memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "client/pinctl/checksum.h"

static struct checksum *new_checksum(void)
{
    struct checksum *checksum = NULL;
    struct failure failure = {.code = 0};
    assert_int_equal(checksum_new("host", &checksum, &failure), 0);
    return checksum;
}

static struct pinclient_tensor dense_u8(uint64_t count, uint64_t length)
{
    return (struct pinclient_tensor){.name = "data",
                                     .dtype = PINCLIENT_U8,
                                     .n_dims = 2,
                                     .shape = {count, length},
                                     .strides = {length, 1},
                                     .bytes = count * length};
}

static void test_dense(void **state)
{
    (void)state;
    unsigned char bytes[60];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    struct pinclient_tensor tensor = dense_u8(5, 12);
    struct checksum *checksum = new_checksum();
    assert_int_equal(checksum_span(&tensor), 60);
    checksum_add_tensor(checksum, &tensor, bytes);
    assert_true(checksum_value(checksum) == XXH64(bytes, 60, 0));
    checksum_free(checksum);
}

static void test_order_of_tensors_counts(void **state)
{
    (void)state;
    static const char first[] = "abcd", second[] = "efgh";
    struct pinclient_tensor tensor = dense_u8(1, 4);
    struct checksum *checksum = new_checksum();
    checksum_add_tensor(checksum, &tensor, first);
    checksum_add_tensor(checksum, &tensor, second);
    assert_true(checksum_value(checksum) == XXH64("abcdefgh", 8, 0));
    checksum_free(checksum);
}

/* Rows of 3 elements of 8 bytes in 40 bytes, samples of 2 rows in 96: only the elements count. */
static void test_padding_is_left_out(void **state)
{
    (void)state;
    unsigned char memory[2 * 96], dense[2 * 2 * 24];
    size_t n = 0;
    memset(memory, 0xee, sizeof(memory));
    for (size_t sample = 0; sample < 2; sample++) {
        for (size_t row = 0; row < 2; row++) {
            for (size_t i = 0; i < 24; i++, n++) {
                dense[n] = (unsigned char)(n * 3);
                memory[sample * 96 + row * 40 + i] = dense[n];
            }
        }
    }
    struct pinclient_tensor tensor = {.name = "x",
                                      .dtype = PINCLIENT_I64,
                                      .n_dims = 3,
                                      .shape = {2, 2, 3},
                                      .strides = {96, 40, 8},
                                      .bytes = 96};
    struct checksum *checksum = new_checksum();
    assert_int_equal(checksum_span(&tensor), 96 + 40 + 24);
    checksum_add_tensor(checksum, &tensor, memory);
    assert_true(checksum_value(checksum) == XXH64(dense, sizeof(dense), 0));
    checksum_free(checksum);
}

static void test_only_count_samples(void **state)
{
    (void)state;
    static const char bytes[] = "aaaabbbbcccc";
    struct pinclient_tensor tensor = dense_u8(2, 4);
    struct checksum *checksum = new_checksum();
    checksum_add_tensor(checksum, &tensor, bytes);
    assert_true(checksum_value(checksum) == XXH64("aaaabbbb", 8, 0));
    checksum_free(checksum);
}

static void test_nothing(void **state)
{
    (void)state;
    struct pinclient_tensor tensor = dense_u8(0, 4);
    struct checksum *checksum = new_checksum();
    assert_int_equal(checksum_span(&tensor), 0);
    checksum_add_tensor(checksum, &tensor, "");
    assert_true(checksum_value(checksum) == XXH64("", 0, 0));
    checksum_free(checksum);
}

static void test_scalars(void **state)
{
    (void)state;
    static const float values[] = {1, 2, 3};
    struct pinclient_tensor tensor = {
        .dtype = PINCLIENT_F32, .n_dims = 1, .shape = {3}, .strides = {4}, .bytes = 12};
    struct checksum *checksum = new_checksum();
    checksum_add_tensor(checksum, &tensor, values);
    assert_true(checksum_value(checksum) == XXH64(values, 12, 0));
    checksum_free(checksum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_order_of_tensors_counts),
        cmocka_unit_test(test_padding_is_left_out),
        cmocka_unit_test(test_only_count_samples),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
