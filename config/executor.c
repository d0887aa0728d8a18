#include "config/executor.h"

#include <stddef.h>

#define NAME(id, name, preference, alias, event) name,
#define EVENT_NAME(id, name, preference, alias, event) event,
#define PREFERENCE_NAME(id, name, preference, alias, event) preference,
#define ALIAS_NAME(id, name, preference, alias, event) alias,

const char *const executor_names[] = {EXECUTORS(NAME)};
const char *const executor_events[] = {EXECUTORS(EVENT_NAME)};
const char *const executor_preference_names[] = {"AUTO", EXECUTORS(PREFERENCE_NAME) NULL};
const char *const executor_option_names[] = {"auto", EXECUTORS(NAME) NULL};
const char *const executor_option_aliases[] = {"auto", EXECUTORS(ALIAS_NAME) NULL};
