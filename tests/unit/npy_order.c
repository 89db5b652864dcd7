/*
 * Elements of arrays: C order and this CPU's byte order, whatever the file's
 * are.
 */
#include "source/npy_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void bytes_of_each_element_are_turned(void **state)
{
    const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uint8_t turned[][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                 {2, 1, 4, 3, 6, 5, 8, 7},
                                 {4, 3, 2, 1, 8, 7, 6, 5},
                                 {8, 7, 6, 5, 4, 3, 2, 1}};
    uint8_t copy[8];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        memcpy(copy, bytes, sizeof copy);
        npy_swap(copy, 8u >> i, 1u << i);
        assert_memory_equal(copy, turned[i], sizeof copy);
    }
}

/* Element (i, j, k) of a 2 x 3 x 2 array lies at i + 2 j + 6 k in Fortran order. */
static void fortran_order_becomes_c_order(void **state)
{
    static const uint32_t shape[] = {2, 3, 2};
    struct npy_header header = {
        .dtype = SAMPLE_U16, .fortran = true, .n_dims = 3, .shape = {2, 3, 2}, .bytes = 24};
    uint16_t data[12], out[12];

    (void)state;
    for (uint16_t i = 0; i < 12; i++)
        data[i] = i;
    npy_copy(&header, shape, (const uint8_t *)data, (uint8_t *)out);
    for (unsigned i = 0; i < 2; i++)
        for (unsigned j = 0; j < 3; j++)
            for (unsigned k = 0; k < 2; k++)
                assert_int_equal(out[i * 6 + j * 2 + k], i + 2 * j + 6 * k);
    header.swapped = true;
    npy_copy(&header, shape, (const uint8_t *)data, (uint8_t *)out);
    assert_int_equal(out[2], 2 << 8);
}

static void what_is_in_order_is_copied(void **state)
{
    static const uint32_t shape[] = {3};
    struct npy_header header = {
        .dtype = SAMPLE_I32, .fortran = true, .n_dims = 1, .shape = {3}, .bytes = 12};
    const uint32_t data[] = {1, 0x01020304, 5};
    uint32_t out[3] = {0};

    (void)state;
    npy_copy(&header, shape, (const uint8_t *)data, (uint8_t *)out);
    assert_memory_equal(out, data, sizeof out);
    header = (struct npy_header){.dtype = SAMPLE_I32, .swapped = true, .n_dims = 0, .bytes = 4};
    npy_copy(&header, shape, (const uint8_t *)(data + 1), (uint8_t *)out);
    assert_int_equal(out[0], 0x04030201);
    assert_int_equal(out[1], 0x01020304);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_each_element_are_turned),
        cmocka_unit_test(fortran_order_becomes_c_order),
        cmocka_unit_test(what_is_in_order_is_copied),
    };

    return cmocka_run_group_tests_name("npy_order", tests, NULL, NULL);
}
