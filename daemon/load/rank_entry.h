/* The entry of a rank in the membership service, by which ranks of one group on several hosts know of each other: key
 * groups/GROUP/ranks/RANK, value a JSON object. GROUP and whatever a user has named are digests: nothing can be read out of an
 * entry but who waits where, and for how much. Pure; any thread.
 *
 *     {"host": "h1", "incarnation": "...", "load": "...", "world_size": 4, "reference": "...", "artifact": "...", "policy": "...",
 *      "needs": "0,12"} */
#ifndef LOAD_RANK_ENTRY_H
#define LOAD_RANK_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANK_DIGEST_CHARS = 33, RANK_TEXT_CHARS = 64 };

struct rank_entry {
    char group[RANK_DIGEST_CHARS]; /* of its sharing domain, its owner and its id */
    uint32_t rank, world_size;
    char host[RANK_TEXT_CHARS], incarnation[RANK_TEXT_CHARS], load[RANK_TEXT_CHARS]; /* who has the rank; load: its id */
    char reference[RANK_DIGEST_CHARS], artifact[RANK_DIGEST_CHARS], policy[RANK_DIGEST_CHARS]; /* artifact: its version */
    char *needs;  /* what the rank will read, see rank_needs.h; NULL = it does not say */
    bool is_used; /* the registry's, see there */
};

/* False for what no daemon wrote. Other members are ignored. The caller frees `needs`, which is NULL after false. */
bool rank_entry_parse(const char *key, const char *value, struct rank_entry *entry);
bool rank_entry_parse_key(const char *key, struct rank_entry *entry);
char *rank_entry_key(const struct rank_entry *entry);   /* the caller frees */
char *rank_entry_write(const struct rank_entry *entry); /* the value; the caller frees */

void rank_entry_digest(const char *const *texts, size_t n_texts, char out[RANK_DIGEST_CHARS]);

#endif
