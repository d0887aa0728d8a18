/* Memory for what is not tensors and whose size an outside sender chose: a request, a header, a listing, a plan. It is
 * charged to a user (QUOTA_METADATA) before it is allocated, and can fail: the request does, not the daemon. Small things of
 * fixed size come from base/memory.h.
 *
 * The payer is a property of the thread, as with the kernel's set_active_memcg(): a thread that works for a user enters that
 * user's account, and all code below allocates without naming the user. Without an account nothing is counted. Each
 * allocation remembers its account, so that any thread may free it. */
#ifndef BASE_METADATA_H
#define BASE_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/quota.h"

struct metadata_account {
    struct quota *quota; /* NULL = not counted */
    uid_t uid;
};

/* Of this thread. Returns the one before, to be entered again when the work is done. */
struct metadata_account metadata_enter(struct metadata_account account);
struct metadata_account metadata_current(void);
struct quota_charge metadata_charge(void); /* an empty one to the thread's account, for callers that count themselves */

/* NULL: RESOURCE_EXHAUSTED, METADATA_EXCEEDED, or OUT_OF_MEMORY where the system has none. All of a piece takes memory at
 * once; large ones are in huge pages (memory_try() of base/memory.h). */
void *metadata_alloc(size_t bytes, struct error *error);              /* zeroed, 16-byte aligned */
void *metadata_array(size_t count, size_t size, struct error *error); /* likewise */
void *metadata_grow(void *old, size_t bytes, struct error *error);    /* `old` stays valid when it fails; not zeroed */
void metadata_free(void *piece);                                      /* accepts NULL */
int metadata_fail_memory(size_t bytes, struct error *error);          /* the error OUT_OF_MEMORY; returns -1 */

/* ARRAY_RESERVE() of base/memory.h that can fail: 0 or -1. */
#define METADATA_RESERVE(items, count, capacity, error)                                                                     \
    ((count) < (capacity) ? 0 : metadata_reserve((void **)&(items), &(capacity), sizeof *(items), (error)))
int metadata_reserve(void **items, size_t *capacity, size_t size, struct error *error);

#endif
