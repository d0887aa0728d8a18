/* Entries that others put into etcd. Reaches rank_entry.c and rank_needs.c. What is accepted is written and read again as the same, and
 * needs no more than what there is. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hosts/shared_block.h"
#include "load/rank_entry.h"
#include "load/rank_needs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of files of three blocks. */
static void use_needs(const char *text)
{
    struct source_file files[2] = {{.size_bytes = SHARED_BLOCK_BYTES + 1}, {.size_bytes = SHARED_BLOCK_BYTES}};
    const struct source source = {.files = files, .n_files = 2};
    struct rank_needs needs;
    if (!rank_needs_init(&needs, &source) || needs.n_blocks != 3)
        abort();
    rank_needs_add_text(&needs, text);
    char *again = rank_needs_write(&needs);
    if (again && !rank_needs_is_good(again))
        abort();
    free(again);
    rank_needs_fini(&needs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 2); /* key NUL value NUL */
    struct rank_entry entry, again;
    memcpy(text, data, size);
    if (rank_entry_parse(text, text + strlen(text) + 1, &entry)) {
        char *key = rank_entry_key(&entry), *value = rank_entry_write(&entry);
        if (strcmp(key, text) != 0 || !rank_entry_parse(key, value, &again) || strcmp(again.host, entry.host) != 0 ||
            strcmp(entry.needs ? entry.needs : "", again.needs ? again.needs : "") != 0)
            abort();
        if (entry.needs)
            use_needs(entry.needs);
        free(entry.needs);
        free(again.needs);
        free(key);
        free(value);
    }
    free(text);
    return 0;
}
