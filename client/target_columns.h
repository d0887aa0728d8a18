/* From the caller's list of targets to the columns of the protocol's message Targets. Pure. */
#ifndef CLIENT_TARGET_COLUMNS_H
#define CLIENT_TARGET_COLUMNS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct target_columns {                       /* all in the arena, or borrowed from the caller */
    struct tc_view view;                      /* what is to be loaded */
    const struct tc_target **tensors;         /* the target of each of its items */
    Tensorcast__Daemon__V1__Targets *message; /* without tokens */
    const struct tc_region **regions;         /* message->n_regions, in the order in which tokens belong */
};

/* view NULL: the tensors that targets without a value name, whole. INVALID_ARGUMENT for names that are missing or come twice,
 * unknown dtypes, too many dimensions, no region. What is right by itself but not in its region, or against the tensor, is
 * the daemon's to say. */
int target_columns_build(const struct tc_view *view, const struct tc_targets *targets, struct arena *arena,
                         struct target_columns *columns, struct error *error);

#endif
