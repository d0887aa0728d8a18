/* Other hosts as holders of blocks (blocks/blocks.h): a want for bytes of a shared file is cut at the borders of blocks; what
 * this host owns is read through its block cache, the rest is asked of the owners, of each exactly the ranges that are wanted.
 *
 *     owner answers                 verified, in place
 *     it reads still                asked again, until it is late
 *     late, gone, or wrong bytes    the next host in the election owns the block for a while (10 s, doubling); wrong ones are asked
 *                                   for again, into memory that no client can write to
 *     it may not read the reference the next host does, for this reference, for a minute
 *
 * So hosts that lose an owner agree on the next one, and the last in line is this host itself, which reads the source. */
#ifndef HOSTS_PEERS_H
#define HOSTS_PEERS_H

#include "blocks/blocks.h"
#include "hosts/block_cache.h"
#include "hosts/host_settings.h"
#include "hosts/proof.h"

struct http_engine;
struct peers;
struct peer_host { /* a live one of this domain; copied */
    const char *name, *incarnation, *address;
};

/* cache and settings are borrowed; engine: for requests to peers. */
struct peers *peers_create(const struct host_settings *settings, const char *own_incarnation, struct http_engine *engine,
                           struct block_cache *cache);
/* This host leaves: it reads nothing more ahead, and what it reads so ends. Wants go on. Any thread; accepts NULL. */
void peers_stop(struct peers *peers);
void peers_destroy(struct peers *peers); /* no want may be in it; accepts NULL */

/* Who is alive from now on, without this host. What is known of hosts that stay is kept. Loop thread. */
void peers_set(struct peers *peers, const struct peer_host *hosts, size_t n);
size_t peers_alive(struct peers *peers); /* with this host; any thread */

/* Any thread. Lives as long as the peers. */
struct block_holder *peers_holder(struct peers *peers);
/* A request of that host was answered with so many bytes. Any thread. */
void peers_count_out(struct peers *peers, const char *incarnation, uint64_t bytes);
struct peer_traffic {
    uint64_t in_bytes, out_bytes, late, wrong;
};
struct peer_traffic peers_traffic(struct peers *peers, const char *incarnation); /* of a live one, since it is; else 0 */
/* A host that gave no answer since it was last told here; false = none. Any thread. */
bool peers_take_unanswered(struct peers *peers, char incarnation[PROOF_NONCE_CHARS]);
/* From another host to this one, at its best of late: GB/s; 0 = not known yet. Any thread. */
double peers_bytes_per_ns(struct peers *peers);

#endif
