/* The host folders that this daemon has written, so that the next one finds what it left: a small file for each in the state
 * folder. Losing them costs nothing but that: whoever opens a host makes it whole. Blocks: helpers, one at a time for one folder. */
#ifndef ACTIVATIONS_HOST_REGISTRY_H
#define ACTIVATIONS_HOST_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum { HOST_REGISTRY_MAX = 1 << 16 };

struct known_host {
    char *path; /* of the store; malloced */
    uint32_t host;
    uid_t uid;      /* whose store it is */
    bool is_shared; /* the members' of limits.shared_group */
};

/* Durable when it returns 0. */
int host_registry_add(const char *state_dir, const struct known_host *host, struct error *error);
void host_registry_remove(const char *state_dir, const struct known_host *host);
/* All of them; what cannot be read is left out. The caller frees each path and the list. */
struct known_host *host_registry_list(const char *state_dir, size_t *n_hosts);

#endif
