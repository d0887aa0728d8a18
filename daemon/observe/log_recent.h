/* The last lines of the log as JSON objects, for people who look at the page. In bounded memory; nothing is kept before
 * log_recent_keep(). Lines of a level that is off, and those that a limit holds back, are not among them. Any thread. */
#ifndef OBSERVE_LOG_RECENT_H
#define OBSERVE_LOG_RECENT_H

#include "base/json.h"
#include "observe/log.h"

enum { LOG_RECENT_LINES = 64, LOG_RECENT_VALUE_BYTES = 512 };

void log_recent_keep(void); /* from here on */
/* A line: its time, level and event, then its own fields. */
void log_recent_add(const struct log_field *head, size_t n_head, const struct log_field *fields, size_t n_fields);
void log_recent_write(struct json_writer *writer); /* as a list, the oldest first */
void log_recent_forget(void);                      /* and keep nothing any more */

#endif
