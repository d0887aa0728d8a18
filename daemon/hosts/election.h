/* Who is asked for a block, and for how long: the rules of peers.c without its threads and connections, which the simulation of
 * many hosts follows too. Plain values; any thread, one at a time. */
#ifndef HOSTS_ELECTION_H
#define HOSTS_ELECTION_H

#include "hosts/shared_block.h"

/* What is known of another host as an owner. A host that is late owns nothing for a while, twice as long each time. */
struct lateness {
    uint64_t until_ns, pause_ns;   /* it is late until then */
    uint64_t mean_ns;              /* that its answers take (a moving mean) */
    uint64_t slow_since_ns;        /* since then all answers were slow; 0 = the last one was not ... */
    uint64_t slow_last_ns;         /* ... else when that came */
    unsigned n_good, n_slow_reads; /* answers since it was late; in a row */
};
bool lateness_is_on(const struct lateness *lateness, uint64_t now_ns);
/* It gave no answer to a request that began then, or a wrong one: it is late at once. Requests side by side are late together,
 * and count once. True: it is news. */
bool lateness_mark(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns);
/* It still reads what others wait for: late the third time in a row. */
bool lateness_add_slow_read(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns);
/* It answered, so long after it was asked; beyond slow_ns that is too slow, 0 = that is not known. Late when all answers are too
 * slow for a while, at least a second: what stood still for a moment answers many requests late, and then none. A pause as long
 * without an ask ends the while. True: it is news. */
bool lateness_add_answer(struct lateness *lateness, uint64_t took_ns, uint64_t slow_ns, uint64_t now_ns);
/* What is too slow for an answer, where this host takes so long for a block of its own and other hosts' answers take so long on
 * average; 0 = not known. While the store is the limit, own reads take long, as all do: hence other hosts tell what is usual. Yet no
 * answer is too slow that comes within one and a half of this host's own reads: an owner that does not load the model itself begins
 * to read when it is asked. */
uint64_t election_slow_ns(uint64_t own_read_ns, uint64_t others_ns);

/* How long an owner that says "it is being read" is waited for, where this host takes so long for a block of its own (0 = it
 * has read none): what is slow for all is not late. At most a minute: a store that hangs here says nothing of others. */
uint64_t election_patience_ns(uint64_t own_read_ns);
/* What quick answers take, after one more; 0 = none came yet. */
uint64_t election_quick_ns(uint64_t quick_ns, uint64_t took_ns);

/* Whether a host asks the next one in line for a block before it reads its own: where that costs much, others may have been
 * served by the next one already. */
bool election_asks_next(uint64_t own_read_ns);

/* The host with the highest score of those that are not out: an index, n = none is left. */
size_t election_winner(const struct shared_file *file, uint64_t block, const uint64_t *host_hashes, size_t n,
                       bool (*is_out)(void *data, size_t host), void *data);

/* When a host asks for the n-th (from 0) of an owner's blocks that it needs, compared with those of other owners: all hosts
 * follow the order of the file, in which owners read, and each asks the owners in another order. Never 0. */
uint64_t election_turn(uint64_t own_hash, uint64_t owner_hash, uint32_t nth);

#endif
