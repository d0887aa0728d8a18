/* Where a request's tensors go in memory of the client: the columns of Targets as a list of targets (resolve/target.h), and
 * the regions that it names as memory that was offered on the hand-off socket. */
#ifndef API_CODEC_TARGETS_H
#define API_CODEC_TARGETS_H

#include "base/arena.h"
#include "replica/handoff.h"
#include "resolve/target.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* Checks that the columns fit together; what they mean is checked by mapping_build(). The list is in the arena and points
 * into the message; of its regions nothing is known yet. Pure; any thread. */
int codec_targets(const Tensorcast__Daemon__V1__Targets *wire, struct arena *arena, struct target_list **list,
                  struct error *error);

/* Takes the offers and says where each lies. The caller has the regions afterwards; on an error none is left. Loop thread. */
int codec_take_regions(const Tensorcast__Daemon__V1__Targets *wire, struct handoff *handoff, uid_t uid,
                       struct target_list *list, struct device_region **regions, struct error *error);

#endif
