/* Memory of this process that lies in a memfd, so that another process of ours can be asked to fill a part of it. Its owner
 * registers it, and whoever has buffers in it finds the descriptor by their addresses.
 *
 * A write that was asked for and given up may come at any time later. Then the memory is lost: whoever gave up says so, and the
 * owner neither hands it out nor uses it again.
 *
 * Any thread. Nothing is unregistered while somebody has buffers in it. */
#ifndef BASE_SHARED_MEMORY_H
#define BASE_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct shared_memory { /* the owner's; zeroed = not registered */
    struct shared_memory *next, **link;
    unsigned char *address; /* of the first byte of the memfd */
    uint64_t bytes;
    int fd;
    bool is_lost; /* atomic */
};

/* With address, bytes and fd filled in. */
void shared_memory_add(struct shared_memory *memory);
void shared_memory_remove(struct shared_memory *memory); /* of what is not registered: nothing */
/* The one that holds all of these bytes; NULL = none does. */
struct shared_memory *shared_memory_find(const void *address, uint64_t bytes);

static inline void shared_memory_lose(struct shared_memory *memory)
{
    __atomic_store_n(&memory->is_lost, true, __ATOMIC_RELEASE);
}

static inline bool shared_memory_is_lost(const struct shared_memory *memory)
{
    return __atomic_load_n(&memory->is_lost, __ATOMIC_ACQUIRE);
}

#endif
