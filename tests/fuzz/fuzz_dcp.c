/* The sharding information of a DCP shard and, behind the first NUL, names of files, one a line. Every entry that is accepted is
 * found by its name; what is missing is ascending and not larger than the highest number. Reaches dcp.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "resolve/dcp.h"

enum { MAX_NAMES = 64 };

static void check(int truth)
{
    if (!truth)
        abort();
}

static void check_info(struct dcp_info *info)
{
    struct error error;
    for (size_t i = info->n_entries; i-- > 0;) {
        const struct dcp_entry *entry = &info->entries[i], *found;
        check(entry->rank <= TENSOR_MAX_RANK);
        if (dcp_info_find(info, entry->name, entry->name_length, &found, &error) < 0)
            check(error.code == ERROR_DATA_LOSS); /* a name occurs twice */
        else
            check(found && found->name_length == entry->name_length &&
                  !memcmp(found->name, entry->name, found->name_length));
    }
    check(dcp_info_end(info, &error) == 0 || error.code == ERROR_DATA_LOSS);
}

static void check_names(char *names)
{
    const char *list[MAX_NAMES];
    size_t n = 0, n_between;
    struct artifact_layout layout;
    struct error error;
    char *rest = NULL;
    for (char *name = strtok_r(names, "\n", &rest); name && n < MAX_NAMES; name = strtok_r(NULL, "\n", &rest))
        list[n++] = name;
    if (dcp_read_numbers(list, n, &layout, &error) == 0) {
        check(layout.world_size > 0 && layout.world_size <= DCP_MAX_NUMBER);
        for (size_t i = 0; i < layout.n_missing_shards; i++)
            check(layout.missing_shards[i] < layout.world_size &&
                  (!i || layout.missing_shards[i - 1] < layout.missing_shards[i]));
        check(!dcp_check_numbers(&layout, &error) == !(layout.n_missing_shards + layout.n_missing_files));
        memory_free(layout.missing_shards);
        memory_free(layout.missing_files);
    }
    char **between = dcp_names_between(list, n, 100, &n_between);
    check(n_between <= 100);
    for (size_t i = 0; i < n_between; i++) {
        check(dcp_is_shard_name(between[i]));
        free(between[i]);
    }
    free(between);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\0', size);
    size_t length = end ? (size_t)(end - data) : size;
    struct error error;
    struct dcp_info *info = dcp_info_parse((const char *)data, length, &error);
    if (info)
        check_info(info);
    else
        check(error.code == ERROR_DATA_LOSS && error.message[0]);
    dcp_info_destroy(info);
    char *names = memory_alloc(size - length + 1);
    if (end)
        memcpy(names, end + 1, size - length - 1);
    check_names(names);
    free(names);
    return 0;
}
