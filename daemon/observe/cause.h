/* What a load waits for, as `blame` lists it. The names are a promise to operators (docs/blame.md). Constant; any thread. */
#ifndef OBSERVE_CAUSE_H
#define OBSERVE_CAUSE_H

enum cause {
    CAUSE_QUEUE,   /* a thread of the daemon, or its turn among other loads */
    CAUSE_GROUP,   /* the other ranks of its group */
    CAUSE_HEADERS, /* the artifact's index and the headers of its files */
    CAUSE_PLAN,    /* the choice of how to read */
    CAUSE_MEMORY,  /* pages from the kernel, staging memory */
    CAUSE_STORE,   /* answers of a store */
    CAUSE_DISK,    /* reads of files, whether from a device or the page cache */
    CAUSE_PEERS,   /* bytes from other hosts */
    CAUSE_COPY,    /* bytes on their way from staging to their place */
    CAUSE_VERIFY,  /* checks after the read: checksums, the source unchanged, memory sealed */
    CAUSE_HANDOFF, /* the answer, with the layout */
    CAUSES
};

extern const char *const cause_names[CAUSES];

#endif
