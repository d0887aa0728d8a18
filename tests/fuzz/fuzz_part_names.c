/* Names of files, one a line. What a list is cut to is some of it, a complete set has no gap, and a file that is missing is none of
 * the list and makes the gap go away or move on. Reaches part_names.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "resolve/part_names.h"

enum { MOST_NAMES = 64 };

static void check(int truth)
{
    if (!truth)
        abort();
}

static int has(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

static void check_gap(const char *const *names, size_t n)
{
    const char *more[MOST_NAMES + 1];
    char *gap = part_names_find_gap(names, n);
    if (!gap)
        return;
    check(!has(names, n, gap));
    memcpy(more, names, n * sizeof *names);
    more[n] = gap;
    char *next = part_names_find_gap(more, n + 1);
    check(!next || strcmp(next, gap) != 0);
    free(next);
    free(gap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *names[MOST_NAMES], *all[MOST_NAMES], *first;
    char *text = memory_alloc(size + 1), *rest = NULL;
    size_t n = 0;
    bool have_parts;
    memcpy(text, data, size);
    for (char *name = strtok_r(text, "\n", &rest); name && n < MOST_NAMES; name = strtok_r(NULL, "\n", &rest))
        if (!has(names, n, name))
            names[n++] = name;
    memcpy(all, names, n * sizeof *names);
    check_gap(names, n);
    uint32_t n_ranks = part_names_count_ranks(names, n, &first, &have_parts);
    check(n_ranks <= n && !first == !n_ranks && (!first || has(names, n, first)));
    size_t n_kept = part_names_drop_variants(names, n);
    check(n_kept <= n && (n_kept || !n));
    for (size_t i = 0; i < n; i++)
        check(has(names, n, all[i]));
    bool have_set = part_names_have_set(names, n_kept);
    size_t n_set = part_names_keep_set(names, n_kept);
    check(n_set <= n_kept && (!n_set || have_set));
    char *gap = n_set ? part_names_find_gap(names, n_set) : NULL;
    check(!gap);
    free(text);
    return 0;
}
