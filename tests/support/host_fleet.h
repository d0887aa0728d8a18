/* Hosts in one process that share files of "shared:" (support/source_shared.h): each has a loop, a cache, a block server, a data port
 * and peers of its own, and asks the others over loopback with a cluster key. Host i reads and opens as user i + 1. */
#ifndef SUPPORT_HOST_FLEET_H
#define SUPPORT_HOST_FLEET_H

#include "blocks/blocks.h"
#include "hosts/data_port.h"
#include "hosts/peers.h"
#include "hosts/proof.h"

enum { FLEET_MAX = 8, FLEET_STRANGER = FLEET_MAX };

struct fleet_host {
    struct host_settings settings;
    char incarnation[PROOF_NONCE_CHARS], address[32];
    struct data_port_identity identity;
    uint64_t room_bytes; /* atomic: of its cache */
    uid_t uid;
    struct loop *loop;
    struct block_cache *cache;
    struct block_server *server;
    struct data_port *port; /* NULL = it has died */
    struct http_engine *engine;
    struct peers *peers;
    struct source *source; /* "shared:model" with one file */
    uint64_t asked_bytes;  /* atomic: that its data port gave others */
};
extern struct fleet_host fleet[FLEET_MAX];

void fleet_start(size_t n); /* each host knows all others */
void fleet_stop(void);
void fleet_kill(size_t host); /* its data port, while others go on to ask it */
/* Whom a host knows from now on: those of the fleet whose bit is set, and a stranger at that address; NULL = none. */
void fleet_meet(size_t host, uint32_t others, const char *stranger);

struct fleet_count { /* what a want's holders said */
    struct block_count count;
    uint64_t bytes[BLOCK_N_WAYS];
};
/* Of the host's file, by its peers. */
struct block_want fleet_want(size_t host, uint64_t offset, const struct iovec *iov, int n_iov, struct fleet_count *count);
/* Where hosts of the fleet, or a host of it that knows only the stranger, agree that this one owns the block: its index, at or
 * after `from`. */
uint64_t fleet_block_of(size_t owner, uint64_t from);
struct peer_traffic fleet_traffic(size_t host, size_t of);

#endif
