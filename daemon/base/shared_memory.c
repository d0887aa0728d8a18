/* A list: there are as many as loads in flight. */
#include "base/shared_memory.h"

#include <pthread.h>
#include <stddef.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct shared_memory *first;

void shared_memory_add(struct shared_memory *memory)
{
    pthread_rwlock_wrlock(&lock);
    memory->next = first;
    memory->link = &first;
    if (first)
        first->link = &memory->next;
    first = memory;
    pthread_rwlock_unlock(&lock);
}

void shared_memory_remove(struct shared_memory *memory)
{
    pthread_rwlock_wrlock(&lock);
    if (memory->link) {
        *memory->link = memory->next;
        if (memory->next)
            memory->next->link = memory->link;
        memory->link = NULL;
    }
    pthread_rwlock_unlock(&lock);
}

struct shared_memory *shared_memory_find(const void *address, uint64_t bytes)
{
    const unsigned char *begin = address;
    pthread_rwlock_rdlock(&lock);
    struct shared_memory *found = first;
    while (found && !(begin >= found->address && begin < found->address + found->bytes &&
                      bytes <= (uint64_t)(found->address + found->bytes - begin)))
        found = found->next;
    pthread_rwlock_unlock(&lock);
    return found;
}
