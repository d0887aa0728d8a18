/* Which host is asked for a block, and for how long: the rules of peers.c and peer_want.c without threads and connections. The
 * simulation of many hosts uses them, too. Plain values; any thread, one at a time. */
#ifndef HOSTS_ELECTION_H
#define HOSTS_ELECTION_H

#include "hosts/shared_block.h"

/* Another host as an owner. A late host owns nothing for a while, twice as long each time. */
struct lateness {
    uint64_t until_ns, pause_ns;   /* it is late until then */
    uint64_t mean_ns;              /* of its answers (a moving mean) */
    uint64_t slow_since_ns;        /* since then all answers were slow; 0 = the last one was quick */
    uint64_t slow_last_ns;         /* when the last slow one came */
    unsigned n_good, n_slow_reads; /* answers since it was late; in a row */
};
bool lateness_is_on(const struct lateness *lateness, uint64_t now_ns);
/* A request that began then got no answer, or a wrong one: the host is late at once. Concurrent requests count once. True: it is a
 * new mark. */
bool lateness_mark(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns);
/* It answered "being read": late the third time in a row. */
bool lateness_add_slow_read(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns);
/* It answered after took_ns; longer than slow_ns is slow, 0 = not known. A host is late when all answers were slow for a while, at
 * least a second: a host that stood still for a moment answers many requests late, and then none. A pause without requests ends
 * the while. True: it is a new mark. */
bool lateness_add_answer(struct lateness *lateness, uint64_t took_ns, uint64_t slow_ns, uint64_t now_ns);
/* The limit of a slow answer, from the time of this host's own block reads and the mean of other hosts' answers; 0 = not known. When
 * the store is the limit, own reads take long as well, so other hosts tell what is usual. The limit is at least one and a half own
 * reads: an owner that does not load the model itself begins to read when it is asked. */
uint64_t election_slow_ns(uint64_t own_read_ns, uint64_t others_ns);

/* How long to wait for an owner that answers "being read", from the time of own block reads (0 = none): a store that is slow for all
 * makes no host late. At most a minute: a store that hangs here says nothing of others. */
uint64_t election_patience_ns(uint64_t own_read_ns);
/* The time of quick answers, after one more; 0 = none came yet. */
uint64_t election_quick_ns(uint64_t quick_ns, uint64_t took_ns);

/* Whether a host asks the next one in line before it reads a block from the source: where reads cost much, the next one may have it. */
bool election_asks_next(uint64_t own_read_ns);

/* The index of the host with the highest score that is not out; n = none is left. */
size_t election_winner(const struct shared_file *file, uint64_t block, const uint64_t *host_hashes, size_t n,
                       bool (*is_out)(void *data, size_t host), void *data);

/* The turn of the nth block (from 0) that this host needs of an owner, among blocks of all owners. Hosts follow the file's order, in
 * which owners read; each host asks the owners in another order. Never 0. */
uint64_t election_turn(uint64_t own_hash, uint64_t owner_hash, uint32_t nth);

#endif
