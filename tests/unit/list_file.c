/*
 * File lists as text: what is a path and what a label, in whatever pieces the
 * bytes come.
 */
#include "source/list_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct bytes {
    const char *at;
    size_t left, piece; /* that a read brings at most */
    int error;          /* of the read behind the last byte */
};

static int bytes_read(void *user, void *to, size_t size)
{
    struct bytes *bytes = user;
    size_t n = bytes->left < bytes->piece ? bytes->left : bytes->piece;

    if (bytes->left == 0)
        return bytes->error;
    if (n > size)
        n = size;
    memcpy(to, bytes->at, n);
    bytes->at += n;
    bytes->left -= n;
    return (int)n;
}

/* One of them, since they are large. */
static struct list_reader *reader_of(struct bytes *bytes)
{
    static struct list_reader reader;

    reader.name = "l.txt";
    reader.read = bytes_read;
    reader.user = bytes;
    reader.line = reader.entries = 0;
    reader.labelled = reader.ended = false;
    reader.begin = reader.end = 0;
    return &reader;
}

struct expected {
    const char *path;
    int64_t label;
    uint64_t line;
};

static void expect_entries(const char *text, size_t size, bool labels,
                           const struct expected *expected, size_t n)
{
    static const size_t pieces[] = {1, 2, 3, 7, 1 << 20};

    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        struct bytes bytes = {.at = text, .left = size, .piece = pieces[p]};
        struct list_reader *reader = reader_of(&bytes);
        struct list_entry entry;
        struct failure failure = {0};
        for (size_t i = 0; i < n; i++) {
            if (list_next(reader, &entry, &failure) != 1)
                fail_msg("entry %zu: %s", i, failure.text);
            assert_string_equal(entry.path, expected[i].path);
            assert_int_equal(entry.has_label, labels);
            if (labels)
                assert_int_equal(entry.label, expected[i].label);
            assert_int_equal(reader->line, expected[i].line);
        }
        assert_int_equal(list_next(reader, &entry, &failure), 0);
        assert_int_equal(list_next(reader, &entry, &failure), 0);
    }
}

#define EXPECT(text, labels, ...)                                                                  \
    do {                                                                                           \
        static const struct expected list[] = {__VA_ARGS__};                                       \
        expect_entries(text, sizeof(text) - 1, labels, list, sizeof list / sizeof *list);          \
    } while (0)

static void paths_alone(void **state)
{
    (void)state;
    EXPECT("a/1.jpg\nb/2.jpg\n", false, {"a/1.jpg", 0, 1}, {"b/2.jpg", 0, 2});
    EXPECT("b.jpg\na.jpg\nb.jpg", false, {"b.jpg", 0, 1}, {"a.jpg", 0, 2}, {"b.jpg", 0, 3});
    EXPECT("a b.jpg\n\xc3\xa4/\xc3\xb6 \xc3\xbc.jpg\n", false, {"a b.jpg", 0, 1},
           {"\xc3\xa4/\xc3\xb6 \xc3\xbc.jpg", 0, 2});
    EXPECT("12\n-\na -\na 1x\na 0x1\na 1.5\n", false, {"12", 0, 1}, {"-", 0, 2}, {"a -", 0, 3},
           {"a 1x", 0, 4}, {"a 0x1", 0, 5}, {"a 1.5", 0, 6});
    EXPECT(" a\n 12\n", false, {" a", 0, 1}, {" 12", 0, 2});
    EXPECT("a\rb\n", false, {"a\rb", 0, 1});
}

static void paths_with_labels(void **state)
{
    (void)state;
    EXPECT("a/1.jpg 3\nb/2.jpg\t-7\nc \t 0012\n", true, {"a/1.jpg", 3, 1}, {"b/2.jpg", -7, 2},
           {"c", 12, 3});
    EXPECT("a b 12 5\n12 6\n", true, {"a b 12", 5, 1}, {"12", 6, 2});
    EXPECT("x 9223372036854775807\nx -9223372036854775808", true, {"x", INT64_MAX, 1},
           {"x", INT64_MIN, 2});
}

static void line_ends_and_empty_lines(void **state)
{
    (void)state;
    EXPECT("a 1\r\n\r\n\n  \t\nb 2\r\nc 3\r", true, {"a", 1, 1}, {"b", 2, 5}, {"c", 3, 6});
    EXPECT("a 1  \nb 2\t\r\n", true, {"a", 1, 1}, {"b", 2, 2});
    EXPECT("a  \n", false, {"a", 0, 1});
    EXPECT("\xef\xbb\xbf"
           "a\nb\n",
           false, {"a", 0, 1}, {"b", 0, 2});
    expect_entries("", 0, false, NULL, 0);
    expect_entries("\n\r\n \n", 5, false, NULL, 0);
}

static void expect_refused(const char *text, size_t size, int error, int code, const char *words)
{
    static const size_t pieces[] = {1, 5, 1 << 20};

    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        struct bytes bytes = {.at = text, .left = size, .piece = pieces[p], .error = error};
        struct list_reader *reader = reader_of(&bytes);
        struct list_entry entry;
        struct failure failure = {0};
        int r;
        while ((r = list_next(reader, &entry, &failure)) > 0) {
        }
        assert_int_equal(r, code);
        assert_string_equal(failure.text, words);
    }
}

#define REFUSED(text, words) expect_refused(text, sizeof(text) - 1, 0, -EINVAL, words)

static void what_is_refused(void **state)
{
    (void)state;
    REFUSED("a\n/b/c.jpg\n",
            "list l.txt:2: /b/c.jpg is an absolute path; paths are relative to the folder");
    REFUSED("/b 12", "list l.txt:1: /b is an absolute path; paths are relative to the folder");
    REFUSED("a\nb\0c\n", "list l.txt:2: a NUL byte is in the line");
    REFUSED("a 1\n\nb\n", "list l.txt:3: has no label (an integer), as the lines before have");
    REFUSED("a\nb 2\n", "list l.txt:2: has a label, and the lines before have none");
    REFUSED("a 9223372036854775808\n", "list l.txt:1: the label does not fit into 64 bits");
    REFUSED("a -9223372036854775809\n", "list l.txt:1: the label does not fit into 64 bits");
    expect_refused("a\n", 2, -EIO, -EIO, "list l.txt: Input/output error");
}

static void long_lines(void **state)
{
    static char text[3 * LIST_BUFFER_BYTES];
    struct expected expected = {.path = text, .line = 1};
    char path[LIST_LINE_MAX + 1];

    (void)state;
    memset(path, 'p', LIST_LINE_MAX);
    path[LIST_LINE_MAX] = '\0';
    expected.path = path;
    for (unsigned mark = 0; mark < 2; mark++) {
        for (unsigned longer = 0; longer < 2; longer++) {
            int n = snprintf(text, sizeof text, "%s%s%s\r\n", mark ? "\xef\xbb\xbf" : "", path,
                             longer ? "p" : "");
            if (longer)
                expect_refused(text, (size_t)n, 0, -EINVAL,
                               "list l.txt:1: a line of more than 4095 bytes");
            else
                expect_entries(text, (size_t)n, false, &expected, 1);
        }
    }
    memset(text, 'q', sizeof text);
    expect_refused(text, sizeof text, 0, -EINVAL, "list l.txt:1: a line of more than 4095 bytes");
}

/* Many times the buffer, with lines of every length. */
static void lines_across_the_buffer(void **state)
{
    enum { N = 3000 };
    char *text = NULL, wanted[64];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    for (int i = 0; i < N; i++)
        fprintf(out, "d/%0*d.jpg %d\n", 1 + i % 57, i, i);
    assert_int_equal(fclose(out), 0);
    assert_true(size > LIST_BUFFER_BYTES);
    struct bytes bytes = {.at = text, .left = size, .piece = 50000};
    struct list_reader *reader = reader_of(&bytes);
    struct list_entry entry;
    for (int i = 0; i < N; i++) {
        assert_int_equal(list_next(reader, &entry, NULL), 1);
        snprintf(wanted, sizeof wanted, "d/%0*d.jpg", 1 + i % 57, i);
        assert_string_equal(entry.path, wanted);
        assert_int_equal(entry.label, i);
    }
    assert_int_equal(list_next(reader, &entry, NULL), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_alone),
        cmocka_unit_test(paths_with_labels),
        cmocka_unit_test(line_ends_and_empty_lines),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(lines_across_the_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
