/* Shared by activation_writer.c and activation_table.c. */
#ifndef ACTIVATIONS_WRITER_PRIVATE_H
#define ACTIVATIONS_WRITER_PRIVATE_H

#include "activations/activation_writer.h"
#include "activations/host_registry.h"

enum writer_state { WRITER_WAITING, WRITER_OPENING, WRITER_READY, WRITER_WORKING, WRITER_CLOSING, WRITER_CLOSED };

enum { MAX_FULL = 2 /* segments of a writer that are not sealed yet */ };

struct counted_host { /* a folder that was ever written */
    struct counted_host *next;
    struct known_host known;
    uint64_t bytes; /* on the disk, when nobody has it open */
};

struct activations {
    struct loop *loop;
    char *state_dir;
    struct activation_limits limits;
    struct activation_writer *writers;
    struct counted_host *hosts;
    struct loop_work list; /* of the registry, at the start */
    struct known_host *listed;
    size_t n_listed;
    bool is_listing, is_draining, is_stopped;
};

struct writer_seal { /* sealing of full segments, first comes first */
    struct loop_work work;
    struct segment_builder *queue[MAX_FULL + 1];
    size_t n_queued;
    bool is_running, has_failed;
    struct error error; /* of the last one, when it has failed */
};

struct coming_sample { /* the one that is being appended */
    bool is_begun;
    struct sample sample; /* its texts are in the arena */
    struct arena arena;
    uint64_t received_bytes;
    uint64_t reserved_bytes; /* of the disk */
};

struct activation_writer {
    struct activation_writer *next;
    struct activations *table;
    unsigned char id[WRITER_ID_BYTES];
    char *path;
    struct host_folder_options options; /* path is the one above */
    uid_t uid;
    struct metadata_account account;
    enum writer_state state;
    bool is_left; /* its client is gone, or the daemon stops: it ends after the call under way */
    bool is_recovery;
    bool is_finished; /* no further segment gets full: it is closed when the last one is sealed */
    struct host_folder *folder;
    struct device_region *region;
    void *memory;
    struct loop_watch *watch; /* of the region's connection */
    struct loop_work work;
    int (*step)(struct activation_writer *writer, struct error *error); /* of work */
    struct writer_call *call;                                           /* under way; NULL = none */
    struct append_part part;
    struct coming_sample coming;
    struct loop_timer *timer;
    bool is_blocked; /* the call under way waits for room */
    uint64_t wait_until_ns;
    struct writer_seal seal;
};

/* activation_table.c: may the sample that is coming be begun? 1 = yes, and its bytes are reserved; 0 = not yet; -1 = never. */
int writer_find_room(struct activation_writer *writer, struct error *error);
void writer_give_room_back(struct activation_writer *writer);

/* activation_table.c */
struct counted_host *table_count_host(struct activations *table, const char *path, uint32_t host, uid_t uid);
struct activation_writer *table_find_writer(const struct activations *table, const char *path, uint32_t host,
                                            const struct activation_writer *but);

/* activation_writer.c: begins one for a folder that a crash may have left. */
void writer_recover(struct activations *table, const struct known_host *host);
void writer_leave(struct activation_writer *writer);
void writer_free(struct activation_writer *writer);

#endif
