/* Lowering goes from the innermost dimension outwards and keeps a list of levels. The next dimension joins the newest level
 * when on both sides its elements follow right behind that level's; where one index of it is taken there is no level. */
#include "resolve/box.h"

/* In bits, so that elements may be smaller than a byte. Returns the number of levels, 0 for an empty box. */
static uint32_t merge(const struct box *box, unsigned element_bits, struct box_runs *runs)
{
    struct box_level newest = {1, element_bits, element_bits};
    uint64_t src_bits = element_bits, dst_bits = element_bits, src_offset = 0, dst_offset = 0;
    uint64_t src_end = element_bits, dst_end = element_bits; /* of the newest level: the stride that follows right behind */
    uint32_t n = 0;
    bool is_empty = false;
    for (uint32_t i = box->rank; i-- > 0;) {
        uint64_t size = box->size[i];
        is_empty = is_empty || !size;
        src_offset += box->src_start[i] * src_bits;
        dst_offset += box->dst_start[i] * dst_bits;
        bool is_adjacent = src_end == src_bits && dst_end == dst_bits;
        if (is_adjacent) {
            newest.size *= size;
        } else if (size != 1) {
            runs->levels[n++] = newest;
            newest = (struct box_level){size, src_bits, dst_bits};
        }
        if (is_adjacent || size != 1) {
            src_end = src_bits * size;
            dst_end = dst_bits * size;
        }
        src_bits *= box->src_shape[i];
        dst_bits *= box->dst_shape[i];
    }
    runs->levels[n++] = newest;
    runs->src_offset = src_offset;
    runs->dst_offset = dst_offset;
    return is_empty ? 0 : n;
}

bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs)
{
    runs->n_runs = 0;
    runs->n_levels = merge(box, element_bits, runs);
    if (runs->n_levels == 0)
        return true;
    uint64_t row_bits = runs->levels[0].size * element_bits, odd_bits = runs->src_offset | runs->dst_offset | row_bits;
    runs->row_bytes = runs->src_stride = runs->dst_stride = row_bits / 8;
    runs->src_offset /= 8;
    runs->dst_offset /= 8;
    runs->n_rows = runs->n_runs = 1;
    for (uint32_t i = 1; i < runs->n_levels; i++) {
        struct box_level *level = &runs->levels[i];
        odd_bits |= level->src_stride | level->dst_stride;
        level->src_stride /= 8;
        level->dst_stride /= 8;
        if (i > 1)
            runs->n_runs *= level->size;
    }
    if (runs->n_levels > 1) {
        runs->n_rows = runs->levels[1].size;
        runs->src_stride = runs->levels[1].src_stride;
        runs->dst_stride = runs->levels[1].dst_stride;
    }
    return odd_bits % 8 == 0;
}

void box_run_offsets(const struct box_runs *runs, uint64_t index, uint64_t *src, uint64_t *dst)
{
    *src = runs->src_offset;
    *dst = runs->dst_offset;
    for (uint32_t i = 2; i < runs->n_levels; i++) {
        *src += index % runs->levels[i].size * runs->levels[i].src_stride;
        *dst += index % runs->levels[i].size * runs->levels[i].dst_stride;
        index /= runs->levels[i].size;
    }
}
