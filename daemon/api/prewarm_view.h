/* What an entry of the configuration's `prewarm` list wants of an artifact: the view that `tensorcast load` makes of the same
 * options, so that both share a replica. Pure; any thread. */
#ifndef API_PREWARM_VIEW_H
#define API_PREWARM_VIEW_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"
#include "normalize/load_spec.h"
#include "resolve/artifact.h"
#include "resolve/tp_part.h"

bool prewarm_view_is_whole(const struct config_prewarm *entry); /* no need to look at the artifact */
/* In the arena; names are the artifact's, whose config.json says what is in the model. */
int prewarm_view_build(const struct config_prewarm *entry, const struct artifact *artifact, const struct tp_model *model,
                       struct arena *arena, struct view_spec *view, struct error *error);

#endif
