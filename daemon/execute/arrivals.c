/* The shares of a run telescope: share(to) - share(from) over all pieces is the share of the last one, whatever the order in
 * which threads tell theirs. */
#include "execute/arrivals.h"

#include "execute/clip.h"

static uint64_t share(const struct part *part, uint64_t bytes, uint64_t expected_bytes)
{
    return (uint64_t)((double)part->expected_bytes * ((double)bytes / (double)expected_bytes));
}

static void tell(struct arrival *arrival, uint64_t bytes)
{
    struct arrivals *arrivals = (struct arrivals *)arrival;
    struct worker *worker = arrivals->worker;
    uint64_t all = arrivals->expected_bytes;
    uint64_t from = __atomic_fetch_add(&arrivals->told_bytes, bytes, __ATOMIC_RELAXED), to = from + bytes;
    from = from < all ? from : all;
    to = to < all ? to : all;
    for (size_t i = 0; from < to && i < worker->n_parts; i++) {
        struct part *part = &worker->parts[i];
        uint64_t more = share(part, to, all) - share(part, from, all);
        __atomic_add_fetch(&part->arrived_bytes, more, __ATOMIC_RELAXED);
        __atomic_add_fetch(&part->run->done_bytes, more, __ATOMIC_RELAXED);
    }
}

struct arrival *arrivals_begin(struct worker *worker)
{
    struct arrivals *arrivals = &worker->arrivals;
    if (!worker->is_remote)
        return NULL;
    *arrivals = (struct arrivals){.arrival.tell = tell, .worker = worker};
    for (size_t i = 0; i < worker->n_parts; i++)
        worker->parts[i].expected_bytes = 0;
    for (size_t i = 0; i < worker->n_clips; i++)
        worker->parts[worker->clips[i].part].expected_bytes += clip_bytes(&worker->clips[i]);
    for (size_t i = 0; i < worker->n_requests; i++)
        arrivals->expected_bytes += worker->requests[i].hi - worker->requests[i].lo;
    return &arrivals->arrival;
}

void arrivals_end(const struct worker *worker, const struct part *part)
{
    bool has_told = worker->is_remote && worker->kind == ITEM_BLOCK;
    __atomic_add_fetch(&part->run->done_bytes, part->placed_bytes - (has_told ? part->arrived_bytes : 0), __ATOMIC_RELAXED);
}
