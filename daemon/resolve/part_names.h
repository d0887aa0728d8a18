/* What the names of a folder's files say where no index says which of them are a checkpoint: which of them are another variant of
 * the same weights, which are one of several ranks', and whether files that say how many they are are all there. Pure; any bytes
 * are a name.
 *
 *     model-00002-of-00003.safetensors                  the second of a set of three; counted from one or from zero
 *     model.fp16.safetensors                            a variant of model.safetensors
 *     model.fp16-00001-of-00002.safetensors             of a variant in two files; older: model-00001-of-00002.fp16.safetensors
 *     model-rank-1-part-0.safetensors                   what rank 1 of vLLM's sharded_state holds */
#ifndef RESOLVE_PART_NAMES_H
#define RESOLVE_PART_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Puts variants whose file or complete set without a variant is in the list behind all others. Returns how many those are. */
size_t part_names_drop_variants(const char **names, size_t n_names);

/* The first file that a set lacks, malloced; NULL = every set is complete. Of sets in the order of their first names. */
char *part_names_find_gap(const char *const *names, size_t n_names);
/* Whether a set that says how many it is is complete. */
bool part_names_have_set(const char *const *names, size_t n_names);
/* Leaves the one set that is complete, in place. Returns how many files that are; 0 = none is, or two are: nothing has changed. */
size_t part_names_keep_set(const char **names, size_t n_names);

/* How many ranks have files of their own. *first (borrowed) is a file of the first; *have_parts: a rank has more than one. */
uint32_t part_names_count_ranks(const char *const *names, size_t n_names, const char **first, bool *have_parts);

#endif
