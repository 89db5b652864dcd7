/*
 * Reports as JSON, by the descriptors that protobuf-c keeps of every message.
 */
#include "report_json.h"

#include <ctype.h>
#include <string.h>

#define WORD_MAX 32

static void put_message(struct json *json, const char *key, const ProtobufCMessage *message)
{
    if (!message) {
        json_null(json, key);
        return;
    }
    json_object_begin(json, key);
    report_json_fields(json, message);
    json_object_end(json);
}

const char *report_word(const ProtobufCEnumDescriptor *descriptor, int value, char *text,
                        size_t size)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(descriptor, value);
    const char *name = found ? found->name : "?";
    const char *prefix = strchr(name, '_');
    size_t n = 0;

    for (name = prefix ? prefix + 1 : name; *name && n + 1 < size; name++)
        text[n++] = (char)tolower((unsigned char)*name);
    text[n] = '\0';
    return text;
}

/* The size of one value of the field in memory. */
static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 4;
    }
}

static void put_value(struct json *json, const char *key, const ProtobufCFieldDescriptor *field,
                      const void *value)
{
    char word[WORD_MAX];

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        json_string(json, key, *(char *const *)value ? *(char *const *)value : "");
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        put_message(json, key, *(ProtobufCMessage *const *)value);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        json_null(json, key);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        json_bool(json, key, *(const protobuf_c_boolean *)value);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        json_string(json, key,
                    report_word(field->descriptor, *(const int *)value, word, sizeof(word)));
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        json_unsigned(json, key, *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        json_unsigned(json, key, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        json_signed(json, key, *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        json_real(json, key, *(const double *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        json_real(json, key, *(const float *)value);
        break;
    default:
        json_signed(json, key, *(const int32_t *)value);
    }
}

void report_json_fields(struct json *json, const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;

    for (unsigned int i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        const char *at = (const char *)message + field->offset;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            put_value(json, field->name, field, at);
            continue;
        }
        size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
        const char *values = *(const char *const *)at;
        json_array_begin(json, field->name);
        for (size_t k = 0; k < n; k++)
            put_value(json, NULL, field, values + k * value_size(field));
        json_array_end(json);
    }
}

static const char *list_name(Pinserve__QueryKind kind)
{
    switch (kind) {
    case PINSERVE__QUERY_KIND__QUERY_DEVICES:
        return "devices";
    case PINSERVE__QUERY_KIND__QUERY_POOLS:
        return "pools";
    case PINSERVE__QUERY_KIND__QUERY_JOBS:
        return "jobs";
    case PINSERVE__QUERY_KIND__QUERY_BAD:
        return "bad";
    default:
        return NULL;
    }
}

void report_json(const struct report *report, FILE *out)
{
    struct json json;
    const char *name = list_name(report->kind);

    json_init(&json, out, false);
    if (!name) {
        put_message(&json, NULL, report->rows[0]);
        return;
    }
    json_object_begin(&json, NULL);
    json_array_begin(&json, name);
    for (size_t i = 0; i < report->n_rows; i++)
        put_message(&json, NULL, report->rows[i]);
    json_array_end(&json);
    json_object_end(&json);
}
