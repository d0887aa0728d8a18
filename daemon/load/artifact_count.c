#include "load/artifact_count.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"

static struct row {
    char *reference;
    uint64_t loads;
} rows[ARTIFACT_COUNT_ROWS];
static size_t n_rows;
static struct map names; /* to indexes of rows; made with the first */
static uint64_t other;

/* The one of the least loaded artifact, which goes. */
static struct row *take_row(void)
{
    struct row *least = rows;
    for (size_t i = 1; i < n_rows; i++)
        least = rows[i].loads < least->loads ? &rows[i] : least;
    other += least->loads;
    map_remove(&names, least->reference, strlen(least->reference));
    free(least->reference);
    return least;
}

void artifact_count_add(const char *reference)
{
    size_t length = strlen(reference);
    if (length > ARTIFACT_COUNT_NAME_BYTES) {
        other++;
        return;
    }
    if (n_rows == 0)
        map_init(&names, ARTIFACT_COUNT_ROWS);
    uint32_t index = map_find(&names, reference, length);
    if (index != MAP_NONE) {
        rows[index].loads++;
        return;
    }
    struct row *row = n_rows < ARTIFACT_COUNT_ROWS ? &rows[n_rows++] : take_row();
    *row = (struct row){memory_copy_text(reference), 1};
    map_add(&names, row->reference, length, (uint32_t)(row - rows));
}

struct artifact_counts artifact_count_get(void)
{
    struct artifact_counts counts = {.other = other};
    for (size_t i = 0; i < n_rows; i++) {
        size_t at = counts.n;
        while (at > 0 && counts.busiest[at - 1].loads < rows[i].loads)
            at--;
        if (at == ARTIFACT_COUNT_BUSIEST) {
            counts.other += rows[i].loads;
            continue;
        }
        if (counts.n == ARTIFACT_COUNT_BUSIEST)
            counts.other += counts.busiest[--counts.n].loads;
        memmove(&counts.busiest[at + 1], &counts.busiest[at], (counts.n++ - at) * sizeof counts.busiest[0]);
        counts.busiest[at] = (struct artifact_busy){rows[i].reference, rows[i].loads};
    }
    return counts;
}

void artifact_count_reset(void)
{
    if (n_rows > 0)
        map_fini(&names);
    while (n_rows > 0)
        free(rows[--n_rows].reference);
    other = 0;
}
