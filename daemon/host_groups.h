/* Ties groups of ranks (load/rank_registry.h) to the other hosts (hosts/hosts.h), so that they may span hosts. Loop thread. */
#ifndef HOST_GROUPS_H
#define HOST_GROUPS_H

struct hosts;
struct load_table;
struct rank_registry;

/* Before the first load. Goes after hosts and loads: by rank_registry_destroy(). */
struct rank_registry *host_groups_join(struct hosts *hosts, struct load_table *loads);

#endif
