/* What /proc says of another process, and the descriptors of this one. A process that has ended, or that this one cannot see
 * (another PID namespace: pid 0), gives "". Never waits. Any thread. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_COMMAND_CHARS = 64, PROCESS_CGROUP_CHARS = 512 };

/* The command's name as `ps -o comm` shows it. Both return `out`; text from outside, not escaped. */
char *process_command(pid_t pid, char out[PROCESS_COMMAND_CHARS]);
/* Its path in the unified hierarchy, such as /system.slice/vllm.service; it names a unit, a container or a pod. */
char *process_cgroup(pid_t pid, char out[PROCESS_CGROUP_CHARS]);

/* Whether the process with this number began less than so long ago: then an earlier process had the number before. */
bool process_is_younger(pid_t pid, uint64_t age_ns);

/* A program that is started without descriptor 0, 1 or 2 gets its next socket or file under that number, and what it prints goes
 * there. To be called first in main(): each that is missing becomes one that cannot be used. */
void process_reserve_standard_fds(void);

/* As many as the hard limit says: replicas, files and connections cost one each, and the usual limit is for programs that use
 * select(). */
void process_allow_descriptors(void);

#endif
