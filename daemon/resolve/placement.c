/* Two passes over the transfers, which come in file order: the first finds each tensor's anchor, the transfer that it is
 * placed by; in the second tensors are placed in the order of their anchors. See placement.h. */
#include "resolve/placement.h"

#include <string.h>

#include "base/checked.h"
#include "base/metadata.h"

enum { NO_ANCHOR = UINT32_MAX };

struct placing {
    struct mapping *mapping;
    uint32_t *anchors; /* per tensor: index of a transfer */
    uint32_t *order;   /* tensors by anchor */
    size_t n;
    struct error *error;
};

static uint64_t align_of(const struct mapping *mapping, const struct view_tensor *tensor)
{
    uint32_t element_bytes = dtype_bits(tensor->record->dtype) / 8;
    if (mapping->align_bytes)
        return mapping->align_bytes;
    return element_bytes ? element_bytes : 1;
}

/* Where the tensor would begin in the file if all of it lay there like this transfer. May wrap around. */
static uint64_t source_start(const struct transfer *transfer)
{
    return transfer->src_offset - transfer->dst_offset;
}

/* Blocks of it can land in place. */
static bool can_land(const struct mapping *mapping, const struct transfer *transfer)
{
    uint64_t align = align_of(mapping, &mapping->tensors[transfer->tensor]);
    align = align < PLACEMENT_BLOCK_BYTES ? align : PLACEMENT_BLOCK_BYTES;
    return !transfer->operation && (transfer->n_rows == 1 || transfer->row_bytes >= PLACEMENT_ROW_BYTES) &&
           source_start(transfer) % align == 0;
}

/* The one with the longest rows that can land; if none can, the first. */
static void find_anchors(struct placing *placing)
{
    const struct mapping *mapping = placing->mapping;
    memset(placing->anchors, 0xFF, mapping->n_tensors * sizeof *placing->anchors);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        uint32_t *anchor = &placing->anchors[transfer->tensor];
        const struct transfer *best = *anchor == NO_ANCHOR ? NULL : &mapping->transfers[*anchor];
        if (!best || (can_land(mapping, transfer) && (!can_land(mapping, best) || transfer->row_bytes > best->row_bytes)))
            *anchor = (uint32_t)i;
    }
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        uint32_t tensor = mapping->transfers[i].tensor;
        if (placing->anchors[tensor] == i)
            placing->order[placing->n++] = tensor;
    }
    for (size_t t = 0; t < mapping->n_tensors; t++) /* without bytes */
        if (placing->anchors[t] == NO_ANCHOR)
            placing->order[placing->n++] = (uint32_t)t;
}

static const struct transfer *anchor_of(const struct placing *placing, size_t at)
{
    uint32_t anchor = placing->anchors[placing->order[at]];
    const struct transfer *transfer = anchor == NO_ANCHOR ? NULL : &placing->mapping->transfers[anchor];
    return transfer && can_land(placing->mapping, transfer) ? transfer : NULL;
}

/* The tensor after this one begins where it ends, in the file too. */
static bool goes_on(const struct placing *placing, size_t at)
{
    const struct mapping *mapping = placing->mapping;
    const struct transfer *anchor = anchor_of(placing, at), *next = at + 1 < placing->n ? anchor_of(placing, at + 1) : NULL;
    const struct view_tensor *tensor = &mapping->tensors[placing->order[at]];
    return next && anchor->n_rows == 1 && next->n_rows == 1 && next->file == anchor->file &&
           source_start(anchor) + tensor->bytes == source_start(next) && mapping->align_bytes <= PLACEMENT_BLOCK_BYTES;
}

static int place(struct placing *placing, size_t at, uint64_t offset)
{
    struct view_tensor *tensor = &placing->mapping->tensors[placing->order[at]];
    tensor->offset = offset;
    if (checked_add(offset, tensor->bytes, &placing->mapping->replica_bytes))
        return 0;
    return fail(placing->error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the view is larger than any memory");
}

static int place_packed(struct placing *placing, size_t at)
{
    const struct mapping *mapping = placing->mapping;
    uint64_t align = mapping->align_bytes ? mapping->align_bytes : VIEW_DEFAULT_ALIGN, offset;
    if (!checked_align(mapping->replica_bytes, align, &offset))
        return fail(placing->error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the view is larger than any memory");
    return place(placing, at, offset);
}

static int place_extent(struct placing *placing, size_t first, size_t end)
{
    const struct mapping *mapping = placing->mapping;
    uint64_t start = source_start(anchor_of(placing, first)), base;
    uint64_t align = mapping->align_bytes > PLACEMENT_BLOCK_BYTES ? mapping->align_bytes : 1; /* then start is of a block */
    if (!checked_add(mapping->replica_bytes, (start - mapping->replica_bytes) % PLACEMENT_BLOCK_BYTES, &base) ||
        !checked_align(base, align, &base))
        return fail(placing->error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the view is larger than any memory");
    for (size_t i = first; i < end; i++)
        if (place(placing, i, base + (source_start(anchor_of(placing, i)) - start)) < 0)
            return -1;
    return 0;
}

static int place_all(struct placing *placing)
{
    const struct view_tensor *tensors = placing->mapping->tensors;
    for (size_t first = 0, end; first < placing->n; first = end) {
        bool lands = anchor_of(placing, first) != NULL;
        uint64_t bytes = tensors[placing->order[first]].bytes;
        for (end = first + 1; lands && goes_on(placing, end - 1); end++)
            bytes += tensors[placing->order[end]].bytes;
        if (lands && bytes >= PLACEMENT_EXTENT_BYTES) {
            if (place_extent(placing, first, end) < 0)
                return -1;
            continue;
        }
        for (size_t i = first; i < end; i++)
            if (place_packed(placing, i) < 0)
                return -1;
    }
    return 0;
}

int placement_by_source(struct mapping *mapping, struct error *error)
{
    struct placing placing = {.mapping = mapping, .error = error};
    placing.anchors = metadata_array(mapping->n_tensors, sizeof *placing.anchors, error);
    placing.order = metadata_array(mapping->n_tensors, sizeof *placing.order, error);
    int failed = -1;
    mapping->replica_bytes = 0;
    if (placing.anchors && placing.order) {
        find_anchors(&placing);
        failed = place_all(&placing);
    }
    for (size_t i = 0; i < mapping->n_transfers && !failed; i++)
        mapping->transfers[i].dst_offset += mapping->tensors[mapping->transfers[i].tensor].offset;
    metadata_free(placing.anchors);
    metadata_free(placing.order);
    return failed;
}
