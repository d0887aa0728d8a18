#include "activations/sample_set.h"

#include "base/metadata.h"

enum { WORD_BITS = 64 };

bool sample_set_has(const struct sample_set *set, uint32_t sample)
{
    const uint64_t *page = set->pages[sample / SAMPLE_SET_PAGE_BITS];
    uint32_t bit = sample % SAMPLE_SET_PAGE_BITS;
    return page && page[bit / WORD_BITS] >> bit % WORD_BITS & 1;
}

int sample_set_add(struct sample_set *set, uint32_t sample, struct error *error)
{
    uint64_t **page = &set->pages[sample / SAMPLE_SET_PAGE_BITS];
    uint32_t bit = sample % SAMPLE_SET_PAGE_BITS;
    if (sample_set_has(set, sample))
        return 0;
    if (!*page)
        *page = metadata_alloc(SAMPLE_SET_PAGE_BITS / 8, error);
    if (!*page)
        return -1;
    (*page)[bit / WORD_BITS] |= (uint64_t)1 << bit % WORD_BITS;
    set->before = set->highest;
    set->highest = set->n_samples && set->highest > sample ? set->highest : sample;
    set->n_samples++;
    return 0;
}

void sample_set_remove(struct sample_set *set, uint32_t sample)
{
    uint32_t bit = sample % SAMPLE_SET_PAGE_BITS;
    set->pages[sample / SAMPLE_SET_PAGE_BITS][bit / WORD_BITS] &= ~((uint64_t)1 << bit % WORD_BITS);
    set->highest = set->before;
    set->n_samples--;
}

void sample_set_fini(struct sample_set *set)
{
    for (int i = 0; i < SAMPLE_SET_PAGES; i++)
        metadata_free(set->pages[i]);
    *set = (struct sample_set){0};
}
