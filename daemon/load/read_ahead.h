/* Reading ahead for ranks of a group on other hosts: blocks that this host owns, that they need and its own ranks do not. They are
 * read beside the runs of the group, in the order of the files, and kept for the hosts that will ask (hosts/block_cache.h).
 *
 *   read_ahead_build (any thread) -> read_ahead_start -> ... -> read_ahead_stop: at the latest when the group's runs are done
 *
 * It ends early when there is no room, or a read fails: then the hosts ask for blocks that are not read yet, as without a group. */
#ifndef LOAD_READ_AHEAD_H
#define LOAD_READ_AHEAD_H

#include <sys/types.h>

#include "base/loop.h"
#include "blocks/blocks.h"
#include "load/rank_needs.h"

struct read_ahead;

/* Refers to the artifact; the holder outlives the loop's work. NULL: there is nothing to read, or no memory. */
struct read_ahead *read_ahead_build(struct block_holder *holder, struct artifact *artifact, const struct rank_needs *others,
                                    const struct rank_needs *own);
/* Once, loop thread. lane: see loop_enter_lane(). */
void read_ahead_start(struct read_ahead *ahead, struct loop *loop, uid_t uid, uint64_t lane);
/* Loop thread. Begins no more reads; cancels: ends those that go on, else hosts that ask find what they bring. It goes with the last of
 * them, and at once when it was not started. Accepts NULL. */
void read_ahead_stop(struct read_ahead *ahead, bool cancels);

#endif
