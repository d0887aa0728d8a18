/* model.safetensors.index.json as input. What is accepted names files below the folder, sorted and each once, and sends every
 * tensor to one of them. Reaches shard_index.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/shard_index.h"

static void check(int truth)
{
    if (!truth)
        abort();
}

static void check_index(const struct shard_index *index)
{
    check(index->n_entries > 0 && index->n_files > 0);
    for (size_t i = 0; i < index->n_files; i++) {
        check(index->files[i][0] && index->files[i][0] != '.' && index->files[i][0] != '/' &&
              !strstr(index->files[i], "/.") && !strstr(index->files[i], "//"));
        check(!i || strcmp(index->files[i - 1], index->files[i]) < 0);
    }
    for (size_t i = 0; i < index->n_entries; i++)
        check(index->entries[i].file < index->n_files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    struct shard_index *index = shard_index_parse((const char *)data, size, &error);
    if (index)
        check_index(index);
    else
        check(error.code == ERROR_DATA_LOSS && error.message[0]);
    shard_index_destroy(index);
    return 0;
}
