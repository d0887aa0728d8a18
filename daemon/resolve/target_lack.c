/* The element that holds the byte is found stride by stride, the largest first. Then the box grows along one dimension after
 * the other, the one with the smallest stride first; see target_lack.h. */
#include "resolve/target_lack.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "resolve/format.h"

struct lack {
    const struct target *cover;
    bool (*is_written)(void *data, const struct strided_box *box);
    void *data;
    uint64_t at, row;
    uint32_t rank;
    uint32_t order[TENSOR_MAX_RANK]; /* dimensions by the size of their strides, the smallest first */
    uint64_t first[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK];
};

static uint64_t magnitude_of(const struct lack *lack, uint32_t dim)
{
    return checked_magnitude(lack->cover->strides[dim]);
}

static void sort_dims(struct lack *lack)
{
    for (uint32_t i = 0; i < lack->rank; i++) {
        uint32_t at = i;
        for (; at > 0 && magnitude_of(lack, lack->order[at - 1]) > magnitude_of(lack, i); at--)
            lack->order[at] = lack->order[at - 1];
        lack->order[at] = i;
    }
}

static void find_element(struct lack *lack, uint64_t gap)
{
    uint64_t rest = gap - lack->at;
    for (uint32_t i = 0; i < lack->rank; i++)
        if (lack->cover->strides[i] < 0)
            rest += (lack->cover->dims[i] - 1) * magnitude_of(lack, i);
    for (uint32_t n = lack->rank; n-- > 0;) {
        uint32_t dim = lack->order[n];
        uint64_t last = lack->cover->dims[dim] - 1, index = last ? rest / magnitude_of(lack, dim) : 0;
        index = index < last ? index : last;
        rest -= last ? index * magnitude_of(lack, dim) : 0;
        lack->first[dim] = lack->cover->strides[dim] < 0 ? last - index : index;
        lack->size[dim] = 1;
    }
}

static bool can_have(const struct lack *lack, uint32_t dim, uint64_t first, uint64_t size)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    uint64_t sizes[TENSOR_MAX_RANK], at = lack->at;
    for (uint32_t i = 0; i < lack->rank; i++) {
        sizes[i] = i == dim ? size : lack->size[i];
        at += (i == dim ? first : lack->first[i]) * (uint64_t)lack->cover->strides[i];
    }
    const struct strided_box box = strided_make(at, lack->row, lack->rank, sizes, lack->cover->strides, loops);
    return !lack->is_written(lack->data, &box);
}

static bool can_grow(const struct lack *lack, uint32_t dim, bool goes_up, uint64_t more)
{
    uint64_t first = lack->first[dim], size = lack->size[dim];
    uint64_t most = goes_up ? lack->cover->dims[dim] - first - size : first;
    return more <= most && can_have(lack, dim, goes_up ? first : first - more, size + more);
}

/* As many more indexes of a dimension as go, on one side: twice as many until that is refused, then half as many. */
static uint64_t grow(const struct lack *lack, uint32_t dim, bool goes_up)
{
    uint64_t more = 0, step = 1;
    for (; can_grow(lack, dim, goes_up, more + step); step *= 2)
        more += step;
    for (; step; step /= 2)
        more += can_grow(lack, dim, goes_up, more + step) ? step : 0;
    return more;
}

static void write_box(const struct lack *lack, char out[TARGET_LACK_CHARS])
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < lack->cover->rank && used < TARGET_LACK_CHARS; i++) {
        bool is_known = i < lack->rank; /* elements smaller than a byte: a whole row */
        uint64_t first = is_known ? lack->first[i] : 0, size = is_known ? lack->size[i] : lack->cover->dims[i];
        used += (size_t)snprintf(out + used, TARGET_LACK_CHARS - used, "%s%" PRIu64 ":%" PRIu64, i ? ", " : "", first,
                                 first + size);
    }
}

void target_find_lack(const struct target *cover, uint64_t at, uint64_t gap,
                      bool (*is_written)(void *data, const struct strided_box *box), void *data, char out[TARGET_LACK_CHARS])
{
    struct lack lack = {.cover = cover, .is_written = is_written, .data = data, .at = at};
    lack.row = target_row(cover, &lack.rank);
    sort_dims(&lack);
    find_element(&lack, gap);
    for (uint32_t n = 0; n < lack.rank; n++) {
        uint32_t dim = lack.order[n];
        lack.size[dim] += grow(&lack, dim, true);
        uint64_t lower = grow(&lack, dim, false);
        lack.first[dim] -= lower;
        lack.size[dim] += lower;
    }
    write_box(&lack, out);
}
