/* A folder is whole when it has topology.json, or else an index, and every part that it names, or a single file. Shards of
 * several ranks are not believed to be all there: an index need not name each of them, and nothing else tells how many. */
#include "resolve/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/text.h"
#include "resolve/dcp.h"
#include "resolve/safetensors.h"
#include "resolve/shard_index.h"
#include "resolve/topology.h"
#include "source/source.h"

static bool is_part(const char *name)
{
    return text_ends_with(name, strlen(name), SAFETENSORS_SUFFIX);
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

/* The document, malloced; *n_bytes is what could be read of it. */
static char *read_document(const char *folder, const char *name, uint64_t size_bytes, size_t *n_bytes)
{
    char *path = memory_print("%s/%s", folder, name), *json = memory_alloc(size_bytes + 1);
    FILE *file = fopen(path, "re");
    *n_bytes = file ? fread(json, 1, size_bytes, file) : 0;
    if (file)
        fclose(file);
    free(path);
    return json;
}

/* Whether the document is good and every part that it names is there. */
static bool has_named(const char *folder, const char *name, uint64_t document_bytes)
{
    struct error ignored;
    size_t n_bytes;
    bool is_topology = strcmp(name, TOPOLOGY_NAME) == 0;
    char *json = read_document(folder, name, document_bytes, &n_bytes);
    struct topology *topology = is_topology ? topology_parse(json, n_bytes, &ignored) : NULL;
    struct shard_index *index = is_topology ? NULL : shard_index_parse(json, n_bytes, &ignored);
    const char *const *files = topology ? topology->files : index ? index->files : NULL;
    size_t n_files = topology ? topology->n_files : index ? index->n_files : 0;
    bool has = topology || index;
    for (size_t i = 0; has && i < n_files; i++)
        has = size_of(folder, files[i]) >= 0 && (is_topology || !dcp_is_shard_name(files[i]));
    topology_destroy(topology);
    shard_index_destroy(index);
    free(json);
    return has;
}

static bool is_whole(const char *folder)
{
    int64_t topology_bytes = size_of(folder, TOPOLOGY_NAME);
    if (topology_bytes >= 0)
        return topology_bytes <= TOPOLOGY_MAX_BYTES && has_named(folder, TOPOLOGY_NAME, (uint64_t)topology_bytes);
    for (size_t pair = 0; safetensors_index_names[pair]; pair++) {
        const char *name = safetensors_index_names[pair];
        int64_t index_bytes = size_of(folder, name);
        if (index_bytes >= 0)
            return index_bytes <= SHARD_INDEX_MAX_BYTES && has_named(folder, name, (uint64_t)index_bytes);
        if (size_of(folder, safetensors_single_names[pair]) >= 0)
            return true;
    }
    return false;
}

const struct source_format source_format_safetensors = {is_part, is_whole};
