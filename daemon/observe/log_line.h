/* How a log line reads: time, level, event and the fields, as logfmt or as one JSON object. Any thread. */
#ifndef LOG_LINE_H
#define LOG_LINE_H

#include "observe/log.h"

/* With the newline at its end. The caller frees it. */
char *log_line_format(enum log_format format, enum log_level level, const char *event, const struct log_field *fields,
                      size_t n_fields, size_t *length);

#endif
