/* Two lists of buffers, free and kept, newest first; see staging.h. Buffers are anonymous huge pages where there are any:
 * a device writes into one huge page 3 times faster than into 512 scattered small ones. Those that another process fills are
 * a memfd (device/host_memory.h). */
#include "execute/staging.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "device/device.h"
#include "device/host_memory.h"
#include "base/huge_pages.h"

void staging_init(struct staging *staging, uint64_t buffer_bytes, uint64_t budget_bytes)
{
    *staging = (struct staging){.buffer_bytes = buffer_bytes, .budget_buffers = budget_bytes / buffer_bytes};
    if (staging->budget_buffers == 0)
        staging->budget_buffers = 1;
}

void staging_fini(struct staging *staging)
{
    staging_expire(staging, UINT64_MAX);
}

static struct staging_buffer *create_buffer(struct staging *staging)
{
    unsigned char *memory = huge_pages_map(staging->buffer_bytes);
    if (!memory)
        return NULL;
    struct staging_buffer *buffer = memory_alloc(sizeof *buffer);
    buffer->memory = memory;
    buffer->home = staging;
    __atomic_add_fetch(&staging->n_buffers, 1, __ATOMIC_RELAXED);
    return buffer;
}

static void destroy_buffer(struct staging_buffer *buffer)
{
    struct staging *staging = buffer->home;
    flight_land(&buffer->flight);
    if (buffer->pinned_by && !device_unpin(buffer->pinned_by, buffer->memory)) /* the memory goes, never the addresses */
        madvise(buffer->memory, staging->buffer_bytes, MADV_DONTNEED);
    else
        munmap(buffer->memory, staging->buffer_bytes);
    free(buffer);
    __atomic_sub_fetch(&staging->n_buffers, 1, __ATOMIC_RELAXED);
}

static struct staging_buffer *unlink_first(struct staging_buffer **list)
{
    struct staging_buffer *first = *list;
    *list = first->next;
    first->next = NULL;
    first->scan = NULL;
    return first;
}

static struct staging_buffer *unlink_oldest(struct staging_buffer **list)
{
    while ((*list)->next)
        list = &(*list)->next;
    return unlink_first(list);
}

struct staging_buffer *staging_take(struct staging *staging, bool (*needs)(const struct staging_buffer *kept))
{
    struct staging_buffer *buffer = NULL, **oldest = NULL;
    if (staging->free)
        buffer = unlink_first(&staging->free);
    else if (staging->n_buffers < staging->budget_buffers)
        buffer = create_buffer(staging);
    for (struct staging_buffer **link = &staging->kept; !buffer && *link; link = &(*link)->next)
        oldest = needs && needs(*link) ? oldest : link;
    if (oldest)
        buffer = unlink_first(oldest);
    staging->n_taken += buffer != NULL;
    return buffer;
}

uint64_t staging_left(const struct staging *staging)
{
    return staging->n_taken < staging->budget_buffers ? staging->budget_buffers - staging->n_taken : 0;
}

static void put_free(struct staging_buffer *buffer, uint64_t now_ns)
{
    buffer->used_ns = now_ns;
    buffer->next = buffer->home->free;
    buffer->home->free = buffer;
}

void staging_give(struct staging_buffer *buffer, uint64_t now_ns)
{
    buffer->home->n_taken--;
    put_free(buffer, now_ns);
}

void staging_keep(struct staging_buffer *buffer, const struct scan *scan, uint64_t now_ns)
{
    buffer->home->n_taken--;
    buffer->used_ns = now_ns;
    buffer->scan = scan;
    buffer->next = buffer->home->kept;
    buffer->home->kept = buffer;
}

struct staging_buffer *staging_find(struct staging *staging, const struct scan *scan, uint64_t start)
{
    struct staging_buffer **link = &staging->kept;
    while (*link && ((*link)->scan != scan || (*link)->start != start))
        link = &(*link)->next;
    staging->n_taken += *link != NULL;
    return *link ? unlink_first(link) : NULL;
}

void staging_forget(struct staging *staging, const struct scan *scan)
{
    struct staging_buffer **link = &staging->kept;
    while (*link) {
        if ((*link)->scan == scan) {
            struct staging_buffer *buffer = unlink_first(link);
            put_free(buffer, buffer->used_ns);
        } else {
            link = &(*link)->next;
        }
    }
}

void staging_resize(struct staging *staging, uint64_t budget_bytes)
{
    uint64_t budget_buffers = budget_bytes / staging->buffer_bytes;
    staging->budget_buffers = budget_buffers > 0 ? budget_buffers : 1;
    while (staging->n_buffers > staging->budget_buffers && (staging->free || staging->kept))
        destroy_buffer(staging->free ? unlink_first(&staging->free) : unlink_oldest(&staging->kept));
}

static void expire_list(struct staging_buffer **list, uint64_t before_ns)
{
    while (*list) {
        if ((*list)->used_ns < before_ns)
            destroy_buffer(unlink_first(list));
        else
            list = &(*list)->next;
    }
}

bool staging_expire(struct staging *staging, uint64_t before_ns)
{
    expire_list(&staging->free, before_ns);
    expire_list(&staging->kept, before_ns);
    return staging->free || staging->kept;
}

void staging_pin(struct staging_buffer *buffer, struct device *device)
{
    struct error error;
    if (buffer->pinned_by || buffer->cannot_pin)
        return;
    buffer->cannot_pin = device_pin(device, buffer->memory, buffer->home->buffer_bytes, &error) != 0;
    buffer->pinned_by = buffer->cannot_pin ? NULL : device;
}
