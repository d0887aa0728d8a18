#include "host_size.h"

#include "config/config.h"
#include "config/memory_budgets.h"
#include "resolve/placement.h"

enum { ALIGN_BYTES = 64 /* of a tensor, unless a view says otherwise */, PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };
#define MIB ((uint64_t)1 << 20)

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t part_bytes(const struct catalog_tensor *tensor, const struct tc_view_item *item)
{
    unsigned __int128 bytes = tensor->bytes;
    for (size_t i = 0; i < item->n_slices; i++) {
        uint64_t all = tensor->shape[i], stop = item->slices[i].stop < 0 ? 0 : (uint64_t)item->slices[i].stop;
        uint64_t start = (uint64_t)item->slices[i].start, end = stop < all ? stop : all;
        if (end <= start)
            return 0;
        bytes = (bytes * (end - start) + all - 1) / all;
    }
    return (uint64_t)bytes;
}

/* See resolve/placement.h: a long extent begins at the next place that is congruent to a block of its file, and has one tensor
 * at least; everything shorter is packed, or lies in one with its neighbours, whose padding is a sixteenth at most. */
static uint64_t with_padding(uint64_t bytes)
{
    return bytes + (bytes < PLACEMENT_EXTENT_BYTES ? ALIGN_BYTES + bytes / 16 : PLACEMENT_BLOCK_BYTES);
}

uint64_t host_size_view(const struct catalog *catalog, const struct tc_view *view)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++)
        bytes += with_padding(view ? part_bytes(&catalog->tensors[i], &view->items[i]) : catalog->tensors[i].bytes);
    return round_up(bytes, bytes < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES);
}

struct host_size host_size_of(uint64_t views_bytes)
{
    struct config config = *config_defaults();
    unsigned percent = 100 - (unsigned)config.limits.kept_for_others_percent;
    uint64_t wanted = (uint64_t)((unsigned __int128)views_bytes * 100 / percent) + 1;
    config.memory.host_budget_bytes = round_up(wanted, MIB);
    const struct memory_budgets budgets = memory_budgets_of(&config, 0);
    struct host_size size = {.views_bytes = views_bytes,
                             .host_budget_bytes = budgets.host_bytes,
                             .metadata_bytes = budgets.metadata_bytes,
                             .staging_bytes = config.memory.staging_budget_bytes,
                             .extent_cache_bytes = budgets.extent_cache_bytes};
    size.container_limit_bytes = size.host_budget_bytes + size.metadata_bytes + size.staging_bytes +
                                 size.extent_cache_bytes + config.memory.pool_budget_bytes +
                                 config.memory.locked_pages_budget_bytes + MEMORY_OF_ITS_OWN;
    return size;
}
