/*
 * Writes JSON. The caller opens and closes objects and arrays in pairs; inside an object every
 * value has a key, inside an array and at the top none (NULL).
 */
#ifndef PINCTL_JSON_H
#define PINCTL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    bool compact; /* everything on one line */
    unsigned int depth;
    bool empty; /* nothing stands in the innermost object or array yet */
};

void json_init(struct json *json, FILE *out, bool compact);

void json_object_begin(struct json *json, const char *key);
void json_object_end(struct json *json);
void json_array_begin(struct json *json, const char *key);
void json_array_end(struct json *json);

/* Bytes that are no UTF-8 become U+FFFD. */
void json_string(struct json *json, const char *key, const char *value);
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_signed(struct json *json, const char *key, int64_t value);
/* What is no finite number is written as null. */
void json_real(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#endif
