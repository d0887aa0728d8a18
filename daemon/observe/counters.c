#include "observe/counters.h"

#include <stdbool.h>
#include <string.h>

#define ROW(id, name, label, value, unit, help) {name, label, value, unit, help},
const struct counters_row counters_rows[COUNTERS_N] = {COUNTERS(ROW)};

static uint64_t counted[COUNTERS_N]; /* atomic */

void counters_add(enum counter counter, uint64_t n)
{
    __atomic_fetch_add(&counted[counter], n, __ATOMIC_RELAXED);
}

uint64_t counters_get(enum counter counter)
{
    return __atomic_load_n(&counted[counter], __ATOMIC_RELAXED);
}

static bool is_of_family(enum counter first, enum counter counter)
{
    return counter < COUNTERS_N && strcmp(counters_rows[counter].name, counters_rows[first].name) == 0;
}

enum counter counters_find(enum counter first, const char *value)
{
    while (strcmp(counters_rows[first].value, value) != 0 && is_of_family(first, first + 1))
        first++;
    return first;
}

uint64_t counters_sum(enum counter first)
{
    uint64_t sum = 0;
    for (enum counter counter = first; is_of_family(first, counter); counter++)
        sum += counters_get(counter);
    return sum;
}
