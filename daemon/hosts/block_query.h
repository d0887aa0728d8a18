/* What one host asks another for, as text: bytes of one block of one version of a file.
 *
 *     /v1/blocks?reference=R&file=F&id=ID&from=INCARNATION[&held=1]                         Range: bytes=A-B, both inclusive
 *     /v1/blocks?reference=R&file=F&id=ID&from=INCARNATION[&held=1]&rows=A-B-PHASE-TAKE-STRIDE    Range: bytes=0-(N-1)
 *
 * The second one names a resource of N bytes, and asks for all of it: what rows of TAKE bytes, one every STRIDE bytes of the file,
 * have between A and B. The first row has begun PHASE bytes before A, the last one may go on behind B:
 *
 *     A            STRIDE              B
 *     |ake|.......|take|.......|take|...|tak|
 *
 * Values are percent-encoded as url_encode() does. Pure; any thread. */
#ifndef HOSTS_BLOCK_QUERY_H
#define HOSTS_BLOCK_QUERY_H

#include "hosts/proof.h"
#include "hosts/shared_block.h"

#define BLOCK_PATH "/v1/blocks"
enum {
    BLOCK_PATH_MAX_CHARS = 12 << 10
};                                 /* with the query: a longer one leaves a data port no room for the rest of the head */
enum { BLOCK_ROWS_MAX = 8 << 10 }; /* of an answer: a buffer each */

struct block_rows {
    uint64_t phase, take, stride; /* phase < take < stride; all 0 = every byte */
};

struct block_query {
    char *reference, *file; /* owned */
    char id[SHARED_ID_CHARS];
    char from[PROOF_NONCE_CHARS]; /* who asks: its incarnation */
    bool only_held;               /* what is not here is not to be read */
    uint64_t lo, hi;              /* of the file, within one block */
    struct block_rows rows;       /* of these bytes; lo and hi - 1 are in one */
};

/* query: what is behind "?", as it was sent; range: the header, or "". False with the reason, static; to be ended by
 * block_query_fini() in any case. */
bool block_query_parse(const char *query, const char *range, struct block_query *parsed, const char **reason);
void block_query_fini(struct block_query *query);
/* How many bytes between lo and hi are in rows, of which the first has begun `phase` bytes before lo. */
uint64_t block_rows_bytes(const struct block_rows *rows, uint64_t lo, uint64_t hi);
/* The path with its query, and the range, both malloced. */
char *block_query_path(const struct block_query *query);
char *block_query_range(const struct block_query *query);

#endif
