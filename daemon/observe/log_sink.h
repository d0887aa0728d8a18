/* Where log lines go: a descriptor, in order, each by one write().
 *
 * Until log_sink_start() a line is written by whoever has it, as a command does. After that a thread of its own writes, and
 * nobody waits: lines queue, in bounded memory, and those that find no room are counted and told of when there is room again
 * ("log_dropped lines=N"). A reader that has stopped, a full pipe or a dead mount stops that thread only. Any thread. */
#ifndef LOG_SINK_H
#define LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_SINK_MAX_BYTES = 1 << 20 }; /* of lines that wait; a quarter of it is for errors alone */

void log_sink_start(void);
/* Takes the line, which log_line_format() made. */
void log_sink_put(char *line, size_t length, bool is_error);
/* Lines from here on go to fd, which it takes over; the one before it is closed, unless it is standard error. */
void log_sink_use(int fd);
/* Waits until everything was written, but no longer than this. False: something was not. */
bool log_sink_flush(uint64_t timeout_ms);
/* The same, and lines are written by whoever has them again; if the thread is stuck, they are dropped. */
void log_sink_stop(uint64_t timeout_ms);

#endif
