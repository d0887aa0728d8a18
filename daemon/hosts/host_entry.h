/* The entry of a host in etcd: key hosts/NAME/INCARNATION, value a JSON object for programs and people. Pure; any thread.
 *
 *     {"name": "h1", "domain": "d", "address": "10.0.0.7:7070", "version": "0.1.0", "incarnation": "...", "started_ms": 1} */
#ifndef HOSTS_HOST_ENTRY_H
#define HOSTS_HOST_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

struct host_entry {
    char *name, *domain, *address, *incarnation, *version; /* address: ADDRESS:PORT, of numbers */
    uint64_t started_ms;                                   /* since 1970, by its own clock */
};

/* False, and an empty entry, for what no host wrote. Other members are ignored. */
bool host_entry_parse(const char *key, const char *value, struct host_entry *entry);
char *host_entry_key(const struct host_entry *entry);   /* the caller frees */
char *host_entry_write(const struct host_entry *entry); /* the value; the caller frees */
void host_entry_fini(struct host_entry *entry);         /* frees the texts */

bool host_name_is_good(const char *name); /* 1 to 63 letters, digits, '-', '_' and '.'; not "." or ".." */

#endif
