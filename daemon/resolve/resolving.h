/* Resolves under way, by key, single-flight: a thread that asks what another thread asks already waits for that answer and
 * shares it, errors too. So eight ranks that start together ask a store once. A cancelled thread leaves; the resolve
 * ends when no thread waits. Any thread; blocks. */
#ifndef RESOLVE_RESOLVING_H
#define RESOLVE_RESOLVING_H

#include "base/cancel.h"
#include "base/error.h"

struct resolving;

struct resolving *resolving_create(void);
void resolving_destroy(struct resolving *resolving); /* accepts NULL; no thread may be in resolving_share() */

struct resolving_ops {
    int (*resolve)(void *data, const struct cancel *cancel, void **found, struct error *error);
    void (*ref)(void *found);
};

/* 0 with a reference to what ops->resolve(data, ...) found, on this thread or on another's for the same key. `cancel` is
 * the caller's and may be NULL. */
int resolving_share(struct resolving *resolving, const char *key, const struct resolving_ops *ops, void *data,
                    const struct cancel *cancel, void **found, struct error *error);

#endif
