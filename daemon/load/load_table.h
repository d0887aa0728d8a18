/* All loads in flight, for their clients' progress bars, for status and for the end of the daemon. Loop thread only. */
#ifndef LOAD_TABLE_H
#define LOAD_TABLE_H

#include <stdbool.h>

#include "load/load_result.h"
#include "load/load_services.h"

struct load_table;

struct load_table *load_table_create(const struct load_services *services); /* borrows */
void load_table_destroy(struct load_table *table);                          /* no ticket may be left; accepts NULL */

void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data);
struct load_totals { /* since the table was created; see TotalsStatus */
    uint64_t loads, resident;
    uint64_t failed, cancelled, refused; /* the latter two are counted in failed as well */
    uint64_t delivered_bytes, read_bytes;
};
/* A request for a replica has ended. */
void load_table_count(struct load_table *table, const struct load_result *result, const struct error *error);
struct load_totals load_table_totals(const struct load_table *table);
/* Gives back a joint plan that is only kept for the next group; any thread. False: there was none. */
bool load_table_forget_plan(struct load_table *table);
bool load_table_idle(const struct load_table *table);

#endif
