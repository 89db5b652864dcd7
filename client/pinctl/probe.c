/*
 * pinctl probe: each file is opened here, with the rights of whoever asks, and
 * read by the daemon. What cannot be opened is not readable either.
 */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/connection.h"
#include "json.h"
#include "pinctl.h"
#include "proto/cleanup.h"
#include "query.h"
#include "table.h"

static bool is_there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

int probe_name_split(const char *word, struct probe_name *name_p)
{
    *name_p = (struct probe_name){.file = strdup(word), .member = ""};
    if (!name_p->file)
        return -ENOMEM;
    if (is_there(name_p->file))
        return 0;
    for (char *colon = strchr(name_p->file, ':'); colon; colon = strchr(colon + 1, ':')) {
        *colon = '\0';
        if (colon[1] && is_there(name_p->file)) {
            name_p->member = word + (colon - name_p->file) + 1;
            return 0;
        }
        *colon = ':';
    }
    return 0;
}

/* What was found of one file. */
struct finding {
    const char *word;
    struct wire_packet reply;       /* or */
    char reason[FAILURE_TEXT_MAX];  /* of a file that could not be opened */
    const Pinserve__Probed *probed; /* in reply, or NULL */
};

/* Nothing that the daemon would refuse is waited for: a pipe is opened without blocking. */
static int file_open(const struct probe_name *name, struct finding *finding)
{
    int fd = open(name->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        snprintf(finding->reason, sizeof finding->reason, "%s: %s", name->file, strerror(errno));
    return fd;
}

static int file_probe(struct connection *connection, const struct options *options,
                      const char *word, struct finding *finding, struct failure *failure)
{
    struct probe_name name;
    Pinserve__Probe probe = PINSERVE__PROBE__INIT;
    Pinserve__Message request = PINSERVE__MESSAGE__INIT;

    finding->word = word;
    if (probe_name_split(word, &name) < 0)
        return failure_set(failure, -ENOMEM, "no memory for the name %s", word);
    cleanup_free char *file = name.file;
    cleanup_fd int fd = file_open(&name, finding);

    if (fd < 0)
        return 0;
    probe.name = file;
    probe.member = (char *)name.member;
    probe.pixels = options->output != NULL;
    request.body_case = PINSERVE__MESSAGE__BODY_PROBE;
    request.probe = &probe;
    int r = connection_call(connection, &request, &fd, 1, &finding->reply, failure);
    if (r < 0)
        return r;
    if (finding->reply.message->body_case != PINSERVE__MESSAGE__BODY_PROBED)
        return failure_set(failure, -EPROTO, "the daemon answered a probe with another message");
    finding->probed = finding->reply.message->probed;
    return 0;
}

static bool is_readable(const struct finding *finding)
{
    return finding->probed && finding->probed->readable;
}

static const char *reason_of(const struct finding *finding)
{
    return finding->probed ? finding->probed->reason : finding->reason;
}

static void print_json(const struct finding *findings, size_t n, FILE *out)
{
    struct json json;

    json_init(&json, out, false);
    json_array_begin(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        const Pinserve__Probed *probed = findings[i].probed;

        json_object_begin(&json, NULL);
        json_string(&json, "name", findings[i].word);
        json_bool(&json, "readable", is_readable(&findings[i]));
        if (is_readable(&findings[i]))
            json_null(&json, "reason");
        else
            json_string(&json, "reason", reason_of(&findings[i]));
        if (probed && *probed->format)
            json_string(&json, "format", probed->format);
        else
            json_null(&json, "format");
        json_unsigned(&json, "width", probed ? probed->width : 0);
        json_unsigned(&json, "height", probed ? probed->height : 0);
        json_string(&json, "mode", probed ? probed->mode : "");
        json_unsigned(&json, "orientation", probed ? probed->orientation : 1);
        json_bool(&json, "without_end", probed && probed->without_end);
        json_unsigned(&json, "bytes", probed ? probed->bytes : 0);
        json_object_end(&json);
    }
    json_array_end(&json);
}

/* In words, behind what is known of every image. */
static void remarks(const struct finding *finding, char *text, size_t size)
{
    const Pinserve__Probed *probed = finding->probed;

    *text = '\0';
    if (!is_readable(finding))
        snprintf(text, size, "bad: %s", reason_of(finding));
    else if (probed->without_end)
        snprintf(text, size, "good, but its end marker is missing");
    else if (probed->orientation > 1)
        snprintf(text, size, "good; EXIF orientation %u", probed->orientation);
    else
        snprintf(text, size, "good");
}

static int print_text(const struct finding *findings, size_t n, FILE *out, struct failure *failure)
{
    static const struct table_column columns[] = {
        {"NAME", .trunc = true}, {"FORMAT"}, {"SIZE", .right = true}, {"MODE"}, {"VERDICT"},
    };
    struct table *table = table_new(columns, sizeof columns / sizeof *columns, true);
    char text[FAILURE_TEXT_MAX + 16];

    for (size_t i = 0; table && i < n; i++) {
        const Pinserve__Probed *probed = findings[i].probed;

        table_row(table);
        table_cell(table, "%s", findings[i].word);
        table_cell(table, "%s", probed && *probed->format ? probed->format : "-");
        if (probed && probed->width > 0)
            table_cell(table, "%ux%u", probed->width, probed->height);
        else
            table_cell(table, "-");
        table_cell(table, "%s", probed && *probed->mode ? probed->mode : "-");
        remarks(&findings[i], text, sizeof text);
        table_cell(table, "%s", text);
    }
    int r = table ? table_print(table, out) : -ENOMEM;
    table_free(table);
    return r < 0 ? failure_set(failure, r, "no memory for a table") : 0;
}

/* The pixels that came beside the reply, as a PPM file. */
static int write_pixels(struct finding *finding, const char *path, struct failure *failure)
{
    const Pinserve__Probed *probed = finding->probed;
    size_t bytes = (size_t)probed->width * probed->height * 3;
    cleanup_fd int fd = wire_take_fd(&finding->reply, 0);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || bytes == 0 || (uint64_t)st.st_size != bytes)
        return failure_set(failure, -EPROTO, "the daemon sent no pixels of %s", finding->word);
    void *pixels = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (pixels == MAP_FAILED)
        return failure_set(failure, -errno, "the pixels of %s: %s", finding->word, strerror(errno));
    FILE *file = fopen(path, "we");
    bool ok = file && fprintf(file, "P6\n%u %u\n255\n", probed->width, probed->height) > 0 &&
              fwrite(pixels, 1, bytes, file) == bytes;
    int error = errno;

    if (file && fclose(file) != 0 && ok) {
        ok = false;
        error = errno;
    }
    munmap(pixels, bytes);
    return ok ? 0 : failure_set(failure, -error, "%s: %s", path, strerror(error));
}

static int probe_all(struct connection *connection, const struct options *options,
                     struct finding *findings, FILE *out, struct failure *failure)
{
    size_t bad = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < options->n_files; i++) {
        r = file_probe(connection, options, options->files[i], &findings[i], failure);
        bad += !is_readable(&findings[i]);
    }
    if (r == 0 && options->json)
        print_json(findings, options->n_files, out);
    else if (r == 0)
        r = print_text(findings, options->n_files, out, failure);
    if (r == 0 && options->output && bad == 0)
        r = write_pixels(&findings[0], options->output, failure);
    if (r < 0)
        return PINCTL_FAILED;
    if (bad == 0)
        return PINCTL_DONE;
    failure_set(failure, -EBADMSG, "%zu of %zu %s not readable", bad, options->n_files,
                bad == 1 ? "is" : "are");
    return PINCTL_FAILED;
}

int probe_run(const struct options *options, FILE *out, struct failure *failure)
{
    struct connection *connection = NULL;
    struct finding *findings = calloc(options->n_files, sizeof *findings);

    if (!findings) {
        failure_set(failure, -ENOMEM, "no memory for %zu files", options->n_files);
        return PINCTL_FAILED;
    }
    int status = query_connect(options->socket, &connection, failure);
    if (status == PINCTL_DONE)
        status = probe_all(connection, options, findings, out, failure);
    for (size_t i = 0; i < options->n_files; i++)
        wire_packet_deinit(&findings[i].reply);
    free(findings);
    connection_close(connection);
    return status;
}
