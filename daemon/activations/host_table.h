/* The host folders that this daemon knows, their writers, and their disk space. Loop thread. */
#ifndef ACTIVATIONS_HOST_TABLE_H
#define ACTIVATIONS_HOST_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activations/host_folder.h"

struct activation_writer;
struct host_table;

struct table_host {
    char *path; /* of the store */
    uint32_t host;
    uint32_t index;                   /* in the table */
    bool is_known;                    /* it was opened, now or before: the registry has it */
    struct folder_identity identity;  /* when it was last opened */
    uint64_t bytes;                   /* of the disk */
    struct activation_writer *writer; /* NULL = nobody has it open */
};

struct host_table *host_table_create(void);
void host_table_destroy(struct host_table *table); /* accepts NULL */

struct table_host *host_table_find(const struct host_table *table, const char *path, uint32_t host); /* NULL when unknown */
struct table_host *host_table_at(const struct host_table *table, size_t index); /* NULL behind the last one */
/* Finds it, or adds it. NULL: RESOURCE_EXHAUSTED, there are too many. */
struct table_host *host_table_add(struct host_table *table, const char *path, uint32_t host, struct error *error);
void host_table_remove(struct host_table *table, struct table_host *host);

/* It was opened: a folder that was known by another path takes nothing twice. */
void host_table_identify(struct host_table *table, struct table_host *host, struct folder_identity identity);
void host_table_count(struct host_table *table, struct table_host *host, uint64_t bytes); /* of the disk, from now on */
uint64_t host_table_bytes(const struct host_table *table);                                /* of all of them */

#endif
