/* How a log line reads: time, level, event and the fields, as logfmt or as one JSON object. Any thread. */
#ifndef LOG_LINE_H
#define LOG_LINE_H

#include "observe/log.h"

struct log_form {
    enum log_format format;
    bool is_for_journal; /* begins with its priority; logfmt has no time then, JSON has, since it is often read alone */
};

struct log_form log_get_form(void); /* of lines that are written from now on */

/* With the newline at its end. The caller frees it. */
char *log_line_format(struct log_form form, enum log_level level, const char *event, const struct log_field *fields,
                      size_t n_fields, size_t *length);

#endif
