/* The shares of a run telescope: share(to) - share(from) over all pieces is the share of the last one, whatever the order in
 * which threads tell theirs. */
#include "execute/arrivals.h"

#include "execute/clip.h"
#include "execute/extent.h"

static uint64_t share(const struct part *part, uint64_t bytes, uint64_t expected_bytes)
{
    return (uint64_t)((double)part->expected_bytes * ((double)bytes / (double)expected_bytes));
}

static void count_arrived(struct arrival *arrival, uint64_t bytes)
{
    struct arrivals *arrivals = (struct arrivals *)arrival;
    const struct item *item = arrivals->item;
    uint64_t all = arrivals->expected_bytes;
    uint64_t from = __atomic_fetch_add(&arrivals->told_bytes, bytes, __ATOMIC_RELAXED), to = from + bytes;
    from = from < all ? from : all;
    to = to < all ? to : all;
    for (size_t i = 0; from < to && i < item->n_parts; i++) {
        struct part *part = &item->parts[i];
        uint64_t more = share(part, to, all) - share(part, from, all);
        __atomic_add_fetch(&part->arrived_bytes, more, __ATOMIC_RELAXED);
        __atomic_add_fetch(&part->run->account.done_bytes, more, __ATOMIC_RELAXED);
    }
}

struct arrival *arrivals_begin(struct item *item, const struct clips *clips, const struct extents *requests)
{
    if (!item->is_remote)
        return NULL;
    item->arrivals =
        (struct arrivals){.arrival.tell = count_arrived, .item = item, .expected_bytes = extent_sum_bytes(requests)};
    for (size_t i = 0; i < item->n_parts; i++)
        item->parts[i].expected_bytes = 0;
    for (size_t i = 0; i < clips->n; i++)
        item->parts[clips->list[i].part].expected_bytes += clips->list[i].src.count * clip_row_bytes(&clips->list[i], item);
    return &item->arrivals.arrival;
}

void arrivals_end(const struct item *item, const struct part *part)
{
    bool has_told = item->is_remote && item->kind == ITEM_BLOCK;
    __atomic_add_fetch(&part->run->account.done_bytes, part->placed_bytes - (has_told ? part->arrived_bytes : 0),
                       __ATOMIC_RELAXED);
}
