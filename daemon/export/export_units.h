/* An export as a sequence of units, each so small that it fits into a window of memory: what is read for it, as a view, and
 * where its bytes go, as puts.
 *
 * A unit is either several whole tensors, or a slab of one: a range of its outermost dimension that is larger than one,
 * everything of the dimensions within. A slab is one run of bytes in whatever is cut along an outer dimension, and rows of
 * one width in what is cut along an inner one, on both sides: so pieces are read and parts are written in few and long
 * requests, however either side is cut. The sequence is the same for the same layout, sizes and order. Pure. */
#ifndef EXPORT_UNITS_H
#define EXPORT_UNITS_H

#include "base/arena.h"
#include "execute/destination_file.h"
#include "export/export_layout.h"
#include "normalize/load_spec.h"

struct export_unit {
    struct view_item *items; /* what is read, packed */
    size_t n_items, item_room;
    uint64_t bytes;        /* of the items */
    struct file_put *puts; /* by file, then offset */
    size_t n_puts, put_room;
    struct arena arena; /* of the items' slices */
};

struct export_units { /* a walk over all of them */
    const struct export_layout *layout;
    uint64_t unit_bytes;
    size_t tensor; /* the next one ... */
    uint64_t slab; /* ... and its next slab */
};

/* Fills `unit`, which keeps its arrays from call to call. 1, 0 when there is no further one, -1 on error. */
int export_units_next(struct export_units *units, struct export_unit *unit, struct error *error);
void export_unit_fini(struct export_unit *unit);

#endif
