/*
 * Reports as JSON. The names are those of the protocol, so that a field that is added there shows
 * up here; an enum's value is written in lower case without its prefix ("fd", "host").
 */
#ifndef PINCTL_REPORT_JSON_H
#define PINCTL_REPORT_JSON_H

#include "json.h"
#include "query.h"

/* {"jobs": [...]}, likewise devices and pools; status and stats are one object. */
void report_json(const struct report *report, FILE *out);

/* Writes the fields of a message into the object that is open. */
void report_json_fields(struct json *json, const ProtobufCMessage *message);

/* An enum's value as a word of at most size - 1 bytes; "?" when there is no such value. */
const char *report_word(const ProtobufCEnumDescriptor *descriptor, int value, char *text,
                        size_t size);

#endif
