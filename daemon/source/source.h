/* Where bytes are. A source backend opens an artifact reference as a list of files and reads byte ranges of them.
 *
 * One `struct source` is one opened artifact: its files, each with size and identity, and open handles. It is
 * reference-counted (artifact cache, loads and replicas share it) and const after source_open(), so reads come from any
 * thread. Callers use the checked wrappers below, never the ops: contract and counters live there once.
 * Every backend is a folder below this one and a row of store_table.c; tests/support/source_memory.c is the smallest. */
#ifndef SOURCE_SOURCE_H
#define SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/arrival.h"
#include "base/cancel.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/loop.h"

struct source;
struct stores; /* source/stores.h */

/* What identifies one version of a file. Disk: device, inode, size, mtime and ctime in ns. Stores: the size and a digest
 * in the other four, see source_identity_of(). */
struct source_identity {
    uint64_t device, inode, size_bytes, mtime_ns, ctime_ns;
    uint64_t
        lease_span; /* not 0: the rest says it of this stretch of time in this process only, see source/disk/file_lease.h */
};

/* How a change would be noticed between the moment of the identity and the end of a load. Worst last. */
enum change_detector {
    CHANGES_BY_VERSION,    /* the store's: every read names it */
    CHANGES_BY_LEASE,      /* a read lease of the kernel: no process can write meanwhile */
    CHANGES_BY_TIMESTAMPS, /* a file that has not changed for a while, so that the next change shows */
    CHANGES_RACY,          /* its timestamps do not tell: what is read is used once and not kept */
};
const char *change_detector_name(enum change_detector detector); /* "version", "lease", "timestamps", "racy" */

/* Why the bytes of a file cannot change, whichever process tries. Strongest first. */
enum immutability {                          /* the later, the weaker */
                    IMMUTABLE_BY_NOTHING,    /* there is no file to be proven */
                    IMMUTABLE_BY_FS_VERITY,  /* the kernel checks them against a digest */
                    IMMUTABLE_BY_SUPERBLOCK, /* of a file system that has no way to write */
                    IMMUTABLE_BY_ATTRIBUTE,  /* chattr +i */
                    IMMUTABLE_BY_ROOT,       /* the operator says so of its folder */
};
const char *immutability_name(enum immutability proof); /* "fs_verity", "read_only_superblock", ...; "" for nothing */

struct source_file {
    const char *name; /* relative to the artifact: "model-00001-of-00004.safetensors" */
    uint64_t size_bytes;
    struct source_identity identity;
    enum change_detector changes_by;
    const char *changes_reason; /* static; why by nothing better, "" or NULL = there is nothing better */
    const char *version;        /* owned; what pins it, for people: "generation 17", "etag \"ab\""; NULL on disk */
    const char *pin;            /* owned; the same for programs, as the store's folder says; NULL = there is none */
    int fd;                     /* the backend's: of the file on this host, to be mapped; -1 = there is none */
    struct checksum checksums[CHECKSUM_PER_FILE]; /* of the whole file, as the store gives them */
};

enum source_filesystem { SOURCE_LOCAL, SOURCE_NETWORK }; /* unknown types count as network */

struct source_caps {                  /* data the planner and the engine read; never backend names */
    bool direct_reads;                /* O_DIRECT or the like works, with these alignments */
    uint32_t direct_memory_alignment; /* of the buffer */
    uint32_t direct_offset_alignment; /* of offset and length */
    bool residency;                   /* source_resident_bytes() can tell what is cached */
    uint64_t device_id;               /* which device's calibration applies */
    uint64_t device_set;              /* a number for the devices that its files are on: the same for the same set */
    enum source_filesystem filesystem;
    char filesystem_type[16];   /* "ext4" */
    bool reads_are_requests;    /* a read costs a round trip: few, large and many at once */
    uint64_t request_bytes;     /* then: what one should ask for */
    uint32_t parallel_requests; /* then: how many are worth having in flight */
    bool asks_server;           /* opening a file does, which may refuse, not answer, or hide what it does not show */
    bool tells_speed;           /* source_speed() says what reads cost; otherwise the calibration of device_id does */
    bool sums_on_the_way;       /* source_read.checksum is computed of what passes */
    bool lands_in_place;        /* reads need no staging, whatever is cached */
    bool has_folders;           /* what lies beside a single file belongs to it, and its folder can be opened */
};
/* What is true of every store behind HTTP, for initialisers. */
#define SOURCE_CAPS_OF_REQUESTS                                                                                             \
    .reads_are_requests = true, .asks_server = true, .tells_speed = true, .sums_on_the_way = true, .lands_in_place = true

/* What a source has learned about its own speed; zero = not known yet. */
struct source_speed {
    uint64_t latency_us, connection_bytes_per_s, bytes_per_s;
    uint32_t parallel_requests; /* allowed at once just now */
    uint64_t requests, retries, hedges, throttled, received_bytes;
};

enum { SOURCE_MAX_EXTENTS = 4096 };

struct source_extent { /* of a file */
    uint64_t offset, bytes;
};

struct source_read {
    size_t file;
    uint64_t offset;
    const struct iovec *iov; /* a NULL base throws its length away */
    int n_iov;
    bool direct;                 /* bypass the page cache; the caller keeps the alignment of caps */
    bool is_cached;              /* it is in the page cache, and the buffers are read much later: see base/copy.h ... */
    const void *trash;           /* ... then a buffer that begins here may be left as it is; may be NULL */
    bool fresh_connection;       /* after a checksum did not match */
    const struct cancel *cancel; /* asked while a server is waited for; may be NULL */
    uid_t uid;                   /* who reads: requests in flight are shared between users; without `cancel` the opener */
    enum checksum_kind checksum; /* a CRC to compute on the way, thrown away bytes included */
    uint64_t checksum_value;     /* out */
    struct arrival *arrival;     /* of requests: told of bytes as they come; may be NULL */
};

/* What a checkpoint is made of: the caller's to know. Constant. */
struct source_format {
    bool (*is_part)(const char *name);            /* a reference that ends in such a name means one file, not a folder */
    bool (*is_whole)(const char *folder_on_disk); /* every part is there */
};

struct source_options {
    const struct source_format *format; /* NULL = no name is that of a part */
    const char *const *trusted_roots;   /* canonical absolute directories */
    size_t n_trusted_roots;
    const char *const *immutable_roots; /* directories below which nothing changes, as the operator says */
    size_t n_immutable_roots;
    bool allow_relative;         /* standalone command line only: no roots are enforced then */
    struct stores *stores;       /* NULL = no object stores */
    const struct cancel *cancel; /* source.cancel; may be NULL */
    uid_t uid;                   /* source.uid */
    bool for_sidecars;           /* a local copy of the tensors alone does not do */
};

/* Opens every file that `wanted` names (see resolve/artifact.c, which decides); file handles stay open until the last
 * unref, so an unlinked or replaced file is still read consistently. */
struct source_ops {
    const char *name;   /* "disk" */
    size_t source_size; /* the core allocates this much, zeroed, beginning with struct source */
    /* Required. Opens the directory or single file behind `path`. Sets is_single_file. */
    int (*open)(struct source *source, const char *path, const struct source_options *options, struct error *error);
    /* Required. Names of the entries of the directory, or of `folder` below it (NULL: its own), sorted bytewise, for
     * discovery. Stores end the names of folders with a slash. UNIMPLEMENTED where no listing exists: names are tried then. */
    int (*list)(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error);
    /* Optional. These files will be opened next: what must be asked about each is asked at once. One that is not there is no
     * error before it is opened. */
    int (*expect)(struct source *source, const char *const *names, size_t n_names, struct error *error);
    /* Required. Opens one regular file by name, never outside the trusted roots; fills name, size and identity. */
    int (*open_file)(struct source *source, const char *name, struct source_file *file, void **handle, struct error *error);
    /* Required. Reads exactly the bytes that the iovecs hold from `offset`; short reads are retried inside, end of file is
     * DATA_LOSS. */
    int (*read)(struct source *source, struct source_read *read, struct error *error);
    /* Optional. How many of these bytes are in the page cache. */
    uint64_t (*resident_bytes)(struct source *source, size_t file, const struct source_extent *extents, size_t n_extents);
    /* Optional. A new read-only descriptor of a file whose bytes cannot change, the caller's to close, or -1:
     * FAILED_PRECONDITION, NOT_IMMUTABLE, when nothing proves that. */
    int (*open_immutable)(struct source *source, size_t file, enum immutability *proof, struct error *error);
    /* Required. 0 while what was read is the file that was opened, and with `by_name` while its name still leads to it, else
     * FAILED_PRECONDITION naming it. Only `by_name` may ask a server: elsewhere every read says so itself. */
    int (*check_unchanged)(struct source *source, size_t file, bool by_name, struct error *error);
    /* Optional. What it has learned about its speed. */
    void (*speed)(struct source *source, struct source_speed *speed);
    /* Optional: closes the handles, and `close` only the rest. Then a source with files of its own can share the artifact of
     * another: all functions find that by source_owner(). Without it such a source is opened a second time. */
    void (*close_files)(struct source *source);
    void (*close)(struct source *source);
};

struct source {
    const struct source_ops *ops;
    struct source *of;                  /* the source whose artifact it shares; NULL = its own */
    const char *reference;              /* "disk:/models/llama" without a trailing slash, as redact_copy() shows it */
    const struct source_format *format; /* of the options */
    bool is_single_file;
    const char *file_name; /* of the single file, the backend's; NULL = the last part of the reference */
    struct source_file *files;
    void **handles;
    size_t n_files;
    struct source_caps caps;
    const struct cancel *cancel; /* of the request that opens it and its files; taken away before it is shared */
    uid_t uid;                   /* who opened it, also once it is shared */
    uint64_t waited_ns;          /* the backend's: for files that were changed just now */
    int references;              /* atomic */
};

static inline struct source *source_owner(struct source *source)
{
    return source->of ? source->of : source;
}

/* Finds the store by scheme (source/store.h) and opens the reference, without any file yet. */
int source_open(const char *reference, const struct source_options *options, struct source **source, struct error *error);
bool source_is_remote(const char *reference); /* by its scheme; false for what source_open() would refuse */
/* Fills in pool and lane of work that asks the reference's server or file system, which may not answer. Asks neither. */
void source_place_work(const char *reference, struct loop_work *work);
/* As source.reference would be, which replicas are listed by, malloced; NULL: it can be no reference. Asks no server. */
char *source_listed(const char *reference, struct error *error);
/* The same artifact again, without any file: for documents that do not belong to its files. */
int source_open_beside(struct source *source, const struct source_options *options, struct source **beside,
                       struct error *error);
struct source *source_ref(struct source *source);
void source_unref(struct source *source); /* any thread; accepts NULL; the last one closes */

/* As the op; the caller frees each and all. */
int source_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error);
int source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error);
int source_add_file(struct source *source, const char *name, size_t *file, struct error *error); /* before it is shared */
int source_read(struct source *source, struct source_read *read, struct error *error);
/* As the op. At most SOURCE_MAX_EXTENTS at once. */
uint64_t source_resident_extents(struct source *source, size_t file, const struct source_extent *extents, size_t n_extents);
uint64_t source_resident_bytes(struct source *source, size_t file, uint64_t offset, uint64_t bytes); /* of one */
/* As the op; also -1 where the files are not on this host. */
int source_open_immutable(struct source *source, size_t file, enum immutability *proof, struct error *error);
/* Maps the pages that hold these bytes, read-only, for munmap(); NULL = it cannot be done. */
void *source_map(const struct source *source, size_t file, uint64_t offset, uint64_t bytes, uint64_t *mapped_bytes);
int source_check_unchanged(struct source *source, size_t file, struct error *error); /* by name */
int source_check_still(struct source *source, size_t file, struct error *error);     /* what was read so far */
/* Whether a file that could not be opened may be one that is not there: a server that lists nothing may hide that behind
 * "forbidden". Where requests must not lead is no such answer. */
bool source_may_be_absent(const struct source *source, const struct error *error);
bool source_has_changed(const struct error *error); /* what a read or the check above says of a file that was replaced */
void source_speed(struct source *source, struct source_speed *speed); /* all zero where nothing is known */

bool source_is_part(const struct source *source, const char *name); /* by its format */
/* INVALID_ARGUMENT, for a backend's open: what is wrong with the reference, as it is shown. Returns -1. */
int source_fail_reference(const struct source *source, const char *complaint, struct error *error);

/* An identity for what a store calls a version: `text` names store, object and pin. */
struct source_identity source_identity_of(const char *text, uint64_t size_bytes);

#endif
