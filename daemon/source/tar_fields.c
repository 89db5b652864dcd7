/*
 * The text of wanted fields, taken apart.
 */
#include "source/tar_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source/kind.h"

/* Kinds of image by their field, the most wanted first. */
static const char *const images[] = {"jpg", "jpeg", "png", "webp"};
#define IMAGES (sizeof images / sizeof images[0])

/* What is being read. */
struct parser {
    struct tar_fields *fields;
    const char *source;
    struct failure *failure;
};

/* Of "seg.png" "png". */
static const char *kind_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot + 1 : name;
}

static uint32_t image_rank(const char *name)
{
    for (uint32_t i = 0; i < IMAGES; i++) {
        if (strcasecmp(name, images[i]) == 0)
            return i;
    }
    return TAR_FIELD_NOT;
}

uint32_t tar_field_rank(const struct tar_field *field, const char *name)
{
    if (!field->name)
        return image_rank(name);
    return strcasecmp(field->name, name) == 0 ? 0 : TAR_FIELD_NOT;
}

const char *tar_field_words(const struct tar_field *field)
{
    return field->name ? field->name : "jpg, jpeg, png or webp";
}

static int tensor_add(struct parser *parser, const char *name, enum sample_dtype dtype,
                      uint32_t bytes, bool is_size)
{
    struct tar_fields *fields = parser->fields;
    static const char *const taken[] = {"label", "index", "status", "image"};
    bool is_image = fields->fields[fields->n].kind == TAR_FIELD_IMAGE;

    for (size_t i = 0; !is_image && i < sizeof taken / sizeof taken[0]; i++) {
        if (strcmp(name, taken[i]) == 0)
            return failure_set(
                parser->failure, -EINVAL,
                "source %s: a field cannot be named \"%s\": batches have a tensor of "
                "that name",
                parser->source, name);
    }
    for (size_t i = 0; i < fields->n_tensors; i++) {
        if (strcmp(name, fields->tensors[i].name) == 0)
            return failure_set(parser->failure, -EINVAL,
                               "source %s: its fields make two tensors \"%s\"", parser->source,
                               name);
    }
    if (fields->n_tensors == TAR_TENSORS_MAX)
        return failure_set(parser->failure, -EINVAL,
                           "source %s: its fields make more than %d tensors (label, index and "
                           "status are among them)",
                           parser->source, TENSORS_MAX);
    if (strlen(name) >= TAR_FIELD_NAME_MAX)
        return failure_set(parser->failure, -EINVAL,
                           "source %s: \"%s\" is over %d bytes long; a tensor is named so",
                           parser->source, name, TAR_FIELD_NAME_MAX - 1);
    struct tar_tensor *tensor = &fields->tensors[fields->n_tensors++];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->field = (uint32_t)fields->n;
    tensor->is_size = is_size;
    tensor->out = (struct source_field){.dtype = dtype};
    if (bytes > 0) {
        tensor->out.n_dims = 1;
        tensor->out.shape[0] = bytes;
    }
    return 0;
}

static int bytes_add(struct parser *parser, struct tar_field *field, const char *number)
{
    char name[TAR_FIELD_NAME_MAX + sizeof ".size"];
    char *end;

    errno = 0;
    unsigned long long bytes = strtoull(number, &end, 10);
    if (*number < '0' || *number > '9' || *end || errno != 0 || bytes == 0 ||
        bytes > SAMPLE_BYTES_MAX)
        return failure_set(parser->failure, -EINVAL,
                           "source %s: \"%s:%s\": the bytes of a field are a number from 1 to %ju",
                           parser->source, field->name, number, (uintmax_t)SAMPLE_BYTES_MAX);
    field->kind = TAR_FIELD_BYTES;
    field->bytes_max = (uint32_t)bytes;
    int r = tensor_add(parser, field->name, SAMPLE_U8, field->bytes_max, false);
    if (r < 0)
        return r;
    snprintf(name, sizeof name, "%s.size", field->name);
    return tensor_add(parser, name, SAMPLE_I32, 0, true);
}

/* The tensor of an image is the first, whatever its place in the text. */
static int image_add(struct parser *parser, struct tar_field *field)
{
    struct tar_fields *fields = parser->fields;

    field->kind = TAR_FIELD_IMAGE;
    if (fields->has_image)
        return failure_set(parser->failure, -EINVAL,
                           "source %s: a sample has one image; of \"%s\" its bytes can be had by "
                           "%s:N, where N is how many they are at most",
                           parser->source, field->name,
                           strcmp(field->name, "image") == 0 ? "jpg" : field->name);
    if (strcmp(field->name, "image") == 0)
        field->name = NULL;
    fields->has_image = true;
    int r = tensor_add(parser, "image", SAMPLE_U8, 0, false);
    if (r < 0)
        return r;
    struct tar_tensor image = fields->tensors[fields->n_tensors - 1];
    memmove(&fields->tensors[1], &fields->tensors[0],
            (fields->n_tensors - 1) * sizeof fields->tensors[0]);
    fields->tensors[0] = image;
    return 0;
}

/* "jpg", "cls", "emb.npy" or "json:4096" */
static int field_add(struct parser *parser, char *word)
{
    struct tar_fields *fields = parser->fields;
    struct tar_field *field = &fields->fields[fields->n];
    char *number = strrchr(word, ':');
    int r = 0;

    if (number)
        *number++ = '\0';
    if (!*word)
        return failure_set(parser->failure, -EINVAL,
                           "source %s: a name is missing in fields=%s, which is written like "
                           "fields=jpg+cls+json:4096",
                           parser->source, fields->text);
    if (strchr(word, ','))
        return failure_set(parser->failure, -EINVAL,
                           "source %s: fields have a + between them, not a comma, and stand last: "
                           "fields=jpg+cls+json:4096",
                           parser->source);
    if (fields->n == TAR_FIELDS_MAX)
        return failure_set(parser->failure, -EINVAL, "source %s: more than %d fields",
                           parser->source, TAR_FIELDS_MAX);
    *field = (struct tar_field){.name = word};
    if (number)
        r = bytes_add(parser, field, number);
    else if (strcmp(word, "image") == 0 || image_rank(kind_of(word)) != TAR_FIELD_NOT)
        r = image_add(parser, field);
    else if (strcasecmp(word, "cls") == 0)
        field->kind = TAR_FIELD_LABEL;
    else if (strcasecmp(kind_of(word), "npy") == 0) {
        field->kind = TAR_FIELD_ARRAY;
        r = tensor_add(parser, word, SAMPLE_U8, 0, false);
    } else {
        r = failure_set(parser->failure, -EINVAL,
                        "source %s: field %s is served as bytes, and a tensor needs to know how "
                        "many at most: write %s:4096, say",
                        parser->source, word, word);
    }
    fields->n += r == 0;
    return r;
}

/* What is read of a sample: an image first, since readers and messages are about its bytes. */
static void parts_finish(struct tar_fields *fields)
{
    fields->n_parts = fields->has_image;
    for (size_t i = 0; i < fields->n; i++) {
        struct tar_field *field = &fields->fields[i];
        if (field->kind == TAR_FIELD_ARRAY || field->kind == TAR_FIELD_BYTES)
            field->part = fields->n_parts++;
    }
    for (size_t i = 0; i < fields->n_tensors; i++)
        fields->tensors[i].out.name = fields->tensors[i].name;
}

/* As if by fields=image+cls; but the class may be missing. */
static void fields_init_plain(struct tar_fields *fields)
{
    fields->fields[0] = (struct tar_field){.kind = TAR_FIELD_IMAGE};
    fields->fields[1] = (struct tar_field){.kind = TAR_FIELD_LABEL, .name = "cls"};
    fields->n = 2;
    fields->n_parts = 1;
    fields->n_tensors = 1;
    fields->has_image = true;
}

int tar_fields_init(struct tar_fields *fields, const char *text, const char *source,
                    struct failure *failure)
{
    struct parser parser = {fields, source, failure};
    char *rest, *word;

    *fields = (struct tar_fields){0};
    if (!text) {
        fields_init_plain(fields);
        return 0;
    }
    fields->text = strdup(text);
    fields->names = rest = strdup(text);
    if (!fields->text || !fields->names)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source);
    while ((word = strsep(&rest, "+"))) {
        int r = field_add(&parser, word);
        if (r < 0)
            return r;
    }
    parts_finish(fields);
    if (fields->n_parts == 0)
        return failure_set(failure, -EINVAL,
                           "source %s: fields=%s is the label alone; nothing else is asked for",
                           source, text);
    return 0;
}

void tar_fields_deinit(struct tar_fields *fields)
{
    free(fields->text);
    free(fields->names);
    *fields = (struct tar_fields){0};
}
