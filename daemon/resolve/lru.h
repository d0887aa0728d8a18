/* Reference-counted values by key, bounded in bytes: what was used longest ago goes first. Thread-safe. */
#ifndef RESOLVE_LRU_H
#define RESOLVE_LRU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lru;

struct lru_ops {
    void (*ref)(void *value);
    void (*unref)(void *value);
};

struct lru *lru_create(uint64_t cap_bytes, const struct lru_ops *ops);
void lru_destroy(struct lru *lru); /* accepts NULL */

/* A value with a reference for the caller, or NULL. */
void *lru_find(struct lru *lru, const void *key, size_t key_bytes);

/* Takes a reference of its own and replaces what the key had. A value that is larger than the cap is not kept. */
void lru_add(struct lru *lru, const void *key, size_t key_bytes, void *value, uint64_t value_bytes);

uint64_t lru_bytes(struct lru *lru);

/* Drops the older half of what it holds, in bytes. False: it was empty. */
bool lru_shrink(struct lru *lru);

#endif
