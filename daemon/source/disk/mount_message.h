/* What the daemon and the process that makes its system calls on a FUSE mount (mount_child.h) say to each other: requests
 * and replies of one size over a connection (a SEQPACKET socket with a piece of shared memory beside it), and control
 * messages over the socket that the process was started with. Texts, names and bytes of files go through the memory.
 * Both ends are the same program; what comes is checked all the same. Pure; any thread. */
#ifndef SOURCE_MOUNT_MESSAGE_H
#define SOURCE_MOUNT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "source/source.h"

enum {
    MOUNT_SLOTS = 4, /* reads in flight of one connection: one is copied out of its slot while the next one is made */
    MOUNT_SLOT_BYTES = 1 << 20, /* the largest request that the kernel sends to a FUSE server */
    MOUNT_MEMORY_BYTES = MOUNT_SLOTS * MOUNT_SLOT_BYTES,
    MOUNT_MAX_PLACE_BYTES = 64 << 20, /* of one read into memory that goes along */
    MOUNT_MAX_TEXTS = 1 + 1024,       /* a path, and the trusted roots */
};

enum mount_op {
    MOUNT_OPEN,            /* texts: path, roots. Makes `source`, whose number the asker has chosen */
    MOUNT_LIST,            /* the first names, each ended by NUL ... */
    MOUNT_LIST_REST,       /* ... and the next ones, until one reply has is_last */
    MOUNT_OPEN_FILE,       /* text: name */
    MOUNT_READ,            /* into `slot` */
    MOUNT_READ_INTO,       /* into the memory whose descriptor goes along, from `place` on */
    MOUNT_RESIDENT,        /* of the extents in the memory instead of texts, in `value` */
    MOUNT_CHECK_UNCHANGED, /* of `file` */
    MOUNT_CHECK_STILL,
    MOUNT_REALPATH, /* text: path; the answer is a text, too */
    MOUNT_GLANCE,   /* text: path; `file` is the kind, `bytes` the most to tell */
    MOUNT_OPS,
};

struct mount_request {
    uint32_t op, number;
    uint64_t source, offset, bytes, place;
    uint32_t file, slot;
    uint32_t text_bytes;  /* in the memory, from its beginning; each text ends with NUL */
    uint32_t is_direct;   /* of a read */
    uint32_t is_confined; /* of an open */
    uint32_t unused;
};

struct mount_opened { /* a file */
    struct source_identity identity;
    struct source_caps caps; /* of the file's source, this file included */
    uint32_t changes_by, changes_reason;
};

struct mount_reply {
    uint32_t number, has_failed;
    uint64_t value; /* bytes of names or of a text in the memory, or resident; the index of an opened file */
    bool is_last, is_single_file;
    struct mount_opened file;
    struct error error; /* not sent unless it has failed */
};
enum { MOUNT_REPLY_BYTES = offsetof(struct mount_reply, error) }; /* of one that has not failed */

enum mount_control_kind {
    MOUNT_CONNECT, /* descriptors: a connection's socket and memory */
    MOUNT_PING,    /* descriptor: a socket to answer a byte on */
    MOUNT_CLOSE,   /* drops `source` */
    MOUNT_CONTROL_KINDS,
};

struct mount_control {
    uint32_t kind, unused;
    uint64_t source;
};

/* 0 or -1: not a message of ours. `n_bytes`: what was received into it; the rest of a reply is cleared. */
int mount_message_check_request(const struct mount_request *request, size_t n_bytes);
int mount_message_check_reply(struct mount_reply *reply, size_t n_bytes);

int mount_message_get_error(const struct mount_reply *reply, struct error *error); /* of one that has failed; -1 */

/* The texts in `bytes`, which end with NUL and are borrowed. Returns their number, 0 when that is none or more than
 * MOUNT_MAX_TEXTS, or the last one has no end. */
size_t mount_message_split(const char *bytes, size_t n_bytes, const char *texts[MOUNT_MAX_TEXTS]);
/* Adds names of a folder to a list in bytewise order. -1: they are none, or not in order. Each is malloced. */
int mount_message_add_names(const char *bytes, size_t n_bytes, char ***names, size_t *n_names, size_t *room);

#endif
