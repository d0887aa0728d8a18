/* Trees of commits: a commit never changes, so neither do the names, sizes and digests of its files. Bounded: a commit with
 * more files than are worth keeping is not kept, and the one kept longest goes first. Beside them, whether the hub could be reached.
 * Any thread. */
#ifndef SOURCE_HF_TREES_H
#define SOURCE_HF_TREES_H

#include "source/object_source.h"

enum { HF_TREES_MAX = 32, HF_TREES_MAX_OBJECTS = 2048, HF_HUB_AWAY_S = 60 };

struct hf_trees;

/* Of struct store: a struct hf_trees. */
void *hf_trees_create(struct stores *stores);
void hf_trees_destroy(void *trees);
/* Adds the objects of that tree to the source's table: 1; 0 = it is not known; -1 as object_source_add(). */
int hf_trees_find(struct hf_trees *trees, const char *url, struct object_source *source, struct error *error);
/* Whether the hub could not be reached within the last minute: until then what its cache holds is taken at once. */
bool hf_trees_is_hub_away(const struct hf_trees *trees);
void hf_trees_set_hub_away(struct hf_trees *trees, bool is_away);
void hf_trees_add(struct hf_trees *trees, const char *url, const struct object_source *source); /* copies its table */

#endif
