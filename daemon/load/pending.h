/* Requests in flight, from submit to done: told of their progress ten times a second, and in the log, once, of what they wait
 * for when that takes long. Loop thread only, but for the note, into which helpers write. */
#ifndef LOAD_PENDING_H
#define LOAD_PENDING_H

#include <stdbool.h>

#include "base/waiting.h"
#include "load/load_result.h"

struct load_table;

struct pending { /* embedded in a ticket */
    struct pending *next, **link;
    struct waiting waiting; /* of what is done for this request alone: resolving, planning, its group */
    void (*tell)(struct pending *pending);
    uint64_t waits_since_ns; /* 0 = it does not */
    bool is_logged;
};

void pending_init(struct pending *pending, void (*tell)(struct pending *pending));
void pending_fini(struct pending *pending);
void pending_add(struct load_table *table, struct pending *pending);
void pending_remove(struct load_table *table, struct pending *pending); /* or nothing, when it was not added */
/* The line load_waiting, when `info` has waited for long. */
void pending_log(struct pending *pending, const struct load_info *info, const struct load_result *result);

/* For load_table.c: the timer's. */
void pending_tell_all(void *table);

#endif
