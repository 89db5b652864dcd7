/*
 * Links, as a tree of files like sysfs's tells of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "device/link.h"
#include "unit/temp_dir.h"

#define GPU "0000:81:00.0"

static struct temp_dir root;

/* The port 80:01.0 with the GPU behind it, as /sys/devices has them. */
static int setup(void **state)
{
    (void)state;
    assert_true(temp_dir_init(&root));
    assert_true(temp_dir_mkdirs(&root, "sys/bus/pci/devices"));
    assert_true(temp_dir_mkdirs(&root, "sys/port/" GPU));
    assert_int_equal(symlinkat("../../../port/" GPU, root.fd, "sys/bus/pci/devices/" GPU), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_deinit(&root);
    return 0;
}

static void write_file(const char *path, const char *text)
{
    assert_true(temp_dir_write(&root, path, text, strlen(text)));
}

static void gpu_write(const char *speed, const char *width, const char *max_speed,
                      const char *max_width)
{
    write_file("sys/port/" GPU "/current_link_speed", speed);
    write_file("sys/port/" GPU "/current_link_width", width);
    write_file("sys/port/" GPU "/max_link_speed", max_speed);
    write_file("sys/port/" GPU "/max_link_width", max_width);
}

static void expect_link(unsigned generation, unsigned width, unsigned generation_max,
                        unsigned width_max)
{
    struct link link;

    link_get(root.path, GPU, &link);
    assert_int_equal(link.generation, generation);
    assert_int_equal(link.width, width);
    assert_int_equal(link.generation_max, generation_max);
    assert_int_equal(link.width_max, width_max);
}

static void test_speed_is_told_as_a_generation(void **state)
{
    static const char *const speeds[] = {"2.5 GT/s PCIe\n",  "5.0 GT/s PCIe\n",
                                         "8.0 GT/s PCIe\n",  "16.0 GT/s PCIe\n",
                                         "32.0 GT/s PCIe\n", "64.0 GT/s PCIe\n"};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        gpu_write(speeds[i], "8\n", "64.0 GT/s PCIe\n", "16\n");
        expect_link(i + 1, 8, 6, 16);
    }
    gpu_write("5 GT/s\n", "4\n", "8 GT/s\n", "4\n"); /* before Linux 5.7 */
    expect_link(2, 4, 3, 4);
}

static void test_port_above_bounds_what_could_be(void **state)
{
    (void)state;
    gpu_write("16.0 GT/s PCIe\n", "8\n", "32.0 GT/s PCIe\n", "16\n");
    expect_link(4, 8, 5, 16);
    write_file("sys/port/max_link_speed", "16.0 GT/s PCIe\n");
    write_file("sys/port/max_link_width", "8\n");
    expect_link(4, 8, 4, 8);
    write_file("sys/port/max_link_speed", "64.0 GT/s PCIe\n");
    write_file("sys/port/max_link_width", "32\n");
    expect_link(4, 8, 5, 16);
}

static void test_what_is_not_known_is_zero(void **state)
{
    struct link link;

    (void)state;
    expect_link(0, 0, 0, 0);
    gpu_write("Unknown\n", "255\n", "Unknown speed\n", "0\n");
    expect_link(0, 0, 0, 0);
    gpu_write("", "x", "7.7 GT/s PCIe\n", "-1\n");
    expect_link(0, 0, 0, 0);
    link_get(root.path, "0000:82:00.0", &link);
    assert_int_equal(link.generation + link.width + link.generation_max + link.width_max, 0);
    link_get(root.path, "", &link);
    assert_int_equal(link.generation + link.width + link.generation_max + link.width_max, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_speed_is_told_as_a_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_port_above_bounds_what_could_be, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_known_is_zero, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
