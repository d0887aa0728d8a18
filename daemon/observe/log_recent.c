#include "observe/log_recent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_bool is_keeping;
static pthread_mutex_t recent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct json_writer recent[LOG_RECENT_LINES]; /* under recent_lock, a ring */
static size_t n_added;

void log_recent_keep(void)
{
    atomic_store(&is_keeping, true);
}

void log_recent_add(const struct log_field *head, size_t n_head, const struct log_field *fields, size_t n_fields)
{
    struct json_writer line = {0};
    if (!atomic_load_explicit(&is_keeping, memory_order_relaxed))
        return;
    json_write_open(&line, '{');
    for (size_t i = 0; i < n_head + n_fields; i++)
        log_put_field(&line, i < n_head ? &head[i] : &fields[i - n_head], LOG_RECENT_VALUE_BYTES);
    json_write_close(&line, '}');
    pthread_mutex_lock(&recent_lock);
    struct json_writer *place = &recent[n_added++ % LOG_RECENT_LINES], old = *place;
    *place = line;
    pthread_mutex_unlock(&recent_lock);
    free(old.text);
}

void log_recent_write(struct json_writer *writer)
{
    json_write_open(writer, '[');
    pthread_mutex_lock(&recent_lock);
    for (size_t i = n_added > LOG_RECENT_LINES ? n_added - LOG_RECENT_LINES : 0; i < n_added; i++)
        json_write_json(writer, recent[i % LOG_RECENT_LINES].text, recent[i % LOG_RECENT_LINES].length);
    pthread_mutex_unlock(&recent_lock);
    json_write_close(writer, ']');
}

void log_recent_forget(void)
{
    atomic_store(&is_keeping, false);
    pthread_mutex_lock(&recent_lock);
    for (size_t i = 0; i < LOG_RECENT_LINES; i++)
        free(recent[i].text);
    for (size_t i = 0; i < LOG_RECENT_LINES; i++)
        recent[i] = (struct json_writer){0};
    n_added = 0;
    pthread_mutex_unlock(&recent_lock);
}
