/* Where regions lie in the destination space, and what is checked of a target by itself; see target.h. */
#include "resolve/target.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/text.h"
#include "resolve/format.h"

int target_check_counts(const struct target_list *list, struct error *error)
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
    if (target_check_counts(list, error))
        return -1;
    for (size_t i = 0; i < list->n_regions; i++) {
        struct target_region *region = &list->regions[i];
        /* cannot wrap: the end is within the limit */
        region->base = i ? (end + 2 * (uint64_t)TARGET_REGION_ALIGN - 1) / TARGET_REGION_ALIGN * TARGET_REGION_ALIGN : 0;
        if (!checked_add(region->base, region->bytes, &end) || end > TARGET_MAX_SPACE_BYTES ||
            region->memory_offset > TARGET_MAX_SPACE_BYTES)
            return fail(error, ERROR_INVALID_ARGUMENT, "REGIONS_TOO_LARGE",
                        "region %zu has %" PRIu64 " bytes; all regions of a load have less than %" PRIu64, i, region->bytes,
                        TARGET_MAX_SPACE_BYTES);
    }
    list->space_bytes = end;
    return 0;
}

bool target_is_empty(const struct target *target)
{
    for (uint32_t i = 0; i < target->rank; i++)
        if (!target->dims[i])
            return true;
    return false;
}

uint64_t target_row(const struct target *target, uint32_t *rank)
{
    unsigned bits = dtype_bits(target->dtype);
    *rank = target->rank;
    if (bits >= 8)
        return bits / 8;
    return target->rank ? target->dims[--*rank] * bits / 8 : 0;
}

struct naming {
    const char *name;
    size_t length;
    struct error *error;
};

static int fail_named(const struct naming *naming, enum error_code code, const char *reason, const char *what)
{
    fail(naming->error, code, reason, "target %s %s", text_show_bytes(naming->name, naming->length), what);
    return error_note_tensor(naming->error, naming->name, naming->length);
}

static int check_place(const struct target_list *list, const struct target *target, const struct naming *naming)
{
    uint64_t before = 0, behind = 0, end, row; /* how far elements lie before and behind the first one */
    uint32_t rank = target->rank;
    bool fits = true;
    if (dtype_bits(target->dtype) < 8 &&
        (!rank || target->dims[rank - 1] > UINT64_MAX / 8 || target->dims[rank - 1] * dtype_bits(target->dtype) % 8))
        return fail_named(naming, ERROR_UNIMPLEMENTED, "SUB_BYTE_TARGET",
                          "has elements smaller than a byte, and its last dimension is not whole bytes");
    row = target_row(target, &rank);
    for (uint32_t i = 0; i < rank; i++)
        if (target->strides[i] == 0 && target->dims[i] > 1)
            return fail_named(naming, ERROR_INVALID_ARGUMENT, "TARGET_REPEATS",
                              "repeats elements: a dimension has stride 0; every element needs memory of its own");
    for (uint32_t i = 0; i < rank && fits; i++) {
        uint64_t reach, *side = target->strides[i] < 0 ? &before : &behind;
        fits = checked_mul(target->dims[i] - 1, checked_magnitude(target->strides[i]), &reach) &&
               checked_add(*side, reach, side);
    }
    if (fits && before <= target->offset && checked_add(behind, row, &behind) && checked_add(target->offset, behind, &end) &&
        end <= list->regions[target->region].bytes)
        return 0;
    return fail_named(naming, ERROR_INVALID_ARGUMENT, "TARGET_OUTSIDE",
                      "is not inside its region: offset and strides lead out of the memory that was offered");
}

int target_check(const struct target_list *list, const struct target *target, const char *name, size_t name_length,
                 struct error *error)
{
    const struct naming naming = {name, name_length, error};
    if (target->rank > TENSOR_MAX_RANK)
        return fail_named(&naming, ERROR_INVALID_ARGUMENT, "TARGET_SHAPE", "has more than 64 dimensions");
    if (target->region >= list->n_regions)
        return fail_named(&naming, ERROR_INVALID_ARGUMENT, "TARGET_OUTSIDE", "is in no region of the request");
    return target_is_empty(target) ? 0 : check_place(list, target, &naming);
}
