#include "activations/host_table.h"

#include <stdlib.h>
#include <string.h>

#include "activations/host_folder.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/memory.h"

enum { PAUSE_MS = 200 };

struct row {
    struct table_host host; /* first */
    char *folder;           /* its key */
};

struct host_table {
    struct loop *loop;
    struct map map; /* folder -> index */
    struct row **rows;
    size_t n, capacity;
    uint64_t bytes;
    uint64_t measure_ns; /* not before */
    bool is_measuring;
};

struct host_table *host_table_create(struct loop *loop)
{
    struct host_table *table = memory_alloc(sizeof *table);
    table->loop = loop;
    map_init(&table->map, 16);
    return table;
}

void host_table_destroy(struct host_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        free(table->rows[i]->folder);
        free(table->rows[i]->host.path);
        free(table->rows[i]);
    }
    free(table->rows);
    map_fini(&table->map);
    free(table);
}

struct table_host *host_table_at(const struct host_table *table, size_t index)
{
    return index < table->n ? &table->rows[index]->host : NULL;
}

struct table_host *host_table_add(struct host_table *table, const char *path, uint32_t host)
{
    char name[ACTIVATION_NAME_CHARS], *folder = memory_print("%s/%s", path, activation_host_name(host, name));
    uint32_t index = map_add(&table->map, folder, strlen(folder), (uint32_t)table->n);
    if (index != MAP_NONE) {
        free(folder);
        return &table->rows[index]->host;
    }
    struct row *row = memory_alloc(sizeof *row);
    *row = (struct row){{.path = memory_copy_text(path), .host = host}, folder};
    ARRAY_RESERVE(table->rows, table->n, table->capacity);
    table->rows[table->n++] = row;
    return &row->host;
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

/* A disk that does not answer keeps it from ending while the table goes, so the helper sees nothing of that. */
struct measurement {
    struct loop_work work; /* first */
    struct host_table *table;
    struct store_roots roots;
    struct measured_host {
        char *path;
        uint32_t host;
        size_t index; /* of its row */
        uint64_t bytes;
    } * hosts;
    size_t n_hosts;
};

static void measure_folders(struct loop_work *work)
{
    const struct measurement *measurement = (const struct measurement *)work;
    for (size_t i = 0; i < measurement->n_hosts; i++) {
        struct measured_host *host = &measurement->hosts[i];
        host_folder_measure(&measurement->roots, host->path, host->host, &host->bytes);
    }
}

static void on_measured(struct loop_work *work)
{
    struct measurement *measurement = (struct measurement *)work;
    struct host_table *table = measurement->table;
    for (size_t i = 0; i < measurement->n_hosts; i++) {
        const struct measured_host *measured = &measurement->hosts[i];
        struct table_host *host = &table->rows[measured->index]->host;
        if (!host->writer)
            host_table_count(table, host, measured->bytes);
        free(measured->path);
    }
    free(measurement->hosts);
    free(measurement);
    table->measure_ns = clock_now_ns() + PAUSE_MS * NS_PER_MS;
    table->is_measuring = false;
}

void host_table_measure(struct host_table *table, const struct store_roots *roots)
{
    if (table->is_measuring || clock_now_ns() < table->measure_ns)
        return;
    struct measurement *measurement = memory_alloc(sizeof *measurement);
    size_t capacity = 0;
    *measurement = (struct measurement){
        .work = {.do_work = measure_folders, .done = on_measured, .pool = LOOP_DISK}, .table = table, .roots = *roots};
    for (size_t i = 0; i < table->n; i++) {
        const struct table_host *host = &table->rows[i]->host;
        if (!host->bytes || host->writer)
            continue;
        ARRAY_RESERVE(measurement->hosts, measurement->n_hosts, capacity);
        measurement->hosts[measurement->n_hosts++] =
            (struct measured_host){memory_copy_text(host->path), host->host, i, host->bytes};
    }
    table->is_measuring = true;
    loop_continue(table->loop, &measurement->work);
}
