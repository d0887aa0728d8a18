/* Which transport carries bytes between the ranks of a group: the quickest that this process has and that can serve
 * the group, or the configured one. The formula is in docs/groups.md, "Transports".
 *
 * Pure: what there is and how quick it is arrives as facts; of the transports it looks at names and capabilities only. */
#ifndef PLAN_TRANSPORT_CHOICE_H
#define PLAN_TRANSPORT_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "plan/reason.h"
#include "device/transport.h"

struct plan_facts;

struct transport_supply { /* what this process has, and what the configuration says */
    const struct transport_ops *const *list;
    size_t n;
    enum collective_transport wish;
};

struct transport_demand {                           /* of a group whose joint plan is known */
    uint64_t unique_bytes;                          /* read once for all */
    uint64_t landed_bytes;                          /* in all memories together */
    uint64_t staged_bytes;                          /* of the batches in flight */
    uint64_t peak_budget_bytes, host_staging_bytes; /* for all that is temporary; of it in host memory */
    uint64_t device_room_bytes; /* of the budget of the fullest device, beside what will be loaded into it */
    uint32_t n_memories, n_on_devices, n_devices; /* all; those on devices; distinct devices of these */
};

struct transport_rates { /* bytes per ns = GB/s; 0 = unknown, costs nothing */
    double source, memory, link, peer;
};

struct transport_option {
    const char *name;
    double ms;                /* by the formula, whether it can or not */
    enum reason_kind problem; /* why it cannot serve this group; REASON_ELIGIBLE = it can */
};

struct transport_choice {
    const struct transport_ops *ops; /* NULL: none will do, problem says why */
    struct reason problem;
    bool is_forced;
    uint64_t staging_bytes; /* the most that ops may take on each device, charged to its budget; 0 = it needs none */
    struct transport_option options[TRANSPORT_MAX];
    size_t n_options;
    struct transport_demand demand;
    struct transport_rates rates;
};

/* What one rank sees for itself: the transport that the configuration insists on is not there, or not for its kind of
 * memory. REASON_ELIGIBLE when nothing is wrong. */
struct reason transport_choice_refuse(const struct transport_supply *supply, bool on_device);

struct transport_rates transport_choice_rates(const struct plan_facts *facts);

struct transport_choice transport_choice_make(const struct transport_supply *supply, const struct transport_demand *demand,
                                              const struct transport_rates *rates);

#endif
