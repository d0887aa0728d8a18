/* The journal's side of a log. A line that goes to it as a stream has only a priority; as an entry (systemd's native protocol: one
 * datagram of fields) it has the fields of the event as well: journalctl TENSORCAST_LOAD_ID=ID. Any thread. */
#ifndef OBSERVE_JOURNAL_H
#define OBSERVE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

bool journal_reads(int fd); /* by JOURNAL_STREAM: lines there begin with their priority, "<3>" */
/* A socket for entries where it reads fd; -1 where there is none, so that lines are all it gets. */
int journal_open(int fd);
/* One field of an entry; of "load_id" it is TENSORCAST_LOAD_ID. */
void journal_put(FILE *entry, const char *key, const char *value, size_t length);

#endif
