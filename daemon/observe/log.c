/* Levels, and the way of a line: limited, formatted by its caller, then queued for the thread that writes.
 *
 * Limits: a token bucket for each pair of event and user that was busy lately. When more pairs are busy than there are rows,
 * the users without one share one.
 *
 * Sink: a list of lines behind a mutex. With a thread, the thread alone touches the descriptor; without, as in a command, the
 * mutex is held while a line is written, so that lines of many threads never mix. A reader that has stopped, a full pipe or a
 * dead mount stops the thread only. A change of the file is an entry of the list like any other. A line that cannot be written
 * is lost: there is no better place to complain than the log itself. */
#include "observe/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "observe/counters.h"
#include "observe/journal.h"
#include "observe/log_recent.h"

enum {
    LOG_VALUE_MAX_BYTES = 8192, /* one value cannot fill the disk */
    TIME_CHARS = 32,
    NUMBER_CHARS = 64,
    N_HEAD = 3,
    MAX_BYTES_BUT_ERRORS = LOG_SINK_MAX_BYTES / 4 * 3,
    TELL_MS = 1000,
};

static const uint64_t tell_ns = TELL_MS * (uint64_t)NS_PER_MS;

struct form { /* of lines that are written from now on */
    enum log_format format;
    bool is_for_journal; /* begins with its priority; logfmt has no time then, JSON has, since it is often read alone */
};

struct row {
    const char *event; /* NULL = free */
    uid_t uid;         /* LOG_NOBODY = of all users that found no row */
    enum log_level level;
    enum log_rate rate;
    uint64_t full_ns; /* when the bucket is full again: a line moves it on by the time of one token */
    uint64_t suppressed, told_ns;
};

struct line {
    STAILQ_ENTRY(line) link;
    char *text; /* NULL = from here on, write to fd */
    size_t length;
    char *entry; /* for the journal, which gets the text if it does not take this; NULL = the text is all */
    size_t entry_bytes;
    int fd;
};

static _Atomic(enum log_level) lowest_level = LOG_INFO;
static _Atomic(struct form) form = (struct form){LOG_LOGFMT, false};
static int journal = -1; /* atomic: where it takes entries; opened once */
static pthread_mutex_t limit_lock = PTHREAD_MUTEX_INITIALIZER;
static struct row rows[LOG_LIMIT_ROWS]; /* under limit_lock */
static struct {
    pthread_mutex_t lock; /* for everything but fd, which is the thread's while one runs */
    pthread_cond_t changed;
    STAILQ_HEAD(, line) lines;
    size_t queued_bytes; /* with the line that is being written */
    uint64_t dropped;
    bool has_thread, is_writing, is_stopping, is_stuck;
    int fd;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .changed = PTHREAD_COND_INITIALIZER,
          .lines = STAILQ_HEAD_INITIALIZER(sink.lines),
          .fd = STDERR_FILENO};

static struct line *make_line(int fd)
{
    struct line *line = memory_alloc(sizeof *line);
    line->fd = fd;
    return line;
}

/* --- a line as text ---------------------------------------------------------------------------------------------------- */

/* Reals with up to three decimals and no trailing zeros: "12.3"; very small and very large ones with an exponent. */
static const char *format_number(const struct log_field *field, char out[NUMBER_CHARS])
{
    double size = fabs(field->real);
    if (field->kind == LOG_FIELD_BOOL)
        return field->number ? "true" : "false";
    if (field->kind == LOG_FIELD_U64) {
        snprintf(out, NUMBER_CHARS, "%llu", (unsigned long long)field->number);
    } else if (size != 0 && (!(size < 1e15) || size < 0.001)) {
        snprintf(out, NUMBER_CHARS, "%.6g", field->real);
    } else {
        size_t length = (size_t)snprintf(out, NUMBER_CHARS, "%.3f", field->real);
        while (out[length - 1] == '0')
            out[--length] = '\0';
        if (out[length - 1] == '.')
            out[length - 1] = '\0';
    }
    return out;
}

static size_t shown_bytes(const struct log_field *field)
{
    return field->text ? strnlen(field->text, LOG_VALUE_MAX_BYTES) : 0;
}

static void print_text(FILE *out, const char *value, size_t length)
{
    char shown[TEXT_ESCAPE_CHARS];
    bool is_plain = length > 0;
    for (size_t at = 0, n; at < length && is_plain; at += n) {
        n = text_escape_char(value + at, length - at, shown);
        is_plain = strlen(shown) == n && !strchr(" \"=", value[at]);
    }
    if (is_plain) {
        fwrite(value, 1, length, out);
        return;
    }
    fputc('"', out);
    for (size_t at = 0; at < length;) {
        bool is_quote = value[at] == '"';
        at += text_escape_char(value + at, length - at, shown);
        fputs(is_quote ? "\\\"" : shown, out);
    }
    fputc('"', out);
}

static void print_field(FILE *out, const struct log_field *field, const char *gap)
{
    char number[NUMBER_CHARS];
    fprintf(out, "%s%s=", gap, field->key);
    if (field->kind == LOG_FIELD_TEXT)
        print_text(out, field->text, shown_bytes(field));
    else
        fputs(format_number(field, number), out);
}

void log_put_field(struct json_writer *json, const struct log_field *field, size_t most_bytes)
{
    json_write_key(json, field->key);
    switch (field->kind) {
    case LOG_FIELD_TEXT:
        json_write_string(json, field->text, field->text ? strnlen(field->text, most_bytes) : 0);
        break;
    case LOG_FIELD_U64:
        json_write_u64(json, field->number);
        break;
    case LOG_FIELD_DOUBLE:
        json_write_double(json, field->real);
        break;
    case LOG_FIELD_BOOL:
        json_write_bool(json, field->number != 0);
        break;
    }
}

static void put_in_entry(FILE *entry, const struct log_field *field)
{
    char number[NUMBER_CHARS];
    const char *value = field->kind != LOG_FIELD_TEXT ? format_number(field, number) : field->text ? field->text : "";
    journal_put(entry, field->key, value, strnlen(value, LOG_VALUE_MAX_BYTES));
}

static struct line *log_line(enum log_level level, const char *event, const struct log_field *fields, size_t n_fields)
{
    static const char *const level_names[] = {"trace", "debug", "info", "warn", "error"};
    static const int priorities[] = {7, 7, 6, 4, 3}; /* as in syslog(3), by level */
    struct form wanted = atomic_load_explicit(&form, memory_order_relaxed);
    struct json_writer json = {0};
    struct timespec now;
    struct tm utc;
    char seconds[24], time[TIME_CHARS];
    struct line *line = make_line(-1);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time, sizeof time, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
    const struct log_field head[N_HEAD] = {LOG_TEXT("time", time), LOG_TEXT("level", level_names[level]),
                                           LOG_TEXT("event", event)};
    FILE *out = memory_stream(&line->text, &line->length);
    if (wanted.is_for_journal)
        fprintf(out, "<%d>", priorities[level]);
    json_write_open(&json, '{');
    size_t first = wanted.is_for_journal && wanted.format == LOG_LOGFMT;
    for (size_t i = first; i < N_HEAD + n_fields; i++) {
        const struct log_field *field = i < N_HEAD ? &head[i] : &fields[i - N_HEAD];
        if (wanted.format == LOG_JSON)
            log_put_field(&json, field, LOG_VALUE_MAX_BYTES);
        else
            print_field(out, field, i == first ? "" : " ");
    }
    json_write_close(&json, '}');
    fprintf(out, "%s\n", wanted.format == LOG_JSON ? json.text : "");
    fclose(out);
    free(json.text);
    if (wanted.is_for_journal && __atomic_load_n(&journal, __ATOMIC_ACQUIRE) >= 0) {
        out = memory_stream(&line->entry, &line->entry_bytes);
        fprintf(out, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nMESSAGE=%s", priorities[level], program_invocation_short_name,
                strchr(line->text, '>') + 1);
        put_in_entry(out, &head[N_HEAD - 1]); /* the event: it has a time and a priority of its own */
        for (size_t i = 0; i < n_fields; i++)
            put_in_entry(out, &fields[i]);
        fclose(out);
    }
    log_recent_add(head, N_HEAD, fields, n_fields);
    return line;
}

/* --- limits ------------------------------------------------------------------------------------------------------------ */

static struct row *find_row(const char *event, uid_t uid, uint64_t now)
{
    struct row *empty = NULL;
    for (struct row *row = rows; row < rows + LOG_LIMIT_ROWS; row++) {
        if (row->event && row->uid == uid && strcmp(row->event, event) == 0)
            return row;
        if (!empty && (!row->event || (row->full_ns <= now && !row->suppressed)))
            empty = row;
    }
    if (empty)
        *empty = (struct row){.event = event, .uid = uid};
    return empty;
}

static bool take_token(struct row *row, uint64_t now)
{
    bool is_work = row->rate == LOG_MANY;
    uint64_t burst = is_work ? LOG_LIMIT_WORK_BURST : LOG_LIMIT_BURST;
    uint64_t ns_per_token = 1000 * (uint64_t)NS_PER_MS / (is_work ? LOG_LIMIT_WORK_PER_S : LOG_LIMIT_PER_S);
    if (row->full_ns < now)
        row->full_ns = now;
    if (row->full_ns - now > (burst - 1) * ns_per_token) {
        row->suppressed++;
        return false;
    }
    row->full_ns += ns_per_token;
    return true;
}

bool log_allows(enum log_level level, enum log_rate rate, const char *event, uid_t uid)
{
    if (!log_enabled(level))
        return false;
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&limit_lock);
    struct row *row = find_row(event, uid, now);
    if (!row)
        row = find_row(event, LOG_NOBODY, now);
    if (!row) { /* nothing is free: some event's row for all the others, or this one's */
        row = &rows[LOG_LIMIT_ROWS - 1];
        row->uid = LOG_NOBODY;
    }
    row->level = level;
    row->rate = rate;
    bool allows = take_token(row, now);
    pthread_mutex_unlock(&limit_lock);
    return allows;
}

/* Of what was held back since. What is to be told is copied, so that nothing is logged under the lock. */
static void tell_suppressed(void)
{
    for (size_t i = 0; i < LOG_LIMIT_ROWS; i++) {
        uint64_t now = clock_now_ns();
        pthread_mutex_lock(&limit_lock);
        struct row row = rows[i];
        bool is_due = row.suppressed && now - row.told_ns >= tell_ns;
        if (is_due) {
            rows[i].suppressed = 0;
            rows[i].told_ns = now;
        }
        pthread_mutex_unlock(&limit_lock);
        if (is_due && row.uid == LOG_NOBODY)
            log_at(row.level, "log_suppressed", LOG_TEXT("of", row.event), LOG_U64("lines", row.suppressed));
        else if (is_due)
            log_at(row.level, "log_suppressed", LOG_TEXT("of", row.event), LOG_U64("lines", row.suppressed),
                   LOG_U64("uid", row.uid));
    }
}

/* --- the sink ---------------------------------------------------------------------------------------------------------- */

static void write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EAGAIN) /* another process made the standard error non-blocking */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (n < 0 && errno != EINTR)
            return;
        if (n < 0)
            continue;
        text += n;
        length -= (size_t)n;
    }
}

static size_t line_bytes(const struct line *line)
{
    return line->length + line->entry_bytes;
}

static void carry_out(const struct line *line)
{
    if (line->entry && send(journal, line->entry, line->entry_bytes, MSG_NOSIGNAL) == (ssize_t)line->entry_bytes)
        return;
    if (line->text) {
        write_all(sink.fd, line->text, line->length);
        return;
    }
    if (sink.fd != STDERR_FILENO)
        close(sink.fd);
    sink.fd = line->fd;
}

static void free_line(struct line *line)
{
    free(line->text);
    free(line->entry);
    free(line);
}

static void append_line(struct line *line)
{
    STAILQ_INSERT_TAIL(&sink.lines, line, link);
    sink.queued_bytes += line_bytes(line);
    pthread_cond_broadcast(&sink.changed);
}

/* With the lock held, which is given up meanwhile. */
static void write_one(struct line *line)
{
    sink.is_writing = true;
    pthread_mutex_unlock(&sink.lock);
    carry_out(line);
    pthread_mutex_lock(&sink.lock);
    sink.is_writing = false;
    sink.queued_bytes -= line_bytes(line);
    free_line(line);
    if (sink.dropped && sink.queued_bytes < MAX_BYTES_BUT_ERRORS / 2) {
        struct log_field lines = LOG_U64("lines", sink.dropped);
        sink.dropped = 0;
        append_line(log_line(LOG_WARN, "log_dropped", &lines, 1));
    }
    pthread_cond_broadcast(&sink.changed);
}

static void *write_lines(void *unused)
{
    uint64_t told_ns = clock_now_ns();
    (void)unused;
    pthread_mutex_lock(&sink.lock);
    while (!sink.is_stopping || !STAILQ_EMPTY(&sink.lines)) {
        if (STAILQ_EMPTY(&sink.lines) && !sink.is_stopping)
            condition_wait_until(&sink.changed, &sink.lock, clock_now_ns() + tell_ns);
        struct line *line = STAILQ_FIRST(&sink.lines);
        if (line) {
            STAILQ_REMOVE_HEAD(&sink.lines, link);
            write_one(line);
        }
        if (clock_now_ns() - told_ns < tell_ns)
            continue;
        told_ns = clock_now_ns();
        pthread_mutex_unlock(&sink.lock);
        tell_suppressed(); /* may log */
        pthread_mutex_lock(&sink.lock);
    }
    sink.has_thread = sink.is_stopping = sink.is_stuck = false;
    pthread_cond_broadcast(&sink.changed);
    pthread_mutex_unlock(&sink.lock);
    return NULL;
}

void log_start(void)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, old;
    pthread_mutex_lock(&sink.lock);
    if (!sink.has_thread) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED); /* it may be stuck when the process ends */
        sink.has_thread = pthread_create(&thread, &detached, write_lines, NULL) == 0;
        pthread_attr_destroy(&detached);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_mutex_unlock(&sink.lock);
}

/* Takes the line, which finds room or is dropped while a thread writes, and is written by its caller otherwise. */
static void put_line(struct line *line, size_t room)
{
    bool is_taken = false;
    pthread_mutex_lock(&sink.lock);
    if (!sink.has_thread) {
        carry_out(line);
    } else if (!line->text || (!sink.is_stuck && sink.queued_bytes + line_bytes(line) <= room)) {
        append_line(line);
        is_taken = true;
    } else {
        sink.dropped++;
        counters_add(COUNTER_LOG_DROPPED, 1);
    }
    pthread_mutex_unlock(&sink.lock);
    if (!is_taken)
        free_line(line);
}

/* With the lock held. */
static bool wait_until_written(uint64_t timeout_ms)
{
    uint64_t until_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    while (sink.has_thread && (!STAILQ_EMPTY(&sink.lines) || sink.is_writing || sink.is_stopping) &&
           clock_now_ns() < until_ns)
        condition_wait_until(&sink.changed, &sink.lock, until_ns);
    return !sink.has_thread || (STAILQ_EMPTY(&sink.lines) && !sink.is_writing);
}

bool log_flush(uint64_t timeout_ms)
{
    tell_suppressed();
    pthread_mutex_lock(&sink.lock);
    bool is_written = wait_until_written(timeout_ms);
    pthread_mutex_unlock(&sink.lock);
    return is_written;
}

void log_stop(uint64_t timeout_ms)
{
    tell_suppressed();
    pthread_mutex_lock(&sink.lock);
    sink.is_stopping = sink.has_thread;
    pthread_cond_broadcast(&sink.changed);
    wait_until_written(timeout_ms);
    sink.is_stuck = sink.has_thread;
    pthread_mutex_unlock(&sink.lock);
}

/* --- the interface ----------------------------------------------------------------------------------------------------- */

/* O_NONBLOCK: a FIFO without a reader is an error, not a wait. */
int log_open_file(const char *path, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    if (!*path)
        return STDERR_FILENO;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (fd >= 0)
        return fd;
    const char *name = text_escape(path, strlen(path), shown);
    if (errno == ENXIO)
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_READER", "the log file %s is a FIFO that no process reads", name);
    return fail_errno(error, errno, "cannot open the log file %s", name);
}

void log_use(int fd, enum log_level level, enum log_format format)
{
    atomic_store(&lowest_level, level);
    if (__atomic_load_n(&journal, __ATOMIC_RELAXED) < 0)
        __atomic_store_n(&journal, journal_open(fd), __ATOMIC_RELEASE);
    atomic_store(&form, ((struct form){format, journal_reads(fd)}));
    put_line(make_line(fd), 0);
}

int log_open(const char *path, enum log_level level, enum log_format format, struct error *error)
{
    int fd = log_open_file(path, error);
    if (fd < 0)
        return -1;
    log_use(fd, level, format);
    return 0;
}

void log_set_level(enum log_level level)
{
    atomic_store(&lowest_level, level);
}

bool log_enabled(enum log_level level)
{
    return level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

enum log_level log_level_of_error(const struct error *error)
{
    switch (error->code) {
    case ERROR_INTERNAL:
    case ERROR_DATA_LOSS:
        return LOG_ERROR;
    case ERROR_CANCELLED:
    case ERROR_INVALID_ARGUMENT:
    case ERROR_NOT_FOUND:
    case ERROR_ALREADY_EXISTS:
    case ERROR_PERMISSION_DENIED:
    case ERROR_UNIMPLEMENTED:
        return LOG_INFO;
    default:
        return LOG_WARN;
    }
}

void log_fields(enum log_level level, const char *event, const struct log_field *fields, size_t n_fields)
{
    if (!log_enabled(level))
        return;
    int callers_errno = errno;
    put_line(log_line(level, event, fields, n_fields), level >= LOG_ERROR ? LOG_SINK_MAX_BYTES : MAX_BYTES_BUT_ERRORS);
    errno = callers_errno;
}
