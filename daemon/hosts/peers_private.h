/* Shared by peers.c (which hosts there are, and what is known of each), peer_want.c (a want, cut into spans) and peer_ask.c (one
 * request to one host). */
#ifndef HOSTS_PEERS_PRIVATE_H
#define HOSTS_PEERS_PRIVATE_H

#include <pthread.h>

#include "hosts/block_query.h"
#include "hosts/election.h"
#include "hosts/peers.h"

enum {
    PEERS_MAX_OWNERS = 4, /* that are tried for a block, one after the other; then the source is read */
    PEERS_DECLINES = 32,  /* references that a host may not read: the last ones */
};

struct peer { /* const but for what the lock guards */
    char *name, *incarnation, *address;
    uint64_t hash;
    uint64_t lost_ns; /* atomic: when it was last found to give no answer */
    uint64_t late_ns; /* atomic: when it was last found to be too slow */
    int references;   /* under the lock, as is all that follows */
    struct lateness lateness;
    struct decline {
        uint64_t reference_hash, until_ns;
    } declines[PEERS_DECLINES]; /* by the hash */
    struct peer_traffic traffic;
    bool is_unanswered; /* since peers_take_unanswered() */
};

struct peer_set { /* const; this host is the last of `hashes` and not in `list` */
    int references;
    size_t n;
    struct peer **list;
    uint64_t *hashes;
};

struct peers {
    struct block_holder holder;
    const struct host_settings *settings;
    const char *own_incarnation;
    struct http_engine *engine;
    struct block_cache *cache;
    bool is_stopped;      /* atomic: nothing is read ahead any more */
    pthread_mutex_t lock; /* guards what follows */
    struct peer_set *set;
    uint64_t quick_ns; /* what a whole block takes from a host that has it */
};

/* In peer_want.c a want comes in, and is cut into spans that have one owner each. */
extern const struct block_holder peer_want_holder;

struct peer_want { /* const while its spans are got */
    struct peers *peers;
    const struct peer_set *set;
    struct block_want *of;
    struct shared_file file;
    uint64_t reference_hash;
    struct iovec *all, *wanted; /* room for one span at a time, ... */
    unsigned char *trash;       /* ... and for the gaps of a block */
};

struct peer_buffers { /* no base is NULL */
    struct iovec *iov;
    int n;
};

struct peer_span { /* bytes of one block, and where they go; const once it is built */
    const struct peer_want *want;
    uint64_t lo, hi;
    struct block_rows rows;          /* what an owner is asked for; all 0 = for all */
    struct peer_buffers all, wanted; /* of lo to hi, gaps are in the trash; of what an owner is asked for */
    uint64_t wanted_bytes;
};

/* In peers.c the owner is chosen ... */
struct peer_set *peers_take_set(struct peers *peers);
void peers_give_set(struct peers *peers, struct peer_set *set);

struct peer_search { /* for the owner of a block */
    const struct peer_want *want;
    size_t tried[PEERS_MAX_OWNERS], n_tried;
    bool is_own_out;  /* another host is looked for ... */
    bool allows_late; /* ... and none is passed over for being late */
    bool is_hedged;   /* an owner is late, or gave no bytes */
};
/* Of the block with this byte. The set's n = this host; n + 1 = none. */
size_t peers_choose(struct peer_search *search, uint64_t offset);

/* ... in peer_ask.c it is asked ... */
enum peer_outcome {
    PEER_GAVE_BYTES,
    PEER_STILL_READS,
    PEER_TOO_LATE,
    PEER_MAY_NOT_READ,
    PEER_NO_ANSWER,
    PEER_WRONG_BYTES,
    PEER_PASSED_OVER, /* meanwhile it was found to be late, or a connection to it came too late */
    PEER_GIVEN_UP     /* the want is cancelled */
};

struct peer_ask {
    const struct peer_span *span;
    struct peer *peer;
    bool only_held;              /* what is not there is not to be read */
    uint64_t began_ns, until_ns; /* as clock_now_ns(): when the host was asked first, when it is too late */
    uint64_t head_ns;            /* out: when the answer's head came */
    bool was_read;               /* out: the host read for this, perhaps before this answer */
};
enum peer_outcome peer_ask(struct peer_ask *ask, struct error *error);

/* ... and in peers.c the outcome is noted, for the next choice. */
void peers_note(const struct peer_ask *ask, enum peer_outcome outcome, const struct error *error);

#endif
