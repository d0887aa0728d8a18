/* A message as a JSON object: its fields have the same names, in the order of their numbers. */
#ifndef CLIENT_MESSAGE_JSON_H
#define CLIENT_MESSAGE_JSON_H

#include <protobuf-c/protobuf-c.h>

#include "base/json.h"

/* Numbers, truth values and texts of the message as members of the open object. Lists and messages are the caller's, and so
 * are the first `n_skipped` fields. */
void message_json_put(struct json_writer *json, const ProtobufCMessage *message, size_t n_skipped);
/* The object itself: as the member `key`, or as an item of a list when it is NULL. */
void message_json_put_object(struct json_writer *json, const char *key, const ProtobufCMessage *message, size_t n_skipped);

#endif
