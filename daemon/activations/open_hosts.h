/* Host folders that writers of this process have open, so that whoever learns something about a segment - that it was uploaded -
 * tells the writer's folder, and nobody opens a folder while another one is at it.
 *
 * Any thread; entering blocks while another one is at the same host. */
#ifndef ACTIVATIONS_OPEN_HOSTS_H
#define ACTIVATIONS_OPEN_HOSTS_H

#include "activations/host_folder.h"

struct open_hosts;

struct open_host {
    char *path; /* of the store */
    uint32_t host;
    struct host_folder *folder; /* a writer's; NULL = nobody has it open. Whoever has entered may change it */
    struct open_host *next;
    size_t n_inside; /* who is at it, or waits */
    bool is_taken;
};

struct open_hosts *open_hosts_create(void);
void open_hosts_destroy(struct open_hosts *hosts); /* accepts NULL */

/* NULL when somebody else was at it until then, as on a disk that does not answer; until_ns 0 = waits however long that takes. */
struct open_host *open_hosts_enter(struct open_hosts *hosts, const char *path, uint32_t host, uint64_t until_ns);
void open_hosts_leave(struct open_hosts *hosts, struct open_host *at);

#endif
