/* Lowering goes from the innermost dimension outwards and keeps a list of levels. The next dimension joins the newest
 * level when that is taken whole (rows touch) or when only one index of the dimension is taken (there is but one row). */
#include "resolve/box.h"

struct level { /* of what is left after merging, innermost first */
    uint64_t shape, start, size;
};

uint64_t box_elements(const struct box *box)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < box->rank; i++) {
        if (!box->size[i])
            return 0;
    }
    for (uint32_t i = 0; i < box->rank; i++)
        elements *= box->size[i];
    return elements;
}

static uint32_t merge(const struct box *box, struct level levels[BOX_MAX_RANK + 1])
{
    uint32_t n = 1;
    levels[0] = (struct level){1, 0, 1};
    for (uint32_t i = box->rank; i-- > 0;) {
        struct level *inner = &levels[n - 1];
        if (inner->size == inner->shape) {
            inner->start = box->start[i] * inner->shape;
            inner->size = box->size[i] * inner->shape;
            inner->shape *= box->shape[i];
        } else if (box->size[i] == 1) {
            inner->start += box->start[i] * inner->shape;
            inner->shape *= box->shape[i];
        } else {
            levels[n++] = (struct level){box->shape[i], box->start[i], box->size[i]};
        }
    }
    return n;
}

bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs)
{
    struct level levels[BOX_MAX_RANK + 1];
    runs->n_runs = runs->n_levels = 0;
    if (!box_elements(box))
        return true;
    uint32_t n = merge(box, levels);
    uint64_t row_bits = levels[0].size * element_bits, offset_bits = levels[0].start * element_bits;
    uint64_t stride_bits = levels[0].shape * element_bits;
    runs->row_bytes = runs->row_stride = row_bits / 8;
    runs->n_rows = runs->n_runs = 1;
    bool whole_bytes = row_bits % 8 == 0;
    for (uint32_t i = 1; i < n; i++) {
        offset_bits += levels[i].start * stride_bits;
        whole_bytes = whole_bytes && stride_bits % 8 == 0;
        if (i == 1) {
            runs->n_rows = levels[i].size;
            runs->row_stride = stride_bits / 8;
        } else {
            runs->level_size[runs->n_levels] = levels[i].size;
            runs->level_stride[runs->n_levels++] = stride_bits / 8;
            runs->n_runs *= levels[i].size;
        }
        stride_bits *= levels[i].shape;
    }
    runs->first_offset = offset_bits / 8;
    return whole_bytes && offset_bits % 8 == 0;
}

uint64_t box_run_offset(const struct box_runs *runs, uint64_t index)
{
    uint64_t offset = runs->first_offset;
    for (uint32_t i = 0; i < runs->n_levels; i++) {
        offset += index % runs->level_size[i] * runs->level_stride[i];
        index /= runs->level_size[i];
    }
    return offset;
}
