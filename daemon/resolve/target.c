/* Where regions lie in the destination space; see target.h. */
#include "resolve/target.h"

#include <inttypes.h>

#include "base/checked.h"

static int check_counts(const struct target_list *list, struct error *error)
{
    uint64_t n_arrays = (uint64_t)list->n_tensors + list->n_fills + list->n_covers;
    if (list->n_regions > TARGET_MAX_REGIONS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_REGIONS",
                    "%zu regions are too many; a load writes into at most %d", list->n_regions, TARGET_MAX_REGIONS);
    if (n_arrays > TARGET_MAX_ARRAYS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_TARGETS",
                    "%" PRIu64 " targets, fills and covers are too many; a load takes at most %d", n_arrays,
                    TARGET_MAX_ARRAYS);
    return 0;
}

int target_place_regions(struct target_list *list, struct error *error)
{
    uint64_t end = 0;
    if (check_counts(list, error))
        return -1;
    for (size_t i = 0; i < list->n_regions; i++) {
        struct target_region *region = &list->regions[i];
        /* cannot wrap: the end is within the limit */
        region->base = i ? (end + 2 * (uint64_t)TARGET_REGION_ALIGN - 1) / TARGET_REGION_ALIGN * TARGET_REGION_ALIGN : 0;
        if (!checked_add(region->base, region->bytes, &end) || end > TARGET_MAX_SPACE_BYTES)
            return fail(error, ERROR_INVALID_ARGUMENT, "REGIONS_TOO_LARGE",
                        "region %zu has %" PRIu64 " bytes; all regions of a load have less than %" PRIu64, i, region->bytes,
                        TARGET_MAX_SPACE_BYTES);
    }
    list->space_bytes = end;
    return 0;
}
