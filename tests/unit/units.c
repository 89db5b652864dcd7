/*
 * Sizes and durations: what is read, exactly, and what is refused.
 */
#include "proto/units.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WHOLE UINT64_C(1000000001)

static void reads_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"17 B", 17},
        {"17B", 17},
        {"1 kB", 1000},
        {"1 KB", 1000},
        {"64 MB", 64000000},
        {"64 MiB", 67108864},
        {"64MiB", 67108864},
        {"1 KiB", 1024},
        {"1 GB", 1000000000},
        {"2GiB", UINT64_C(2147483648)},
        {"1 TB", UINT64_C(1000000000000)},
        {"1 TiB", UINT64_C(1099511627776)},
        {"1.5 GiB", UINT64_C(1610612736)},
        {"0.5kB", 500},
        {"18446744073709551615", UINT64_MAX},
        {"50%", 500000000},
        {"50 %", 500000000},
        {"100%", WHOLE},
        {"0%", 0},
        {"12.5%", 125000000},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes = 1;
        int r = units_parse_bytes(cases[i].text, WHOLE, &bytes);
        if (r != 0 || bytes != cases[i].bytes)
            fail_msg("\"%s\": %d, %ju", cases[i].text, r, (uintmax_t)bytes);
    }
}

static void per_cent_of_the_largest_whole(void **state)
{
    uint64_t bytes;

    (void)state;
    assert_int_equal(units_parse_bytes("100%", UINT64_MAX, &bytes), 0);
    assert_true(bytes == UINT64_MAX);
}

static void refuses_bytes(void **state)
{
    static const char *const invalid[] = {
        "",        " ",
        "-1",      "+1",
        "1.5",     "1.5 B",
        "1 M",     "1 mb",
        "1 Mb",    "64 MiB ",
        " 64",     "64  MiB",
        "64\tMiB", "0x10",
        "1e6",     "MiB",
        "1.",      ".5 MiB",
        "1,5MiB",  "64 ",
        "1 %x",    "1.0000000001 GiB",
        "%",
    };
    static const char *const too_large[] = {
        "18446744073709551616",    "18446744073709552 kB", "16777216 TiB", "101%", "100.1%",
        "99999999999999999999999",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(invalid); i++) {
        uint64_t bytes = 77;
        int r = units_parse_bytes(invalid[i], WHOLE, &bytes);
        if (r != -EINVAL || bytes != 77)
            fail_msg("\"%s\": %d", invalid[i], r);
    }
    for (size_t i = 0; i < COUNT(too_large); i++) {
        uint64_t bytes = 77;
        int r = units_parse_bytes(too_large[i], WHOLE, &bytes);
        if (r != -ERANGE || bytes != 77)
            fail_msg("\"%s\": %d", too_large[i], r);
    }
}

static void reads_durations(void **state)
{
    static const struct {
        const char *text;
        uint64_t nanoseconds;
    } cases[] = {
        {"0", 0},
        {"0s", 0},
        {"5ns", 5},
        {"7us", 7000},
        {"100ms", 100000000},
        {"5s", UINT64_C(5000000000)},
        {"5 s", UINT64_C(5000000000)},
        {"1.5s", UINT64_C(1500000000)},
        {"2min", UINT64_C(120000000000)},
        {"1h", UINT64_C(3600000000000)},
        {"1d", UINT64_C(86400000000000)},
    };
    static const char *const invalid[] = {"5", "", "s", "-5s", "5 sec", "5S", "1.5ns", "5s ", "5m"};
    uint64_t nanoseconds = 77;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int r = units_parse_duration(cases[i].text, &nanoseconds);
        if (r != 0 || nanoseconds != cases[i].nanoseconds)
            fail_msg("\"%s\": %d, %ju", cases[i].text, r, (uintmax_t)nanoseconds);
    }
    for (size_t i = 0; i < COUNT(invalid); i++) {
        if (units_parse_duration(invalid[i], &nanoseconds) != -EINVAL)
            fail_msg("\"%s\" was read", invalid[i]);
    }
    assert_int_equal(units_parse_duration("5124096h", &nanoseconds), -ERANGE);
}

static void writes_bytes(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {17, "17 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {524288, "512 KiB"},
        {1610612736, "1.5 GiB"},
        {1048575, "1 MiB"},
        {1048576, "1 MiB"},
        {67108864, "64 MiB"},
        {UINT64_C(1100000000000), "1 TiB"},
        {UINT64_MAX, "16 EiB"},
    };
    char text[32];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(units_format_bytes(cases[i].bytes, text, sizeof text), cases[i].text);
}

static void writes_within_its_room(void **state)
{
    char text[4] = "###";

    (void)state;
    assert_string_equal(units_format_bytes(1610612736, text, sizeof text), "1.5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_bytes),   cmocka_unit_test(per_cent_of_the_largest_whole),
        cmocka_unit_test(refuses_bytes), cmocka_unit_test(reads_durations),
        cmocka_unit_test(writes_bytes),  cmocka_unit_test(writes_within_its_room),
    };

    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
