#include "source/known.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/source.h"

enum { SLOTS = 4096 };

struct known {
    pthread_mutex_t lock;
    size_t value_bytes;
    struct source_identity keys[SLOTS]; /* zero: empty */
    char *values;                       /* some MiB that are mapped when they are written */
};

struct known *known_create(size_t value_bytes)
{
    struct known *known = memory_alloc(sizeof *known);
    known->value_bytes = value_bytes;
    known->values = memory_alloc_array(SLOTS, value_bytes);
    pthread_mutex_init(&known->lock, NULL);
    return known;
}

void known_destroy(void *kept)
{
    struct known *known = kept;
    pthread_mutex_destroy(&known->lock);
    free(known->values);
    free(known);
}

bool known_find(struct known *known, const struct source_identity *key, void *value)
{
    size_t slot = key->device % SLOTS;
    pthread_mutex_lock(&known->lock);
    bool found = memcmp(&known->keys[slot], key, sizeof *key) == 0;
    if (found)
        memcpy(value, known->values + slot * known->value_bytes, known->value_bytes);
    pthread_mutex_unlock(&known->lock);
    return found;
}

void known_set(struct known *known, const struct source_identity *key, const void *value)
{
    size_t slot = key->device % SLOTS;
    pthread_mutex_lock(&known->lock);
    known->keys[slot] = *key;
    memcpy(known->values + slot * known->value_bytes, value, known->value_bytes);
    pthread_mutex_unlock(&known->lock);
}
