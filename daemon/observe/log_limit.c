/* A token bucket for each pair of event and user that was busy lately. */
#include "observe/log_limit.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"

static const uint64_t tell_ns = 1000 * (uint64_t)NS_PER_MS;

struct row {
    const char *event; /* NULL = free */
    uid_t uid;         /* LOG_NOBODY = of all users that found no row */
    enum log_level level;
    enum log_rate rate;
    uint64_t full_ns; /* when the bucket is full again: a line moves it on by the time of one token */
    uint64_t suppressed, told_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct row rows[LOG_LIMIT_ROWS]; /* under lock */

static bool is_free(const struct row *row, uint64_t now)
{
    return !row->event || (row->full_ns <= now && !row->suppressed);
}

static struct row *find_row(const char *event, uid_t uid, uint64_t now)
{
    struct row *empty = NULL;
    for (struct row *row = rows; row < rows + LOG_LIMIT_ROWS; row++) {
        if (row->event && row->uid == uid && strcmp(row->event, event) == 0)
            return row;
        if (!empty && is_free(row, now))
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

bool log_limit_allows(enum log_level level, enum log_rate rate, const char *event, uid_t uid)
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return allows;
}

/* Copies what is to be told, so that nothing is logged under the lock. */
static bool take_suppressed(struct row *row, struct row *taken)
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&lock);
    *taken = *row;
    bool is_due = row->suppressed && now - row->told_ns >= tell_ns;
    if (is_due) {
        row->suppressed = 0;
        row->told_ns = now;
    }
    pthread_mutex_unlock(&lock);
    return is_due;
}

void log_limit_tell(void)
{
    struct row row;
    for (size_t i = 0; i < LOG_LIMIT_ROWS; i++) {
        if (!take_suppressed(&rows[i], &row))
            continue;
        if (row.uid == LOG_NOBODY)
            log_at(row.level, "log_suppressed", LOG_TEXT("of", row.event), LOG_U64("lines", row.suppressed));
        else
            log_at(row.level, "log_suppressed", LOG_TEXT("of", row.event), LOG_U64("lines", row.suppressed),
                   LOG_U64("uid", row.uid));
    }
}
