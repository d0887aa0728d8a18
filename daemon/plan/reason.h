/* Why an executor may run or may not, and why one was selected: a value that code decides on, and a text that people read.
 *
 * The text is written once, when the reason is made: the row's name, and behind a colon what is particular to this case.
 * The same rows are the tables of docs/planning.md (`make docs`). Plain values, no allocation. Any thread. */
#ifndef PLAN_REASON_H
#define PLAN_REASON_H

enum reason_kind {
    REASON_ELIGIBLE, /* nothing speaks against it */
    REASON_EXACT_GENERIC_FALLBACK,
    /* why local may not */
    REASON_LOCAL_NO_SEGMENTS,
    REASON_SOURCE_NOT_DISK,
    REASON_LOCAL_STRATEGY_DISABLED,
    REASON_LOCAL_PEAK_BUDGET,
    /* why AUTO does not want it */
    REASON_LOCAL_TIME,
    REASON_LOCAL_SOURCE_BYTES,
    /* why the collective may not */
    REASON_COLLECTIVE_POLICY_DISABLED,
    REASON_COLLECTIVE_NO_SEGMENTS,
    REASON_COLLECTIVE_STRATEGY_DISABLED,
    REASON_GROUP_MISSING,
    REASON_LOCALITY_HOST_LOCAL,
    REASON_SHARED_SOURCE_UNPROVEN,
    REASON_FILESYSTEM_HOST_LOCAL,
    REASON_COLLECTIVE_PEAK_BUDGET,
    REASON_OWNER_SKEW,
    REASON_DEDUP_SAVING,
    REASON_RESIDUAL,
    REASON_GROUP_ASSEMBLE_TIMEOUT,
    REASON_SOURCE_CHANGED,
    REASON_GROUP_CLOSED,
    REASON_GROUP_MEMBER_DECLINED,
    REASON_GROUP_MEMBER_FAILED,
    REASON_GROUP_RUNS_ALREADY,
    REASON_TRANSPORT_UNAVAILABLE,
    REASON_TRANSPORT_NEEDS_GPUS,
    REASON_TRANSPORT_NEEDS_A_GPU_PER_RANK,
    REASON_TRANSPORT_PEAK_BUDGET,
    REASON_TRANSPORT_DEVICE_BUDGET,
    REASON_TRANSPORT_FAILED,
    /* why an eligible collective did not run */
    REASON_PREFERS_OTHER_EXECUTOR,
    REASON_FROM_REPLICA,
    /* why an executor was selected */
    REASON_AUTO_LOCAL,
    REASON_AUTO_GENERIC,
    REASON_AUTO_COLLECTIVE,
    REASON_AUTO_COLLECTIVE_AFTER_LOCAL,
    REASON_COLLECTIVE_REQUIRED,
    REASON_PREFERENCE_COLLECTIVE,
    REASON_PREFERENCE_GENERIC,
    REASON_PREFERENCE_LOCAL,
    REASON_LOCAL_UNAVAILABLE,
    REASON_COLLECTIVE_UNAVAILABLE,
    REASON_COUNT,
};

enum { REASON_CHARS = 192 };

struct reason {
    enum reason_kind kind;
    char text[REASON_CHARS]; /* "group_assemble_timeout:missing=1,3" */
};

struct reason_row {
    const char *name;
    const char *shape;  /* what may follow the name, for the documentation */
    const char *of;     /* whose it is; NULL = a reason of selection */
    const char *advice; /* what it means, and what to do about it */
};

extern const struct reason_row reason_rows[REASON_COUNT];

struct reason reason_of(enum reason_kind kind);
struct reason reason_with(enum reason_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
