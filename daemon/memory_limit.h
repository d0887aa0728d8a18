/* How much memory this host, or the cgroup the daemon lives in, allows. Any thread. */
#ifndef MEMORY_LIMIT_H
#define MEMORY_LIMIT_H

#include <stdint.h>

/* The smaller of MemTotal and the memory.max of the own cgroup (v2) and all its parents. */
uint64_t memory_limit_bytes(void);

#endif
