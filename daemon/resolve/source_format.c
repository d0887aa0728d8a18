/* A folder is whole when it has the index and every part that it names, or model.safetensors. */
#include "resolve/source_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "resolve/safetensors.h"
#include "resolve/shard_index.h"

static bool is_part(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SAFETENSORS_SUFFIX);
    return length >= suffix && strcmp(name + length - suffix, SAFETENSORS_SUFFIX) == 0;
}

/* Its size, or -1 where there is no such file. */
static int64_t size_of(const char *folder, const char *name)
{
    struct stat status;
    char *path = memory_print("%s/%s", folder, name);
    bool is_there = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    free(path);
    return is_there ? (int64_t)status.st_size : -1;
}

/* Whether the index is good and every part it names is there. */
static bool has_parts(const char *folder, uint64_t index_bytes)
{
    struct error ignored;
    char *path = memory_print("%s/" SHARD_INDEX_NAME, folder), *json = memory_alloc(index_bytes + 1);
    FILE *file = fopen(path, "re");
    size_t n_bytes = file ? fread(json, 1, index_bytes, file) : 0;
    struct shard_index *index = shard_index_parse(json, n_bytes, &ignored);
    bool has_all = index;
    for (size_t i = 0; has_all && i < index->n_files; i++)
        has_all = size_of(folder, index->files[i]) >= 0;
    shard_index_destroy(index);
    if (file)
        fclose(file);
    free(json);
    free(path);
    return has_all;
}

static bool is_whole(const char *folder)
{
    int64_t index_bytes = size_of(folder, SHARD_INDEX_NAME);
    if (index_bytes < 0)
        return size_of(folder, SAFETENSORS_SINGLE_NAME) >= 0;
    return index_bytes <= SHARD_INDEX_MAX_BYTES && has_parts(folder, (uint64_t)index_bytes);
}

const struct source_format source_format_safetensors = {is_part, is_whole};
