/* What --check-config finds out beyond the file itself: whether what it names is there, for the user who asks. */
#ifndef CONFIG_CHECK_H
#define CONFIG_CHECK_H

#include <stdio.h>

#include "config/config.h"

/* A line in `warnings` for each thing that a start does without. -1: it would fail. Asks file systems and groups. */
int config_check(const struct config *config, FILE *warnings, struct error *error);

#endif
