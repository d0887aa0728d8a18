/* The host folders that this daemon has ever written, whose they are, and what they take of the disk.
 *
 * A store belongs to the user who made its first host folder here: nobody else but root and the daemon's own user appends to it,
 * or makes a store within one of its host folders. A store that a member of limits.shared_group made is for all members.
 * Loop thread. */
#ifndef ACTIVATIONS_HOST_TABLE_H
#define ACTIVATIONS_HOST_TABLE_H

#include "activations/host_registry.h"

struct activation_writer;
struct host_table;
struct table_store;

struct table_host {
    struct {
        struct table_store *store;
        uint64_t host;
    } key;
    uint32_t index;                   /* in the table */
    bool is_known;                    /* it was opened, now or before: the registry has it */
    uint64_t bytes;                   /* of the disk */
    struct activation_writer *writer; /* NULL = nobody has it open */
    struct upload_place *place;       /* where it was last opened to be uploaded to; NULL = nowhere */
};

struct host_table *host_table_create(void);
void host_table_destroy(struct host_table *table); /* accepts NULL */

struct table_host *host_table_find(const struct host_table *table, const char *path, uint32_t host); /* NULL when unknown */
struct table_host *host_table_at(const struct host_table *table, size_t index); /* NULL behind the last one */
/* PERMISSION_DENIED (STORE_OF_ANOTHER_USER) when the store is not for this user. */
int host_table_check(const struct host_table *table, const struct known_host *user, struct error *error);
/* Finds it, or adds it for the owner of the store. NULL: RESOURCE_EXHAUSTED, there are too many, or too many of this user;
 * kept_percent 0 = he may have all of them. */
struct table_host *host_table_add(struct host_table *table, const struct known_host *host, unsigned kept_percent,
                                  struct error *error);
void host_table_remove(struct host_table *table, struct table_host *host);
/* As the registry remembers it, without uploads; the path is borrowed. */
struct known_host host_table_known(const struct table_host *host);

void host_table_count(struct host_table *table, struct table_host *host, uint64_t bytes); /* of the disk, from now on */
/* Of the stores of all users, and of one. */
void host_table_bytes(const struct host_table *table, uid_t uid, uint64_t *all, uint64_t *own);

#endif
