#include "config/executor.h"

#include <stddef.h>

#define REPORT_NAME(id, report, preference, option, event) report,
#define EVENT_NAME(id, report, preference, option, event) event,
#define PREFERENCE_NAME(id, report, preference, option, event) preference,
#define OPTION_NAME(id, report, preference, option, event) option,

const char *const executor_names[] = {EXECUTORS(REPORT_NAME)};
const char *const executor_events[] = {EXECUTORS(EVENT_NAME)};
const char *const executor_preference_names[] = {"AUTO", EXECUTORS(PREFERENCE_NAME) NULL};
const char *const executor_option_names[] = {"auto", EXECUTORS(OPTION_NAME) NULL};
