/*
 * Finding GPUs: the driver's files as they are on a machine, in a container and
 * before the driver has opened anything; and programs that list them, or fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "device/device.h"
#include "device/sysfs.h"
#include "unit/temp_dir.h"

#define UUID_A "GPU-01234567-89ab-cdef-0123-456789abcdef"
#define UUID_B "GPU-fedcba98-7654-3210-fedc-ba9876543210"
#define UNKNOWN "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?-\?\?\?\?\?\?\?\?\?\?\?\?"

static int setup(void **state)
{
    struct temp_dir *dir = calloc(1, sizeof *dir);

    *state = dir;
    return dir && temp_dir_init(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    temp_dir_deinit(*state);
    free(*state);
    return 0;
}

static void write_text(const struct temp_dir *dir, const char *path, const char *text)
{
    assert_true(temp_dir_write(dir, path, text, strlen(text)));
}

static void add_gpu(const struct temp_dir *dir, const char *pci, const char *uuid, int minor,
                    const char *numa_node, const char *excluded)
{
    char path[256], text[1024];

    snprintf(path, sizeof path, "proc/driver/nvidia/gpus/%s/information", pci);
    snprintf(text, sizeof text,
             "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t %s\n"
             "Video BIOS: \t 96.00.9f.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
             "Bus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t %s\n",
             uuid, pci, minor, excluded);
    write_text(dir, path, text);
    snprintf(path, sizeof path, "sys/bus/pci/devices/%s/numa_node", pci);
    write_text(dir, path, numa_node);
}

static void test_two_gpus_by_address(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[4];

    add_gpu(dir, "0000:c1:00.0", UUID_B, 1, "1\n", "No");
    add_gpu(dir, "0000:41:00.0", UUID_A, 0, "-1\n", "No");
    assert_int_equal(device_discover(dir->path, infos, 4), 2);
    assert_string_equal(infos[0].uuid, UUID_A);
    assert_string_equal(infos[0].name, "NVIDIA H200");
    assert_string_equal(infos[0].pci, "0000:41:00.0");
    assert_int_equal(infos[0].numa_node, -1);
    assert_string_equal(infos[1].uuid, UUID_B);
    assert_string_equal(infos[1].pci, "0000:c1:00.0");
    assert_int_equal(infos[1].numa_node, 1);
}

static void test_more_than_there_is_room_for(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[2] = {{.uuid = ""}, {.uuid = "untouched"}};

    add_gpu(dir, "0000:41:00.0", UUID_A, 0, "0\n", "No");
    add_gpu(dir, "0000:c1:00.0", UUID_B, 1, "1\n", "No");
    assert_int_equal(device_discover(dir->path, infos, 1), 2);
    assert_string_equal(infos[0].uuid, UUID_A);
    assert_string_equal(infos[1].uuid, "untouched");
}

static void test_no_driver(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info info;

    assert_int_equal(device_discover(dir->path, &info, 1), 0);
}

static void test_excluded_gpu_is_not_there(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[2];

    add_gpu(dir, "0000:41:00.0", UUID_A, 0, "0\n", "Yes");
    add_gpu(dir, "0000:c1:00.0", UUID_B, 1, "1\n", "No");
    assert_int_equal(device_discover(dir->path, infos, 2), 1);
    assert_string_equal(infos[0].uuid, UUID_B);
}

/* A container sees all of /proc, and the device files of its own GPUs. */
static void test_gpu_without_its_device_file(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[2];

    add_gpu(dir, "0000:41:00.0", UUID_A, 0, "0\n", "No");
    add_gpu(dir, "0000:c1:00.0", UUID_B, 1, "1\n", "No");
    write_text(dir, "dev/nvidiactl", "");
    assert_int_equal(device_discover(dir->path, infos, 2), 2);
    write_text(dir, "dev/nvidia1", "");
    assert_int_equal(device_discover(dir->path, infos, 2), 1);
    assert_string_equal(infos[0].uuid, UUID_B);
}

static void test_driver_that_has_opened_nothing(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[2];

    add_gpu(dir, "0000:41:00.0", UUID_A, 0, "0\n", "No");
    add_gpu(dir, "0000:c1:00.0", UNKNOWN, 1, "1\n", "No");
    assert_int_equal(device_discover(dir->path, infos, 2), 0);
}

static void test_numa_node(void **state)
{
    const struct temp_dir *dir = *state;

    write_text(dir, "sys/bus/pci/devices/0000:41:00.0/numa_node", "3\n");
    write_text(dir, "sys/bus/pci/devices/0000:42:00.0/numa_node", "nonsense\n");
    assert_int_equal(sysfs_numa_node(dir->path, "0000:41:00.0"), 3);
    assert_int_equal(sysfs_numa_node(dir->path, "0000:42:00.0"), -1);
    assert_int_equal(sysfs_numa_node(dir->path, "0000:43:00.0"), -1);
    assert_int_equal(sysfs_numa_node(dir->path, ""), -1);
    assert_int_equal(sysfs_numa_node(dir->path, "0000:41:00"), -1);
    assert_int_equal(sysfs_numa_node(dir->path, "../0000:41:00.0"), -1);
    /* As NVML writes it. */
    write_text(dir, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "1\n");
    assert_int_equal(sysfs_numa_node(dir->path, "00000000:C1:00.0"), 1);
    assert_true(sysfs_has_device(dir->path, "0000:C1:00.0"));
    assert_false(sysfs_has_device(dir->path, "0000:c2:00.0"));
    assert_false(sysfs_has_device(dir->path, ""));
}

static char *write_program(const struct temp_dir *dir, const char *script)
{
    static char path[256];

    write_text(dir, "lister", script);
    snprintf(path, sizeof path, "%s/lister", dir->path);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

static void test_list_is_parsed(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info infos[2];
    struct failure failure = {0};
    const char *program = write_program(
        dir, "#!/bin/sh\n[ \"$1\" = --list ] || exit 9\necho a warning of the driver\n"
             "printf '" UUID_A "\\tffff:ff:1f.7\\tNVIDIA H200\\tcompute 9.0\\n'\n"
             "printf '" UUID_B "\\t\\tother\\n'\n");

    assert_int_equal(device_list(program, infos, 2, &failure), 2);
    assert_string_equal(infos[0].uuid, UUID_A);
    assert_string_equal(infos[0].pci, "ffff:ff:1f.7");
    assert_string_equal(infos[0].name, "NVIDIA H200");
    assert_int_equal(infos[0].numa_node, -1);
    assert_string_equal(infos[1].uuid, UUID_B);
    assert_string_equal(infos[1].pci, "");
    assert_int_equal(failure.code, 0);
}

static void test_list_that_fails(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info info;
    struct failure failure;
    char expected[512];
    int fds = open_fds();
    const char *program = write_program(dir, "#!/bin/sh\necho no driver here >&2\nexit 1\n");

    assert_int_equal(device_list(program, &info, 1, &failure), -ENODEV);
    snprintf(expected, sizeof expected, "%s --list: no driver here", program);
    assert_string_equal(failure.text, expected);

    program = write_program(dir, "#!/bin/sh\nkill -9 $$\n");
    assert_int_equal(device_list(program, &info, 1, &failure), -EIO);
    snprintf(expected, sizeof expected, "%s --list was killed by signal 9", program);
    assert_string_equal(failure.text, expected);

    assert_int_equal(device_list("/nowhere/lister", &info, 1, &failure), -ENOENT);
    assert_string_equal(failure.text, "/nowhere/lister: No such file or directory");
    assert_int_equal(open_fds(), fds);
}

/* More than is kept is read all the same, so that the program can end. */
static void test_list_that_is_long(void **state)
{
    const struct temp_dir *dir = *state;
    struct device_info info;
    struct failure failure = {0};
    const char *program = write_program(dir, "#!/bin/sh\nprintf '" UUID_A
                                             "\\tpci\\tname\\n'\nhead -c 300000 /dev/zero\n");

    assert_int_equal(device_list(program, &info, 1, &failure), 1);
    assert_string_equal(info.uuid, UUID_A);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_gpus_by_address, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_there_is_room_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_driver, setup, teardown),
        cmocka_unit_test_setup_teardown(test_excluded_gpu_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gpu_without_its_device_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_driver_that_has_opened_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numa_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_is_parsed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_that_is_long, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
