/* Shared by activation_writer.c, writer_calls.c and activation_table.c. */
#ifndef ACTIVATIONS_WRITER_PRIVATE_H
#define ACTIVATIONS_WRITER_PRIVATE_H

#include <pthread.h>

#include "activations/activation_writer.h"
#include "activations/host_table.h"
#include "activations/host_uploads.h"
#include "base/quota.h"

enum writer_state { WRITER_WAITING, WRITER_OPENING, WRITER_READY, WRITER_WORKING, WRITER_CLOSING, WRITER_CLOSED };

enum {
    MAX_FULL = 2, /* segments of a writer that are not sealed yet */
    MAX_RECOVERIES = 32,
    POLL_MS = 20,
    WRITER_DESCRIPTORS = 11, /* its folder and lock; segment and journal of the open and the full ones; what sealing opens */
};

struct new_size { /* of a folder, until the loop's thread counts it */
    struct new_size *next;
    char *path; /* of the store */
    uint32_t host;
    uint64_t bytes;
};

struct gone_look { /* for folders that are not there any more */
    struct loop_work work;
    struct store_roots roots;
    struct seen_host {
        char *path;
        uint32_t host;
        bool is_gone;
    } * hosts;
    size_t n_hosts;
    uint64_t rest_until_ns;
    bool is_running;
};

struct activations {
    struct loop *loop;
    char *state_dir;
    struct activation_limits limits;
    struct activation_writer *writers;
    struct host_table *hosts;
    struct host_uploads *uploads;
    pthread_mutex_t sizes_lock;
    struct new_size *sizes; /* at most one of each folder */
    struct loop_work list;  /* of the registry, at the start */
    struct known_host *listed;
    size_t n_listed, n_begun; /* of those, whose recovery has begun; they are freed when the last one's has */
    size_t n_recoveries;
    struct gone_look gone;
    bool is_listing, is_draining, is_stopped;
};

struct writer_seal { /* sealing of full segments, first comes first */
    struct loop_work work;
    struct segment_builder *queue[MAX_FULL + 1];
    size_t n_queued;
    bool is_running, has_failed;
    bool is_last;       /* no further segment gets full: the folder is closed when the last one is sealed */
    bool is_unqueued;   /* something that is sealed could not be queued for upload */
    struct error error; /* of the last one, when it has failed */
};

struct coming_sample { /* the one that is being appended */
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

struct writer_step { /* what a helper does, and what came of it */
    struct loop_work work;
    int (*run)(struct activation_writer *writer, struct error *error);
    void (*done)(struct activation_writer *writer);
    struct loop_task accept; /* posted by an append that can be answered already */
    bool has_failed;
    struct error error;
    struct host_resume resume;
    uint32_t block_offset;
};

struct next_call { /* waits for a step whose call was answered early; call NULL = there is none */
    struct writer_call *call;
    void (*begin)(struct activation_writer *writer);
    struct append_part part;
};

struct lost_sample { /* a write that failed after its call was answered: nothing is believed any more but what is durable */
    bool is_lost;
    struct error error;
};

struct writer_memory { /* of the client, out of which its samples are written */
    struct device_region *region;
    void *address;
    struct loop_watch *watch; /* of the region's connection */
    bool is_overlapped;       /* a part is used until the next call is answered */
};

struct writer_user { /* who has it, and what counts as his */
    uid_t uid;
    struct metadata_account account;
    struct quota_charge descriptors;
};

struct activation_writer {
    struct activation_writer *next;
    struct activations *table;
    unsigned char id[WRITER_ID_BYTES];
    char *path;
    struct host_folder_options options; /* path is the one above */
    struct writer_user user;
    enum writer_state state;
    bool is_left; /* its client is gone, or the daemon stops: it ends after the call under way */
    bool is_recovery;
    struct table_host *host; /* from its opening on */
    struct host_folder *folder;
    struct known_upload upload; /* its own */
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

/* activation_table.c: may the sample that is coming be begun? 1 = yes, and its bytes are reserved; 0 = not yet; -1 = never. */
int writer_find_room(struct activation_writer *writer, struct error *error);
void writer_give_room_back(struct activation_writer *writer);
void writer_count(struct activation_writer *writer); /* what it takes of the disk now */

/* activation_table.c: the folder is this writer's. *other: whose it is now; -1: it never will be. */
int table_take_host(struct activation_writer *writer, const struct activation_writer **other, struct error *error);
void table_leave_host(struct activation_writer *writer);

/* activation_writer.c: `run` on a helper, then `done` on the loop with what came of it in the call under way. */
void writer_submit(struct activation_writer *writer, int (*run)(struct activation_writer *writer, struct error *error),
                   void (*done)(struct activation_writer *writer));
void writer_answer(struct activation_writer *writer);
void writer_get_ready(struct activation_writer *writer); /* answers, and goes on with what waits */
void writer_begin_work(struct activation_writer *writer, struct writer_call *call);
void writer_begin_closing(struct activation_writer *writer, struct writer_call *call);
void writer_seal_full(struct activation_writer *writer);
void writer_start_sealing(struct activation_writer *writer);
void writer_try_append(struct activation_writer *writer); /* writer_calls.c: what waits for room may go on */

/* activation_writer.c: begins one for a folder that a crash may have left. */
void writer_recover(struct activations *table, const struct known_host *host);
void writer_leave(struct activation_writer *writer);
void writer_free(struct activation_writer *writer);

#endif
