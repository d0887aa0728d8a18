/* Structured log lines: an event name and key=value fields, as logfmt or JSON, one line each, to stderr or a file.
 *
 *     log_info("load_done", LOG_TEXT("load_id", id), LOG_U64("read_bytes", n), LOG_MS("total_ms", ns));
 * gives   time=2026-11-21T12:00:00.123Z level=info event=load_done load_id=... read_bytes=... total_ms=12.3
 * and in the journal, which has a time and a priority of its own,
 *       <6>level=info event=load_done load_id=... read_bytes=... total_ms=12.3
 * as the text of an entry with fields (journal.h).
 *
 * error = the operator acts, warn = degraded, info = once per load, debug = off by default. Any thread. Values from outside
 * are escaped; keys are literals. Before log_open() lines go to stderr as logfmt at info.
 *
 * A program with a loop calls log_start(): then a thread writes, and no line makes its caller wait. Lines queue, in bounded memory;
 * those that find no room are counted and told of when there is room again ("log_dropped lines=N").
 *
 * Of one event one user may cause a burst of lines, then so many a second; more of those that tell of work. Those that are held back
 * are counted and told of, once a second at most ("log_suppressed of=EVENT lines=N uid=..."). */
#ifndef OBSERVE_LOG_H
#define OBSERVE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

/* Of what failed for a client: error for defects and damage, info for what it asked wrongly or gave up, else warn. */
enum log_level log_level_of_error(const struct error *error);

enum {
    LOG_SINK_MAX_BYTES = 1 << 20, /* of lines that wait; a quarter of it is for errors alone */
    LOG_LIMIT_ROWS = 128,
    LOG_LIMIT_BURST = 50,
    LOG_LIMIT_PER_S = 5,
    LOG_LIMIT_WORK_BURST = 1000,
    LOG_LIMIT_WORK_PER_S = 100,
};

#define LOG_NOBODY ((uid_t)-1) /* no user has this number */

struct log_field {
    const char *key;
    enum { LOG_FIELD_TEXT, LOG_FIELD_U64, LOG_FIELD_DOUBLE, LOG_FIELD_BOOL } kind;
    const char *text;
    uint64_t number;
    double real;
};

#define LOG_TEXT(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_TEXT, .text = (v)})
#define LOG_U64(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_U64, .number = (v)})
#define LOG_REAL(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_DOUBLE, .real = (v)})
#define LOG_MS(k, ns) LOG_REAL(k, (double)(ns) / 1e6)
#define LOG_BOOL(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_BOOL, .number = (v)})

/* path "" = stderr. Reopens the file when called again (SIGHUP). */
int log_open(const char *path, enum log_level level, enum log_format format, struct error *error);
/* The two halves of log_open(). The first may wait, for a dead mount; its descriptor is for the second. */
int log_open_file(const char *path, struct error *error);
void log_use(int fd, enum log_level level, enum log_format format);
void log_set_level(enum log_level level);

void log_start(void);                /* a thread writes from here on */
bool log_flush(uint64_t timeout_ms); /* false: not everything was written in that time */
void log_stop(uint64_t timeout_ms);  /* the thread ends; lines that it could not write are lost */

bool log_enabled(enum log_level level);
enum log_rate { LOG_FEW, LOG_MANY /* of lines that tell of a load or an upload, which were work */ };
/* Enabled, and this user has not caused too many. */
bool log_allows(enum log_level level, enum log_rate rate, const char *event, uid_t uid);
void log_fields(enum log_level level, const char *event, const struct log_field *fields, size_t n_fields);
/* As a member of the open object; a text is cut. */
struct json_writer;
void log_put_field(struct json_writer *json, const struct log_field *field, size_t most_bytes);

#define log_at(level, event, ...)                                                                                           \
    do {                                                                                                                    \
        if (log_enabled(level)) {                                                                                           \
            const struct log_field log_fields_[] = {__VA_ARGS__};                                                           \
            log_fields((level), (event), log_fields_, sizeof log_fields_ / sizeof log_fields_[0]);                          \
        }                                                                                                                   \
    } while (0)
/* For what a client can cause as often as it likes: no more than the limits allow each user. LOG_NOBODY: all together. */
#define log_limited(level, rate, event, uid_, ...)                                                                          \
    do {                                                                                                                    \
        if (log_allows(level, rate, event, uid_)) {                                                                         \
            const struct log_field log_fields_[] = {LOG_U64("uid", uid_), __VA_ARGS__};                                     \
            const size_t skipped_ = (uid_t)(uid_) == LOG_NOBODY;                                                            \
            log_fields((level), (event), log_fields_ + skipped_, sizeof log_fields_ / sizeof log_fields_[0] - skipped_);    \
        }                                                                                                                   \
    } while (0)
#define log_at_of(level, event, uid, ...) log_limited(level, LOG_FEW, event, uid, __VA_ARGS__)
#define log_work_of(event, uid, ...) log_limited(LOG_INFO, LOG_MANY, event, uid, __VA_ARGS__)
#define log_debug(event, ...) log_at(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_at(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_at(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_at(LOG_ERROR, event, __VA_ARGS__)

#endif
