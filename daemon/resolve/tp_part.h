/* A tensor-parallel rank's part of a tensor by the usual Hugging Face names, as vLLM cuts it: heads stay whole, keys and values
 * are replicated where there are more ranks than heads of them, and a scale goes with its block. Pure; any thread. */
#ifndef RESOLVE_TP_PART_H
#define RESOLVE_TP_PART_H

#include "resolve/tp_model.h"

struct tp_tensor {
    const char *name;
    size_t name_length;
    const uint64_t *shape;
    size_t rank;
};

struct tp_group {
    const struct tp_model *model;
    uint64_t size, rank; /* rank < size */
    /* Finds the scales of a weight, and the weight of scales. */
    bool (*find)(const void *data, const char *name, size_t length, struct tp_tensor *found);
    const void *data;
};

struct tp_part {
    int64_t dimension; /* USUAL_SPLIT_NONE = the whole tensor */
    uint64_t start, stop;
};

/* INVALID_ARGUMENT naming the tensor: rows or heads that do not divide, several matrices in one tensor, a border within a block
 * that shares a scale. */
int tp_part_find(const struct tp_group *group, const struct tp_tensor *tensor, struct tp_part *part, struct error *error);
/* Of that dimension, for any tensor name. */
int tp_part_of_dimension(const struct tp_group *group, const struct tp_tensor *tensor, int64_t dimension,
                         struct tp_part *part, struct error *error);

#endif
