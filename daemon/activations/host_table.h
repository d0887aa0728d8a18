/* The host folders that this daemon writes, or has written, their writers, and their disk space. Loop thread. */
#ifndef ACTIVATIONS_HOST_TABLE_H
#define ACTIVATIONS_HOST_TABLE_H

#include "activations/store_path.h"
#include "base/loop.h"

struct activation_writer;
struct host_table;

struct table_host { /* as long as the table */
    char *path;     /* of the store */
    uint32_t host;
    bool is_known;                    /* it was opened, now or before: the registry has it */
    uint64_t bytes;                   /* of the disk */
    struct activation_writer *writer; /* NULL = none has it open */
};

struct host_table *host_table_create(struct loop *loop);
void host_table_destroy(struct host_table *table); /* after the loop */

struct table_host *host_table_at(const struct host_table *table, size_t index);               /* NULL behind the last one */
struct table_host *host_table_add(struct host_table *table, const char *path, uint32_t host); /* or finds it */
void host_table_count(struct host_table *table, struct table_host *host, uint64_t bytes);     /* of the disk, from now on */
uint64_t host_table_bytes(const struct host_table *table);                                    /* of all of them */
/* Begins to count what folders without a writer take now: uploads remove files from them, users remove or move them away. Nothing
 * while that is under way, and for a moment after it. */
void host_table_measure(struct host_table *table, const struct store_roots *roots);

#endif
