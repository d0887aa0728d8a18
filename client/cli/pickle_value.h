/* What a pickle of Python, protocol 4 or 5, is made of, as far as a shard of arrays needs it (pickletools documents the
 * opcodes). Const once read. */
#ifndef CLI_PICKLE_VALUE_H
#define CLI_PICKLE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { PICKLE_MAX_RANK = 64 };

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_TEXT,
    PICKLE_BYTES,
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT,
    PICKLE_FUNCTION, /* one of enum pickle_function */
    PICKLE_DTYPE,
    PICKLE_ARRAY,
};

enum pickle_function { PICKLE_RECONSTRUCT, PICKLE_FROM_BUFFER, PICKLE_NDARRAY_CLASS, PICKLE_DTYPE_CLASS };

struct pickle_array {
    const unsigned char *bytes; /* of the pickle; little-endian elements */
    uint64_t n_bytes;           /* product of shape * bytes of an element */
    const uint64_t *shape;
    uint32_t rank; /* <= PICKLE_MAX_RANK */
    enum dtype dtype;
    bool is_fortran; /* first dimension fastest */
    bool is_complete;
};

/* A value may be in several places: nobody changes one that was read. */
struct pickle_value {
    enum pickle_kind kind;
    bool is_big_endian; /* of a dtype */
    enum dtype dtype;
    union {
        int64_t number; /* bool, int, function */
        struct {
            const unsigned char *bytes; /* of the pickle; text is UTF-8 that nobody has checked */
            uint64_t n_bytes;
        };
        struct {
            struct pickle_value **items; /* of a dict key, value, key, value */
            size_t n_items, room;
        };
        struct pickle_array *array;
    };
};

#endif
