#include "resolve/strided.h"

#include "base/checked.h"

static uint32_t sort_in(struct strided_loop *loops, uint32_t n, struct strided_loop loop)
{
    uint32_t at = n;
    for (; at > 0 && loops[at - 1].stride > loop.stride; at--)
        loops[at] = loops[at - 1];
    loops[at] = loop;
    return n + 1;
}

/* Rows that follow each other are one; so are loops. */
static void join(struct strided_box *box, struct strided_loop *loops)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < box->n_loops; i++) {
        if (kept == 0 && loops[i].stride == box->row)
            box->row *= loops[i].size;
        else if (kept > 0 && loops[i].stride == loops[kept - 1].stride * loops[kept - 1].size)
            loops[kept - 1].size *= loops[i].size;
        else
            loops[kept++] = loops[i];
    }
    box->n_loops = kept;
}

struct strided_box strided_make(uint64_t at, uint64_t row, uint32_t rank, const uint64_t *sizes, const int64_t *strides,
                                struct strided_loop *loops)
{
    struct strided_box box = {.lo = at, .row = row, .loops = loops};
    uint64_t reach = 0;
    for (uint32_t i = rank; i-- > 0;) {
        struct strided_loop loop = {sizes[i], checked_magnitude(strides[i])};
        if (loop.size == 1)
            continue;
        reach += (loop.size - 1) * loop.stride;
        box.lo -= strides[i] < 0 ? (loop.size - 1) * loop.stride : 0;
        box.n_loops = sort_in(loops, box.n_loops, loop);
    }
    box.hi = box.lo + reach + row;
    join(&box, loops);
    return box;
}

bool strided_is_nested(const struct strided_box *box)
{
    uint64_t inner = box->row;
    for (uint32_t i = 0; i < box->n_loops; i++) {
        if (box->loops[i].stride < inner)
            return false;
        inner += (box->loops[i].size - 1) * box->loops[i].stride;
    }
    return true;
}

bool strided_repeats(const struct strided_box *box)
{
    for (uint32_t i = 0; i < box->n_loops; i++)
        if (box->loops[i].stride < box->row || (i > 0 && box->loops[i].stride == box->loops[i - 1].stride))
            return true;
    return false;
}
