/* What a server said of something not long ago, so that it need not be asked again in full. Bounded: one slot per hash, newer
 * facts displace others. A hostile name can push out another's fact, which costs that one a question. Any thread. */
#ifndef SOURCE_KNOWN_H
#define SOURCE_KNOWN_H

#include <stdbool.h>
#include <stddef.h>

struct known;
struct source_identity;

struct known *known_create(size_t value_bytes); /* of every fact: a struct without pointers */
void known_destroy(void *known);
/* `key` is a digest, by source_identity_of(): presigned URLs are not kept as text. */
bool known_find(struct known *known, const struct source_identity *key, void *value);
void known_set(struct known *known, const struct source_identity *key, const void *value);

#endif
