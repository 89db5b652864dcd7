/*
 * Sizes and durations as people write them. A number is read as digits and up
 * to nine decimals and scaled in 128 bits: no floating point, so that what
 * fits is exact and what does not is told.
 */
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DECIMALS_MAX 9
#define BILLION 1000000000u

__extension__ typedef unsigned __int128 wide;

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
};

static const struct unit duration_units[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", BILLION},
    {"min", UINT64_C(60) * BILLION},
    {"h", UINT64_C(3600) * BILLION},
    {"d", UINT64_C(86400) * BILLION},
};

struct number {
    uint64_t whole;
    uint32_t billionths;
    bool has_fraction;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits with an optional fraction at *text_p and moves it behind them and one space. */
static int number_parse(const char **text_p, struct number *number_p)
{
    const char *text = *text_p;
    struct number number = {0};
    uint32_t scale = BILLION;

    if (!is_digit(*text))
        return -EINVAL;
    for (; is_digit(*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (__builtin_mul_overflow(number.whole, 10, &number.whole) ||
            __builtin_add_overflow(number.whole, digit, &number.whole))
            return -ERANGE;
    }
    if (*text == '.') {
        number.has_fraction = true;
        if (!is_digit(*++text))
            return -EINVAL;
        for (; is_digit(*text); text++) {
            scale /= 10;
            if (scale == 0)
                return -EINVAL;
            number.billionths += (uint32_t)(*text - '0') * scale;
        }
    }
    if (*text == ' ' && text[1] != '\0')
        text++;
    *text_p = text;
    *number_p = number;
    return 0;
}

static int number_scale(const struct number *number, uint64_t factor, uint64_t *value_p)
{
    wide value = (wide)number->whole * factor + (wide)number->billionths * factor / BILLION;

    if (value > UINT64_MAX)
        return -ERANGE;
    *value_p = (uint64_t)value;
    return 0;
}

static const struct unit *unit_find(const struct unit *units, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    }
    return NULL;
}

int units_parse_bytes(const char *text, uint64_t whole, uint64_t *bytes_p)
{
    const size_t n_units = sizeof byte_units / sizeof byte_units[0];
    struct number number;
    int r = number_parse(&text, &number);

    if (r < 0)
        return r;
    if (strcmp(text, "%") == 0) {
        if (number.whole > 100 || (number.whole == 100 && number.billionths > 0))
            return -ERANGE;
        wide billionths = (wide)number.whole * BILLION + number.billionths;
        *bytes_p = (uint64_t)((wide)whole * billionths / (100 * (wide)BILLION));
        return 0;
    }
    const struct unit *unit = unit_find(byte_units, n_units, *text ? text : "B");
    if (!unit || (unit->factor == 1 && number.has_fraction))
        return -EINVAL;
    return number_scale(&number, unit->factor, bytes_p);
}

int units_parse_duration(const char *text, uint64_t *nanoseconds_p)
{
    const size_t n_units = sizeof duration_units / sizeof duration_units[0];
    struct number number;
    int r = number_parse(&text, &number);

    if (r < 0)
        return r;
    if (*text == '\0' && number.whole == 0 && number.billionths == 0) {
        *nanoseconds_p = 0;
        return 0;
    }
    const struct unit *unit = unit_find(duration_units, n_units, text);
    if (!unit || (unit->factor == 1 && number.has_fraction))
        return -EINVAL;
    return number_scale(&number, unit->factor, nanoseconds_p);
}

const char *units_format_bytes(uint64_t bytes, char *text, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const size_t last = sizeof names / sizeof names[0] - 1;
    size_t unit = 0;
    uint64_t tenths = bytes;

    if (bytes < 1024) {
        snprintf(text, size, "%" PRIu64 " B", bytes);
        return text;
    }
    /* Rounding may reach 1024.0, which is 1 of the next unit. */
    do {
        unit++;
        wide one = (wide)1 << (10 * unit);
        tenths = (uint64_t)(((wide)bytes * 10 + one / 2) / one);
    } while (tenths >= 10240 && unit < last);
    if (tenths % 10 == 0)
        snprintf(text, size, "%" PRIu64 " %s", tenths / 10, names[unit]);
    else
        snprintf(text, size, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, names[unit]);
    return text;
}
