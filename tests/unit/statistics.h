/*
 * Statistics of things that should be random. Each becomes z, a standard normal
 * variable if they are, and a verdict keeps the one that is furthest off.
 *
 * The bound of z is fixed at 5. Past it on either side is one good generator in
 * 1.7 million; of the few hundred statistics of a test, one in thousands of good
 * generators fails any. Seeds are fixed: what passes once passes for ever, and
 * what fails after a change of the generator is worth a look. What structure a
 * generator has shows as z of tens and hundreds.
 */
#ifndef PINSERVE_TESTS_STATISTICS_H
#define PINSERVE_TESTS_STATISTICS_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#define Z_MAX 5.0

struct verdict {
    double worst; /* the largest |z| */
    unsigned count;
    char what[160];
};

__attribute__((format(printf, 3, 4))) static inline void
verdict_add(struct verdict *verdict, double z, const char *format, ...)
{
    verdict->count++;
    if (!(fabs(z) > verdict->worst)) /* NaN must not hide */
        return;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(verdict->what, sizeof verdict->what, format, arguments);
    va_end(arguments);
    verdict->worst = fabs(z);
}

/* The cube root of a chi-squared variable is nearly normal (Wilson and Hilferty). */
static inline double chi_squared_z(double chi_squared, double freedom)
{
    double c = 2 / (9 * freedom);

    return (cbrt(chi_squared / freedom) - (1 - c)) / sqrt(c);
}

/* Of counts that should all be the same. */
static inline double uniform_z(const uint32_t *counts, uint32_t n)
{
    double sum = 0, chi_squared = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += counts[i];
    for (uint32_t i = 0; i < n; i++)
        chi_squared += (counts[i] - sum / n) * (counts[i] - sum / n) / (sum / n);
    return chi_squared_z(chi_squared, n - 1);
}

/* Of a table of counts of two variables, which should be independent, whatever the margins:
 * (rows - 1) * (columns - 1) degrees of freedom, for values of one sequence and those some places
 * on, too. At most 64 rows and columns, none of them empty. */
static inline double table_z(const uint32_t *table, uint32_t rows, uint32_t columns)
{
    double of_row[64] = {0}, of_column[64] = {0}, sum = 0, chi_squared = 0;

    for (uint32_t i = 0; i < rows * columns; i++) {
        of_row[i / columns] += table[i];
        of_column[i % columns] += table[i];
        sum += table[i];
    }
    for (uint32_t i = 0; i < rows * columns; i++) {
        double expected = of_row[i / columns] * of_column[i % columns] / sum;

        chi_squared += (table[i] - expected) * (table[i] - expected) / expected;
    }
    return chi_squared_z(chi_squared, (rows - 1.0) * (columns - 1.0));
}

#endif
