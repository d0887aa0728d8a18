/* Two passes over the transfers, which come in file order: the first finds each tensor's anchor, the transfer that it is
 * placed by; in the second tensors are placed in the order of their anchors. See placement.h. */
#include "resolve/placement.h"

#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/metadata.h"

enum { NO_ANCHOR = UINT32_MAX };

struct placing {
    struct mapping *mapping;
    uint32_t *anchors; /* per tensor: index of a transfer; NO_ANCHOR without bytes */
    struct error *error;
};

/* Where the tensor would begin in the file if all of it lay there like this transfer. May wrap around. */
static uint64_t source_start(const struct transfer *transfer)
{
    return transfer->src_offset - transfer->dst_offset;
}

/* Blocks of it can land in place. The type is looked up only where it decides: it is far away in memory. */
static bool can_land(const struct mapping *mapping, const struct transfer *transfer)
{
    uint64_t start = source_start(transfer);
    if (transfer->operation || (transfer->n_rows > 1 && transfer->row_bytes < PLACEMENT_ROW_BYTES))
        return false;
    if (!mapping->align_bytes && start % DTYPE_WIDEST_BYTES == 0)
        return true;
    uint64_t element_bytes = dtype_bits(mapping->tensors[transfer->tensor].record->dtype) / 8;
    uint64_t align = mapping->align_bytes ? mapping->align_bytes : element_bytes ? element_bytes : 1;
    return start % (align < PLACEMENT_BLOCK_BYTES ? align : PLACEMENT_BLOCK_BYTES) == 0;
}

/* The first from `from` on; n_transfers: there is none. */
static size_t next_anchor(const struct placing *placing, size_t from)
{
    const struct mapping *mapping = placing->mapping;
    while (from < mapping->n_transfers && placing->anchors[mapping->transfers[from].tensor] != from)
        from++;
    return from;
}

static int fail_too_large(const struct placing *placing)
{
    return fail(placing->error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the view is larger than any memory");
}

static int place(struct placing *placing, uint32_t tensor, uint64_t offset)
{
    struct mapping *mapping = placing->mapping;
    mapping->tensors[tensor].offset = offset;
    return checked_add(offset, mapping->tensors[tensor].bytes, &mapping->replica_bytes) ? 0 : fail_too_large(placing);
}

static int place_packed(struct placing *placing, uint32_t tensor)
{
    uint64_t align = placing->mapping->align_bytes ? placing->mapping->align_bytes : VIEW_DEFAULT_ALIGN, offset;
    return checked_align(placing->mapping->replica_bytes, align, &offset) ? place(placing, tensor, offset)
                                                                          : fail_too_large(placing);
}

/* The tensors of the anchors from `first` to before `end`. */
static int place_extent(struct placing *placing, size_t first, size_t end)
{
    const struct mapping *mapping = placing->mapping;
    uint64_t start = source_start(&mapping->transfers[first]), base;
    uint64_t align = mapping->align_bytes > PLACEMENT_BLOCK_BYTES ? mapping->align_bytes : 1; /* then start is of a block */
    if (!checked_add(mapping->replica_bytes, (start - mapping->replica_bytes) % PLACEMENT_BLOCK_BYTES, &base) ||
        !checked_align(base, align, &base))
        return fail_too_large(placing);
    for (size_t i = first; i < end; i = next_anchor(placing, i + 1)) {
        const struct transfer *anchor = &mapping->transfers[i];
        if (place(placing, anchor->tensor, base + (source_start(anchor) - start)) < 0)
            return -1;
    }
    return 0;
}

/* Places an extent, or a tensor that does not land. Returns the anchor behind it, or 0 when it failed. */
static size_t place_next(struct placing *placing, size_t first)
{
    const struct mapping *mapping = placing->mapping;
    const struct transfer *anchor = &mapping->transfers[first];
    bool lands = can_land(mapping, anchor);
    uint64_t bytes = mapping->tensors[anchor->tensor].bytes;
    size_t end = next_anchor(placing, first + 1);
    for (; lands && end < mapping->n_transfers; end = next_anchor(placing, end + 1)) {
        const struct transfer *next = &mapping->transfers[end];
        /* its tensor begins where that of the anchor ends, in the file too */
        if (anchor->n_rows != 1 || next->n_rows != 1 || next->file != anchor->file ||
            source_start(anchor) + mapping->tensors[anchor->tensor].bytes != source_start(next) ||
            mapping->align_bytes > PLACEMENT_BLOCK_BYTES || !can_land(mapping, next))
            break;
        anchor = next;
        bytes += mapping->tensors[anchor->tensor].bytes;
    }
    if (lands && bytes >= PLACEMENT_EXTENT_BYTES)
        return place_extent(placing, first, end) < 0 ? 0 : end;
    for (size_t i = first; i < end; i = next_anchor(placing, i + 1))
        if (place_packed(placing, mapping->transfers[i].tensor) < 0)
            return 0;
    return end;
}

int placement_by_source(struct mapping *mapping, struct error *error)
{
    struct placing placing = {.mapping = mapping, .error = error};
    placing.anchors = metadata_array(mapping->n_tensors, sizeof *placing.anchors, error);
    if (!placing.anchors)
        return -1;
    mapping->replica_bytes = 0;
    memset(placing.anchors, 0xFF, mapping->n_tensors * sizeof *placing.anchors);
    for (size_t i = 0; i < mapping->n_transfers;
         i++) { /* the one with the longest rows that can land; if none can, the first */
        const struct transfer *transfer = &mapping->transfers[i];
        uint32_t *anchor = &placing.anchors[transfer->tensor];
        const struct transfer *best = *anchor == NO_ANCHOR ? NULL : &mapping->transfers[*anchor];
        if (!best || (can_land(mapping, transfer) && (!can_land(mapping, best) || transfer->row_bytes > best->row_bytes)))
            *anchor = (uint32_t)i;
    }
    int failed = 0;
    for (size_t at = next_anchor(&placing, 0); at < mapping->n_transfers && !failed;) {
        at = place_next(&placing, at);
        failed = at ? 0 : -1;
    }
    for (uint32_t tensor = 0; tensor < mapping->n_tensors && !failed; tensor++)
        if (placing.anchors[tensor] == NO_ANCHOR)
            failed = place_packed(&placing, tensor);
    for (size_t i = 0; i < mapping->n_transfers && !failed; i++)
        mapping->transfers[i].dst_offset += mapping->tensors[mapping->transfers[i].tensor].offset;
    metadata_free(placing.anchors);
    return failed;
}
