/* What other hosts ask a data port for. Reaches block_query.c. What is accepted is written and read again as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hosts/block_query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 2); /* query NUL range NUL */
    const char *reason;
    struct block_query query, again;
    memcpy(text, data, size);
    if (block_query_parse(text, text + strlen(text) + 1, &query, &reason)) {
        char *path = block_query_path(&query), *range = block_query_range(&query);
        if (!block_query_parse(strchr(path, '?') + 1, range, &again, &reason) || again.lo != query.lo ||
            again.hi != query.hi || strcmp(again.reference, query.reference) != 0 || strcmp(again.file, query.file) != 0 ||
            strcmp(again.id, query.id) != 0 || strcmp(again.from, query.from) != 0 || again.only_held != query.only_held ||
            query.hi <= query.lo || query.hi - query.lo > SHARED_BLOCK_BYTES ||
            memcmp(&again.rows, &query.rows, sizeof query.rows) != 0 ||
            block_rows_bytes(&query.rows, query.lo, query.hi) - 1 >= query.hi - query.lo)
            abort();
        block_query_fini(&again);
        free(path);
        free(range);
    }
    block_query_fini(&query);
    free(text);
    return 0;
}
