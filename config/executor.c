#include "config/executor.h"

#include <stddef.h>

#define NAME(id, name, preference, alias, original) name,
#define ORIGINAL_NAME(id, name, preference, alias, original) original,
#define PREFERENCE_NAME(id, name, preference, alias, original) preference,
#define ALIAS_NAME(id, name, preference, alias, original) alias,

const char *const executor_names[] = {EXECUTORS(NAME)};
const char *const executor_originals[] = {EXECUTORS(ORIGINAL_NAME)};
const char *const executor_preference_names[] = {"AUTO", EXECUTORS(PREFERENCE_NAME) NULL};
const char *const executor_option_names[] = {"auto", EXECUTORS(NAME) NULL};
const char *const executor_option_aliases[] = {"auto", EXECUTORS(ALIAS_NAME) NULL};
