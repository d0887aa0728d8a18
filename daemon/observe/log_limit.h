/* How many lines of one event one user may cause: a burst, then so many a second; more of those that tell of work. Those that are held back are counted and told of, once a second at most ("log_suppressed
 * of=EVENT lines=N uid=..."). When more pairs of event and user are busy than there are rows, the users without one share
 * one. Any thread. */
#ifndef LOG_LIMIT_H
#define LOG_LIMIT_H

#include <stdbool.h>
#include <sys/types.h>

#include "observe/log.h"

enum {
    LOG_LIMIT_ROWS = 128,
    LOG_LIMIT_BURST = 50,
    LOG_LIMIT_PER_S = 5,
    LOG_LIMIT_WORK_BURST = 1000,
    LOG_LIMIT_WORK_PER_S = 100,
};

bool log_limit_allows(enum log_level level, enum log_rate rate, const char *event, uid_t uid);
void log_limit_tell(void); /* of what was held back since */

#endif
