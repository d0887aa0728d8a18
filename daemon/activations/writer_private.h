/* Shared by activation_writer.c, whose functions run on the loop, and writer_folder.c, whose functions run on helpers. */
#ifndef ACTIVATIONS_WRITER_PRIVATE_H
#define ACTIVATIONS_WRITER_PRIVATE_H

#include "activations/activation_writer.h"
#include "activations/host_table.h"
#include "activations/host_uploads.h"
#include "base/quota.h"

enum writer_state { WRITER_WAITING, WRITER_OPENING, WRITER_READY, WRITER_WORKING, WRITER_CLOSING, WRITER_CLOSED };

enum { MAX_FULL = 2 }; /* segments of a writer that are not sealed yet */

struct activations {
    struct loop *loop;
    char *state_dir;
    struct activation_limits limits;
    struct activation_writer *writers;
    struct host_table *hosts;
    struct host_uploads *uploads;
    struct loop_work list; /* of the registry, at the start */
    struct known_host *listed;
    size_t n_listed, n_begun; /* of those, whose recovery has begun; they are freed when the last one's has */
    size_t n_recoveries;
    bool is_begun; /* activations_recover() was called */
    bool is_listing, is_draining, is_stopped;
};

struct writer_seal { /* sealing of full segments, first comes first */
    struct loop_work work;
    struct segment_builder *queue[MAX_FULL + 1];
    size_t n_queued;
    bool is_running, has_failed;
    bool is_unqueued;   /* something that is sealed could not be queued for upload */
    struct error error; /* of the last one, when it has failed */
};

struct coming_sample { /* being appended */
    bool is_begun;
    struct sample sample; /* its texts are in the arena */
    struct arena arena;
    uint64_t received_bytes;
    uint64_t reserved_bytes; /* of the disk */
    uint64_t most_bytes;     /* that the quota has for it and those that follow */
};

struct writer_wait {
    struct loop_timer *timer;
    uint64_t until_ns;
    bool is_blocked; /* the call under way waits for room */
};

enum step_kind { STEP_OPEN, STEP_APPEND, STEP_FINISH, STEP_COMMIT, STEP_CLOSE };

struct writer_step { /* what a helper does, and what came of it */
    struct loop_work work;
    enum step_kind kind;
    struct loop_task accept; /* posted by an append that can be answered already */
    bool has_failed;
    struct error error;
    struct host_resume resume;
    uint32_t block_offset;
    uint64_t disk_bytes; /* of the folder that was closed */
};

struct next_call { /* waits for a step whose call was answered early; call NULL = there is none */
    struct writer_call *call;
    void (*begin)(struct activation_writer *writer);
    struct append_part part;
};

struct lost_sample { /* a write that failed after its call was answered: only what is durable counts */
    bool is_lost;
    struct error error;
};

struct writer_memory { /* of the client, out of which its samples are written */
    struct device_region *region;
    void *address;
    struct loop_watch *watch; /* of the region's connection */
    bool is_overlapped;       /* a part is used until the next call is answered */
};

struct writer_user {
    uid_t uid;
    struct metadata_account account;
    struct quota_charge descriptors;
};

struct activation_writer {
    struct activation_writer *next;
    struct activations *table;
    unsigned char id[WRITER_ID_BYTES];
    struct known_host known;            /* its folder, and where its segments go */
    struct host_folder_options options; /* path is the one above */
    struct writer_user user;
    enum writer_state state;
    bool is_left; /* its client is gone, or the daemon stops: it ends after the call under way */
    bool is_recovery;
    struct table_host *host; /* from its opening on */
    struct host_folder *folder;
    struct writer_memory memory;
    struct writer_step step;
    struct writer_call *call; /* under way; NULL = none, or it was answered early */
    struct append_part part;
    struct next_call next_call;
    struct lost_sample lost;
    struct coming_sample coming;
    struct writer_wait wait;
    struct writer_seal seal;
};

/* Steps on helpers, one at a time, with sealing beside them. */
int writer_open_folder(struct activation_writer *writer, struct error *error);
/* Posts step.accept once the disk has taken the sample's room, when its memory is overlapped. */
int writer_append_bytes(struct activation_writer *writer, struct error *error);
int writer_seal_first(struct activation_writer *writer, struct error *error); /* of the queue */
/* Seals all that is left. What cannot be sealed stays for the next writer that opens the folder. */
int writer_close_folder(struct activation_writer *writer, struct error *error);
/* Loop thread, between two steps. */
void writer_take_full(struct activation_writer *writer);
void writer_shift_queue(struct writer_seal *seal);

#endif
