/* Clips of which more than bytes in rows are moved: elements that are converted on their way, and single elements that lie
 * the other way round at their destination. All of it out of a buffer, straight to destinations with an address, for others
 * through scratch memory. */
#ifndef EXECUTE_ELEMENTS_H
#define EXECUTE_ELEMENTS_H

#include "execute/item.h"
#include "execute/staging.h"
#include "execute/window.h"

struct elements { /* of one window */
    struct item *item;
    const struct window *window;
    const struct staging_buffer *buffer; /* which the window was read into */
};

/* Reads the bytes of torn elements that lie behind the window. */
int elements_read_torn(struct item *item, struct window *window, struct error *error);

/* How many of the clips from this one on are rows of one matrix whose elements are moved one by one: all of one part, in
 * equal steps on both sides. 1 = none is like it. */
size_t elements_find_matrix(const struct elements *elements, const struct clip *clips, size_t n);
void elements_place_matrix(const struct elements *elements, const struct clip *clips, size_t n);

/* Converts and places a clip. */
void elements_convert(const struct elements *elements, const struct clip *clip);

/* Rows whose order is turned round, for destinations without an address: those take them in one order only. */
bool elements_goes_backwards(const struct elements *elements, const struct clip *clip);
void elements_turn_rows(const struct elements *elements, const struct clip *clip);

#endif
