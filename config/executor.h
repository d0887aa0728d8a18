/* The three ways to move bytes, and their names.
 *
 * One row per executor: its name in options, plans, reports and the log; that of the original system, in the configuration;
 * a short one, which options take as well; and what the original system logged, which its timings say beside the name.
 * Constant data. Any thread. */
#ifndef CONFIG_EXECUTOR_H
#define CONFIG_EXECUTOR_H

/* clang-format off */
#define EXECUTORS(X) \
    X(GENERIC_BYTE_RANGE, "generic_byte_range", "GENERIC_BYTE_RANGE", "generic", "generic_byte_range_disk_load") \
    X(TENSOR_BATCHED_LOCAL, "tensor_batched_local", "TENSOR_AWARE_LOCAL", "local", "local_batched_disk_load") \
    X(OWNER_FILE_COLLECTIVE, "owner_file_collective", "OWNER_FILE_COLLECTIVE", "collective", "collective_disk_load")

#define EXECUTOR_ID(id, name, preference, alias, original) EXECUTOR_##id,
#define EXECUTOR_PREFERENCE_ID(id, name, preference, alias, original) EXECUTOR_PREFERENCE_##id,
enum executor { EXECUTORS(EXECUTOR_ID) EXECUTOR_COUNT };
/* What a request or the configuration asks for; the numbers are those of the protocol. */
enum executor_preference { EXECUTOR_PREFERENCE_AUTO, EXECUTORS(EXECUTOR_PREFERENCE_ID) };
/* clang-format on */

extern const char *const executor_names[], *const executor_originals[]; /* by enum executor */
/* By enum executor_preference, "AUTO" and "auto" first; they end in NULL. The aliases are taken and never shown. */
extern const char *const executor_preference_names[], *const executor_option_names[], *const executor_option_aliases[];

#endif
