/* The three ways to move bytes, and every name under which people meet them.
 *
 * One row per executor: in plans and reports; in the configuration; as an option of the command; and as the event of its
 * log lines, which is what operators of the original system search for. Constant data. Any thread. */
#ifndef CONFIG_EXECUTOR_H
#define CONFIG_EXECUTOR_H

/* clang-format off */
#define EXECUTORS(X) \
    X(GENERIC_BYTE_RANGE, "generic_byte_range", "GENERIC_BYTE_RANGE", "generic", "generic_byte_range_disk_load") \
    X(TENSOR_BATCHED_LOCAL, "tensor_batched_local", "TENSOR_AWARE_LOCAL", "local", "local_batched_disk_load") \
    X(OWNER_FILE_COLLECTIVE, "owner_file_collective", "OWNER_FILE_COLLECTIVE", "collective", "collective_disk_load")

#define EXECUTOR_ID(id, report, preference, option, event) EXECUTOR_##id,
#define EXECUTOR_PREFERENCE_ID(id, report, preference, option, event) EXECUTOR_PREFERENCE_##id,
enum executor { EXECUTORS(EXECUTOR_ID) EXECUTOR_COUNT };
/* What a request or the configuration asks for; the numbers are those of the protocol. */
enum executor_preference { EXECUTOR_PREFERENCE_AUTO, EXECUTORS(EXECUTOR_PREFERENCE_ID) };
/* clang-format on */

extern const char *const executor_names[], *const executor_events[]; /* by enum executor */
/* By enum executor_preference, "AUTO" and "auto" first; they end in NULL. */
extern const char *const executor_preference_names[], *const executor_option_names[];

#endif
