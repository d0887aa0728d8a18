/* Checks of a host, its configuration and its daemon, for `tensorcast doctor`. They change nothing. Each runs in a process of its
 * own with a deadline, since a mount may hang. One thread. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"

enum check_state { CHECK_OK, CHECK_WARNING, CHECK_FAILED, CHECK_SKIPPED, CHECK_STATES };
extern const char *const check_state_names[CHECK_STATES]; /* "warning" */

struct check {
    const char *name;
    enum check_state state;
    char *message, *advice; /* NULL = none, as of what is well */
};

struct patient {
    const struct config *config;
    const char *config_name; /* a file, or "the defaults" */
    const char *socket;      /* where a daemon was asked */
    uint64_t daemon_pid;     /* 0 = none answers */
    const char *daemon_version, *devices_problem;
    const char *folder; /* of the artifact that was named; NULL = none on a disk */
};

struct doctor_row {
    const char *name;
    void (*run)(const struct patient *patient, struct check *check);
};
extern const struct doctor_row doctor_rows[]; /* a NULL name ends them */

/* A check's result, in the functions of the rows. The worst state counts, messages are joined by "; ", the first advice stays. */
void check_say(struct check *check, enum check_state state, const char *advice, const char *message, ...)
    __attribute__((format(printf, 4, 5)));

/* Fills in a check, whose texts the caller frees. FAILED where it did not end within timeout_ms. */
void doctor_run(const struct doctor_row *row, const struct patient *patient, uint64_t timeout_ms, struct check *check);

/* The rest of the rows: doctor_speed.c. */
void doctor_check_disk_speed(const struct patient *patient, struct check *check);
void doctor_check_memory_speed(const struct patient *patient, struct check *check);

#endif
