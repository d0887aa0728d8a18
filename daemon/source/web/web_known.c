/* One slot per hash of the URL. A hostile URL can push out another's entry, which costs that one a few bytes more. */
#include "source/web/web_known.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/source.h"

enum { SLOTS = 4096, MAX_TEXT_CHARS = 600 /* of what is kept: ETags have some dozens */ };

struct slot {
    struct source_identity key; /* a digest of the URL: presigned ones are not kept as text */
    struct web_fact fact;
    bool used;
};

struct web_known {
    pthread_mutex_t lock;
    struct slot slots[SLOTS];
};

struct web_known *web_known_create(void)
{
    struct web_known *known = memory_alloc(sizeof *known);
    pthread_mutex_init(&known->lock, NULL);
    return known;
}

void web_fact_clear(struct web_fact *fact)
{
    free(fact->etag);
    free(fact->last_modified);
}

void web_known_destroy(struct web_known *known)
{
    for (size_t i = 0; i < SLOTS; i++)
        web_fact_clear(&known->slots[i].fact);
    pthread_mutex_destroy(&known->lock);
    free(known);
}

static struct web_fact copy_fact(const struct web_fact *fact)
{
    return (struct web_fact){.etag = fact->etag ? memory_copy_text(fact->etag) : NULL,
                             .last_modified = fact->last_modified ? memory_copy_text(fact->last_modified) : NULL,
                             .size_bytes = fact->size_bytes,
                             .comes_whole = fact->comes_whole};
}

bool web_known_find(struct web_known *known, const char *url, struct web_fact *fact)
{
    struct source_identity key = source_identity_of(url, 0);
    pthread_mutex_lock(&known->lock);
    const struct slot *slot = &known->slots[key.device % SLOTS];
    bool found = slot->used && memcmp(&slot->key, &key, sizeof key) == 0;
    if (found)
        *fact = copy_fact(&slot->fact);
    pthread_mutex_unlock(&known->lock);
    return found;
}

static bool is_short(const char *text)
{
    return !text || strnlen(text, MAX_TEXT_CHARS + 1) <= MAX_TEXT_CHARS;
}

void web_known_set(struct web_known *known, const char *url, const struct web_fact *fact)
{
    if (!is_short(fact->etag) || !is_short(fact->last_modified))
        return;
    struct source_identity key = source_identity_of(url, 0);
    pthread_mutex_lock(&known->lock);
    struct slot *slot = &known->slots[key.device % SLOTS];
    web_fact_clear(&slot->fact);
    *slot = (struct slot){.key = key, .fact = copy_fact(fact), .used = true};
    pthread_mutex_unlock(&known->lock);
}
