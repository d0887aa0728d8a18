#include "activations/host_table.h"

#include <stdlib.h>
#include <string.h>

#include "activations/host_registry.h"
#include "base/activation_name.h"
#include "base/map.h"
#include "base/memory.h"

struct row {                /* a host, and its folder, which is its key */
    struct table_host host; /* first */
    char *folder;
};

struct host_table {
    struct map map; /* folder -> index */
    struct row **rows;
    size_t n, capacity;
    uint64_t bytes;
};

struct host_table *host_table_create(void)
{
    struct host_table *table = memory_alloc(sizeof *table);
    map_init(&table->map, 16);
    return table;
}

static void free_row(struct row *row)
{
    free(row->folder);
    free(row->host.path);
    free(row);
}

void host_table_destroy(struct host_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->n; i++)
        free_row(table->rows[i]);
    free(table->rows);
    map_fini(&table->map);
    free(table);
}

static char *folder_of(const char *path, uint32_t host)
{
    char name[ACTIVATION_NAME_CHARS];
    return memory_print("%s/%s", path, activation_host_name(host, name));
}

struct table_host *host_table_find(const struct host_table *table, const char *path, uint32_t host)
{
    char *folder = folder_of(path, host);
    uint32_t index = map_find(&table->map, folder, strlen(folder));
    free(folder);
    return index == MAP_NONE ? NULL : &table->rows[index]->host;
}

struct table_host *host_table_at(const struct host_table *table, size_t index)
{
    return index < table->n ? &table->rows[index]->host : NULL;
}

struct table_host *host_table_add(struct host_table *table, const char *path, uint32_t host, struct error *error)
{
    struct table_host *found = host_table_find(table, path, host);
    if (found)
        return found;
    if (table->n == HOST_REGISTRY_MAX) {
        fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_HOST_FOLDERS",
             "the daemon knows %d host folders of activation stores, which are as many as it remembers; those that are gone "
             "are forgotten when it starts anew",
             HOST_REGISTRY_MAX);
        return NULL;
    }
    struct row *row = memory_alloc(sizeof *row);
    *row = (struct row){.host = {.path = memory_copy_text(path), .host = host, .index = (uint32_t)table->n},
                        .folder = folder_of(path, host)};
    ARRAY_RESERVE(table->rows, table->n, table->capacity);
    table->rows[table->n++] = row;
    map_add(&table->map, row->folder, strlen(row->folder), row->host.index);
    return &row->host;
}

/* The last one takes its place. */
void host_table_remove(struct host_table *table, struct table_host *host)
{
    struct row *row = (struct row *)host, *last = table->rows[--table->n];
    host_table_count(table, host, 0);
    map_remove(&table->map, row->folder, strlen(row->folder));
    if (last != row) {
        map_remove(&table->map, last->folder, strlen(last->folder));
        last->host.index = host->index;
        table->rows[host->index] = last;
        map_add(&table->map, last->folder, strlen(last->folder), host->index);
    }
    free_row(row);
}

void host_table_identify(struct host_table *table, struct table_host *host, struct folder_identity identity)
{
    for (size_t i = 0; i < table->n; i++) {
        struct table_host *other = &table->rows[i]->host;
        if (other != host && other->identity.inode == identity.inode && other->identity.device == identity.device)
            host_table_count(table, other, 0);
    }
    host->identity = identity;
}

void host_table_count(struct host_table *table, struct table_host *host, uint64_t bytes)
{
    table->bytes += bytes - host->bytes;
    host->bytes = bytes;
}

uint64_t host_table_bytes(const struct host_table *table)
{
    return table->bytes;
}
