/* An algebra of strided index maps: which element of a stored tensor each element of a derived tensor is.
 *
 * A map is a loop nest with a step on each side. Its loops count v[k] from 0, and
 *
 *     derived[dst_start + sum of v[k] * dst_step[k] along dst_dim[k]]
 *          = stored[src_start + sum of v[k] * src_step[k] along src_dim[k]]
 *
 * A box, slice, transpose, reshape, concat, split, stack, rotary permutation or replication of one box is one map, or a few.
 * A shuffle of rows is a loop whose source is looked up in a table. A derived tensor is a list of maps that together give
 * every element once. Each step makes new maps of old ones (functional composition), so that a chain of steps costs nothing
 * when bytes are moved, and a slice of its result reads only its own elements.
 *
 * Within one dimension of either side the loops are digits of a mixed radix: the step of each is more than all smaller ones
 * together can reach. So a range of indexes is at most two boxes of loops per digit (index_clip()).
 *
 * Values. Maps live in the arena of their maker. Pure; any thread. */
#ifndef RESOLVE_INDEX_MAP_H
#define RESOLVE_INDEX_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "resolve/format.h"

/* Loops of more than one value: their sizes multiply to a number of elements, which has 64 bits. */
enum { INDEX_MAX_LOOPS = 64 };
/* Of one variant; more is UNIMPLEMENTED: bounds memory and time against hostile recipes. */
enum { INDEX_MAX_MAPS = 1 << 22 };

struct index_loop {
    uint64_t size;               /* > 1 */
    uint64_t dst_step, src_step; /* in elements along the dimension; src_step 0 = the same elements again */
    uint32_t dst_dim, src_dim;
    const uint32_t *table; /* NULL, or `size` numbers: value v is src_step * table[v] from src_start */
};

struct index_map {
    uint32_t source;    /* the stored tensor */
    uint32_t operation; /* on its elements: an index that the steps here only pass on */
    uint32_t src_rank, n_loops;
    const struct index_loop *loops;
    const uint64_t *dst_start, *src_start; /* a number per dimension */
};

struct index_array { /* a derived tensor */
    uint32_t rank;
    const uint64_t *shape;
    const struct index_map *maps;
    size_t n_maps;
};

struct index_work { /* where steps put what they make */
    struct arena *arena;
    size_t n_maps; /* made so far, of INDEX_MAX_MAPS */
    struct error *error;
};

/* The stored tensor itself. is_flat: its elements are counted in C order as one dimension, which lets reshapes join loops;
 * else the map keeps the tensor's dimensions, as pieces need them. */
int index_identity(struct index_work *work, uint32_t source, uint32_t rank, const uint64_t *shape, bool is_flat,
                   struct index_array *out);

/* Each returns 0 and fills `out`, or -1 when there are too many maps or no memory. Arguments have been checked against the
 * shape: these functions know no names. */
int index_slice(struct index_work *work, const struct index_array *in, const uint64_t *start, const uint64_t *size,
                struct index_array *out);
int index_transpose(struct index_work *work, const struct index_array *in, const uint32_t *dims, struct index_array *out);
/* As many elements as before, in C order. */
int index_reshape(struct index_work *work, const struct index_array *in, uint32_t rank, const uint64_t *shape,
                  struct index_array *out);
int index_concat(struct index_work *work, const struct index_array *parts, size_t n_parts, uint32_t dim,
                 struct index_array *out);
/* Equal shapes along a new dimension. */
int index_stack(struct index_work *work, const struct index_array *parts, size_t n_parts, uint32_t dim,
                struct index_array *out);
/* The k-th along a dimension, which goes. */
int index_unstack(struct index_work *work, const struct index_array *in, uint32_t dim, uint64_t k, struct index_array *out);
/* out[.., v, ..] = in[.., table[v], ..] along a dimension; the table has its extent and outlives the maps. */
int index_gather(struct index_work *work, const struct index_array *in, uint32_t dim, const uint32_t *table,
                 struct index_array *out);
/* n times, along a new first dimension. */
int index_replicate(struct index_work *work, const struct index_array *in, uint64_t n, struct index_array *out);

/* --- taking maps apart --- */

/* A map that can be changed: the same in place. */
struct index_draft {
    uint32_t source, operation, src_rank, n_loops;
    struct index_loop loops[INDEX_MAX_LOOPS];
    uint64_t dst_start[TENSOR_MAX_RANK], src_start[TENSOR_MAX_RANK];
};
enum index_side { INDEX_DST, INDEX_SRC };

struct index_taker {
    int (*take)(void *data, const struct index_draft *part); /* 0, or -1 to stop */
    void *data;
};

struct index_range {
    uint64_t first, last; /* both included */
};

void index_draft(const struct index_map *map, uint32_t dst_rank, struct index_draft *draft);
void index_copy(const struct index_draft *from, struct index_draft *to);
/* Only n values of a loop, from `first` on; of one value no loop is left. */
void index_narrow(struct index_draft *draft, uint32_t loop, uint64_t first, uint64_t n);
struct index_range index_extent(const struct index_draft *draft, enum index_side side, uint32_t dim);
/* The parts of it whose index in a dimension is in the range, each element once. With INDEX_SRC it has no tables. */
int index_clip_dim(const struct index_draft *draft, enum index_side side, uint32_t dim, uint64_t first, uint64_t last,
                   const struct index_taker *taker);
/* The same of a box. */
int index_clip(const struct index_draft *draft, enum index_side side, uint32_t rank, const uint64_t *start,
               const uint64_t *size, const struct index_taker *taker);
/* All of it without tables: a part for each run of consecutive numbers. */
int index_expand_tables(const struct index_draft *draft, const struct index_taker *taker);

/* What a step makes: one map after the other, then the array of a shape that is copied. */
struct index_list {
    struct index_work *work;
    uint32_t dst_rank;
    struct index_map *maps;
    size_t n, capacity;
};
int index_keep(struct index_list *list, const struct index_draft *draft);
int index_finish(struct index_list *list, const uint64_t *shape, struct index_array *out);

#endif
