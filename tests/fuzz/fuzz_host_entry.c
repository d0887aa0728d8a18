/* Entries that others put into etcd. Reaches host_entry.c. What is accepted is written and read again as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hosts/host_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 2); /* key NUL value NUL */
    struct host_entry entry, again;
    memcpy(text, data, size);
    if (host_entry_parse(text, text + strlen(text) + 1, &entry)) {
        char *key = host_entry_key(&entry), *value = host_entry_write(&entry);
        if (!host_entry_parse(key, value, &again) || strcmp(again.address, entry.address) != 0)
            abort();
        host_entry_fini(&again);
        free(key);
        free(value);
    }
    host_entry_fini(&entry);
    free(text);
    return 0;
}
