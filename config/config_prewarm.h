/* The list `prewarm` of the configuration: mappings, each an artifact and how it is loaded. */
#ifndef CONFIG_CONFIG_PREWARM_H
#define CONFIG_CONFIG_PREWARM_H

#include "base/arena.h"
#include "config/config.h"
#include "config/config_yaml.h"

enum { CONFIG_PREWARM_MAX = 64, CONFIG_PREWARM_MAX_TENSORS = 256, CONFIG_PREWARM_MAX_RANKS = 65536 };

/* Behind the opening of the list; reads up to its end. What is read is the arena's. */
int config_prewarm_read(struct config_yaml *yaml, struct arena *arena, struct config *config, struct error *error);

#endif
