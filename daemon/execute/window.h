/* What a worker knows of the window at hand: a piece of a part file that is read at once. Each step fills in one of the
 * lists and reads those before it; the arrays are kept from window to window.
 *
 *   range -> clips (what goes where) -> extents (what has to be read) -> requests (how it is asked for) */
#ifndef EXECUTE_WINDOW_H
#define EXECUTE_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "plan/rows.h"

struct staging_buffer;

struct range { /* of a part file, end exclusive */
    uint64_t lo, hi;
};

static inline uint64_t range_bytes(struct range range)
{
    return range.hi - range.lo;
}

struct clip { /* what of a transfer lies in a window: whole rows, or a piece of one */
    struct rows src;
    uint64_t dst_offset;     /* of the first row */
    int64_t dst_stride;      /* between rows; negative = they go backwards */
    uint32_t part;           /* whose it is: index into item->parts */
    uint32_t operation : 24; /* of that run's mapping; OPERATION_COPY = none */
    uint32_t torn_bytes : 8; /* of its last element, that lie behind the window */
};

enum { WINDOW_ELEMENT_BYTES = 8 }; /* of the largest elements */

struct clips {
    struct clip *list; /* by part, then offset; or all by offset */
    size_t n, room;
};

struct extent {
    struct range range;
    uint32_t part; /* the run on whose behalf it is read */
};

struct extents {
    struct extent *list; /* by offset, disjoint */
    size_t n, room;
};

struct in_place_run { /* contiguous in the file and in memory */
    struct range range;
    unsigned char *address; /* of its first byte; NULL = none that it could land at */
    uint32_t part;
};

struct in_place {              /* see in_place.h */
    struct in_place_run *list; /* by offset, disjoint */
    size_t n, room;
    struct in_place_run *spans; /* while the list is made */
    size_t n_spans, spans_room;
    struct iovec *buffers;
    int n_buffers;
    size_t buffers_room;
};

/* How a window is read: chosen once, with its buffer. */
enum window_way {
    WAY_STRAIGHT, /* into place, through the page cache */
    WAY_BUFFER,   /* into a buffer, and copied from there */
    WAY_DIRECT,   /* the same, past the page cache */
    WAY_IN_PLACE, /* so, but what is aligned straight into place: other loads do not find it in the buffer */
    WAY_WANTED,   /* as WAY_BUFFER, without what no clip wants: other loads do not find it in the buffer either */
};

/* A list that mostly comes in order. */
static inline void window_sort(void *list, size_t n, size_t bytes, int (*compare)(const void *a, const void *b))
{
    size_t i = 1;
    while (i < n && compare((char *)list + (i - 1) * bytes, (char *)list + i * bytes) <= 0)
        i++;
    if (i < n)
        qsort(list, n, bytes, compare);
}

struct window {
    struct range range;
    struct clips clips;
    struct extents extents, requests;
    struct in_place in_place; /* what of the requests lands where it belongs; nothing unless WAY_IN_PLACE */
    struct range had;         /* what the buffer holds already, since it was kept; empty = nothing */
    double cached_share;      /* of what has to be read */
    bool is_hot;              /* so much of it is in the page cache that it is read from there */
    bool is_whole;            /* as large as windows get, so that another rank's is the same: it may be kept */
    bool is_crumbled;         /* of a block in so many pieces that it is read through small buffers, which are not shared */
    enum window_way way;
    bool has_operations;                      /* of clips: they are converted on their way out of a buffer */
    unsigned char torn[WINDOW_ELEMENT_BYTES]; /* what follows the window in the file, as far as elements are torn */
    struct staging_buffer *scratch; /* for what is converted or turned before it is written; NULL = none was left */
};

#endif
