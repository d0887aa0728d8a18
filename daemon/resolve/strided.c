#include "resolve/strided.h"

#include "base/checked.h"

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
        uint32_t place = box.n_loops++;
        for (; place > 0 && loops[place - 1].stride > loop.stride; place--)
            loops[place] = loops[place - 1];
        loops[place] = loop;
    }
    box.hi = box.lo + reach + row;
    uint32_t kept = 0; /* rows that follow each other are one; so are loops */
    for (uint32_t i = 0; i < box.n_loops; i++) {
        if (kept == 0 && loops[i].stride == box.row)
            box.row *= loops[i].size;
        else if (kept > 0 && loops[i].stride == loops[kept - 1].stride * loops[kept - 1].size)
            loops[kept - 1].size *= loops[i].size;
        else
            loops[kept++] = loops[i];
    }
    box.n_loops = kept;
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
