/* A message of the protocol as JSON: its fields have the same names, in the order of their numbers. Pure; any thread. */
#ifndef MESSAGE_MESSAGE_JSON_H
#define MESSAGE_MESSAGE_JSON_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/json.h"

/* Numbers, truth values, texts and lists of messages, without the first n_skipped fields, as members of the open object. Single
 * messages are the caller's. "device" is left out where it is empty: of host memory. */
void message_json_put(struct json_writer *json, const ProtobufCMessage *message, size_t n_skipped);
/* The same as an object of its own: as the member `key`, or as an item of a list when it is NULL. */
void message_json_put_object(struct json_writer *json, const char *key, const ProtobufCMessage *message, size_t n_skipped);
void message_json_put_list(struct json_writer *json, const char *key, ProtobufCMessage *const *list, size_t n);

#endif
