/* What of a window that is read past the page cache lands where it belongs: whole blocks of it, where the destination's memory
 * is aligned like the file (resolve/placement.h sees to that). The rest, edges and what does not match, goes through the
 * window's buffer, by the same requests:
 *
 *     file          |edge|block|block|block|edge|....gap....|edge|block|block|
 *     buffers        window  destination    window            window destination
 */
#ifndef EXECUTE_IN_PLACE_H
#define EXECUTE_IN_PLACE_H

#include "execute/item.h"
#include "execute/staging.h"
#include "execute/window.h"

/* Fills in window->in_place: of bytes that one clip alone wants, as they are, in the window's requests. Makes the memory
 * ready. */
void in_place_find(struct item *item, struct window *window);

/* Buffers for [lo, hi) of the file: the runs' own, and the window's between them. Returns how many; they are valid until the
 * next call. */
int in_place_buffers(struct window *window, const struct staging_buffer *buffer, struct range range);

/* The same for what clips want of it; what lies between has no address. Rows that are very near are one piece. Until the next call, as well. */
int in_place_wanted_buffers(struct window *window, const struct staging_buffer *buffer, struct range range);

/* They have been read: counts them as placed, without a copy. */
void in_place_count(struct item *item, const struct window *window);

/* What of [lo, hi) is in no run: the first piece of it, empty when there is none. `next` moves along with rising ranges. */
struct range in_place_rest(const struct window *window, struct range range, size_t *next);

void in_place_fini(struct in_place *in_place);

#endif
