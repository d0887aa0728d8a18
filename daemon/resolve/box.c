/* Lowering goes from the innermost dimension outwards and keeps a list of levels. The next dimension joins the newest level
 * when on both sides its elements follow right behind that level's; where one index of it is taken there is no level. */
#include "resolve/box.h"

/* One more level. Everything that follows from it is written down here, while its numbers are in registers: reading them back
 * from `levels` right away, two at once, waits for the stores before. Returns the bits that are not whole bytes. */
static uint64_t add_level(struct box_runs *runs, uint32_t n, struct box_level level, unsigned element_bits)
{
    uint64_t src_stride = level.src_stride / 8, dst_stride = level.dst_stride / 8, row_bits = level.size * element_bits;
    runs->levels[n] = (struct box_level){level.size, src_stride, dst_stride};
    if (n == 0) {
        runs->row_bytes = runs->src_stride = runs->dst_stride = row_bits / 8;
        return row_bits;
    }
    if (n == 1) {
        runs->n_rows = level.size;
        runs->src_stride = src_stride;
        runs->dst_stride = dst_stride;
    } else {
        runs->n_runs *= level.size;
    }
    return level.src_stride | level.dst_stride;
}

/* In bits, so that elements may be smaller than a byte. */
bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs)
{
    struct box_level newest = {1, element_bits, element_bits};
    uint64_t src_bits = element_bits, dst_bits = element_bits, src_offset = 0, dst_offset = 0, odd_bits = 0;
    uint64_t src_end = element_bits, dst_end = element_bits; /* of the newest level: the stride that follows right behind */
    uint32_t n = 0;
    bool is_empty = false;
    runs->n_runs = runs->n_rows = 1;
    for (uint32_t i = box->rank; i-- > 0;) {
        uint64_t size = box->size[i];
        is_empty = is_empty || !size;
        src_offset += box->src_start[i] * src_bits;
        dst_offset += box->dst_start[i] * dst_bits;
        bool is_adjacent = src_end == src_bits && dst_end == dst_bits;
        if (is_adjacent) {
            newest.size *= size;
        } else if (size != 1) {
            odd_bits |= add_level(runs, n++, newest, element_bits);
            newest = (struct box_level){size, src_bits, dst_bits};
        }
        if (is_adjacent || size != 1) {
            src_end = src_bits * size;
            dst_end = dst_bits * size;
        }
        src_bits *= box->src_shape[i];
        dst_bits *= box->dst_shape[i];
    }
    odd_bits |= add_level(runs, n++, newest, element_bits) | src_offset | dst_offset;
    runs->src_offset = src_offset / 8;
    runs->dst_offset = dst_offset / 8;
    runs->n_levels = is_empty ? 0 : n;
    runs->n_runs = is_empty ? 0 : runs->n_runs;
    return is_empty || odd_bits % 8 == 0;
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
