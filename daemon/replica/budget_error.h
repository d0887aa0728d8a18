/* The error of a budget that has no room: needed, available, and who has the rest. Pure; any thread. */
#ifndef REPLICA_BUDGET_ERROR_H
#define REPLICA_BUDGET_ERROR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "replica/replica.h"

struct budget_numbers {
    enum replica_memory memory;
    uint64_t budget_bytes, available_bytes;
    uint64_t most_bytes;   /* that this user may ever have */
    uint64_t held_bytes;   /* of leased and pinned replicas */
    uint64_t pinned_bytes; /* of them */
    uint64_t loading_bytes, kept_bytes;
    bool is_for_others; /* what there is is kept for other users */
    const struct holders *holders;
};

/* RESOURCE_EXHAUSTED; returns -1. */
int budget_error_fail(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error);

#endif
