/* Which way the bytes of a load come to this host while other hosts of its domain are alive: from the source alone, or each
 * block by its owner. The formulas are in docs/hosts.md, "Which way".
 *
 * Pure: who is alive, what is shared and how quick it is arrive as facts. Any thread. */
#ifndef PLAN_HOSTS_CHOICE_H
#define PLAN_HOSTS_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/reason.h"

enum hosts_way {
    HOSTS_READ_ALL,     /* each host reads all of the artifact from the source */
    HOSTS_LOCAL_SLICES, /* each host reads what it needs from the source */
    HOSTS_OWNER_PEERS,  /* each host reads the blocks that it owns, and asks the others for the rest of what it needs */
    HOSTS_WAYS
};
extern const char *const hosts_way_names[HOSTS_WAYS];

struct hosts_facts {
    /* Of the hosts. */
    bool is_on;                      /* false: none are configured, and the rest means nothing */
    uint32_t alive;                  /* of this domain, with this host */
    char etcd_problem[REASON_CHARS]; /* why etcd is away; "" = it is not */
    const char *unshared;            /* static: why no host asks others for this source; NULL = it is shared */
    /* Of the load. */
    uint64_t artifact_bytes, needed_bytes, read_bytes; /* needed_bytes: distinct; read_bytes: with gaps, without peers */
    double requests_ns;                                /* what its requests cost beside their bytes */
    double cached_share;                               /* of the needed bytes, in this host's page cache */
    /* Bytes per ns = GB/s; 0 = not known. */
    double source; /* to this host */
    bool is_source_measured;
    double peers;     /* of one answer of another host, measured */
    uint32_t answers; /* that are on their way at once; 0 = 1 */
};

struct hosts_candidate {
    struct reason reason; /* "eligible", or what speaks against it */
    double estimated_ms;  /* 0 = no estimate */
};

struct hosts_choice {
    enum hosts_way way;
    struct reason reason;
    uint32_t alive; /* as in the facts; 0 where hosts are off */
    struct hosts_candidate candidates[HOSTS_WAYS];
};

struct hosts_choice hosts_choose(const struct hosts_facts *facts);

/* From other hosts to this one, bytes per ns: as measured, else assumed. */
double hosts_peers_rate(const struct hosts_facts *facts);

#endif
