/* Tensors in this process's memory, wherever they came from. Names and shapes are borrowed from what owns the memory. */
#ifndef CLI_LOADED_H
#define CLI_LOADED_H

#include <stddef.h>
#include <stdint.h>

struct loaded_tensor {
    const char *name; /* name_length counts */
    size_t name_length;
    const char *dtype;
    const uint64_t *shape;
    size_t rank;
    const void *data; /* never NULL */
    uint64_t bytes;
};

struct loaded {
    struct loaded_tensor *tensors; /* view order */
    size_t n_tensors;
    char *report_json; /* the object of `tensorcast load --json` */
    void *copy;        /* of GPU memory, so that it can be looked at; NULL = none was needed */
    void *owner;       /* of the memory, known to the backend that loaded it */
};

#endif
