/* What all object stores share: a source is a table of objects, files are read by pinned HTTP ranges.
 *
 * A backend embeds `struct object_source` at the beginning of its own struct, implements `struct object_ops` (what the store
 * calls its objects, where they are, how a request is signed and its answer judged) and one `open` that ends in
 * object_source_init(). Everything else of struct source_ops it takes from here:
 *     static const struct source_ops gcs_ops = {OBJECT_SOURCE_OPS("gs", struct source_gcs, gcs_open, gcs_close)};
 * Costs: one listing (or one stat of a file) for the life of a source, even where it is refused; the first read of a file's
 * head asks for a larger range and keeps it until the header is read, so a header costs one request, two when it is longer.
 * The table is const once listed; reads come from any thread. */
#ifndef SOURCE_OBJECT_SOURCE_H
#define SOURCE_OBJECT_SOURCE_H

#include <pthread.h>

#include "source/http/http.h"
#include "source/source.h"
#include "source/stores.h"

enum {
    OBJECT_MAX_OBJECTS = 1 << 20, /* of a listing */
    OBJECT_MAX_PAGES = 10000,     /* of a listing; empty pages count */
    OBJECT_MAX_PAGE_BYTES = 16 << 20,
    OBJECT_HEAD_BYTES = 256 << 10, /* of a file, asked for at once: headers of most parts fit */
};

struct object { /* texts are malloced and owned by the holder of the struct */
    char *name; /* relative to the artifact: "model.safetensors", "sub/config.json" */
    uint64_t size_bytes;
    char *pin;           /* what the store pins it by: generation, ETag with its quotes, commit; NULL or "" = nothing */
    char *version;       /* for people: "generation 17"; NULL = the pin */
    const char *refusal; /* static: why it cannot be read, for a backend's open to say; NULL = it can */
    bool comes_whole;    /* the server sends no parts: it is read as a whole, which must fit in a head */
    bool weak;           /* the pin does not hold on every range: check_unchanged asks again */
    struct checksum checksums[CHECKSUM_PER_FILE];
    char *location; /* optional: the URL it was found at, after redirects */
    char *head;     /* optional: the first bytes, when stat got them anyway; from metadata_alloc() */
    size_t head_bytes;
};

struct object_source;

struct object_file { /* the handle of an opened file; const while it is read, except for the head */
    struct object_source *source;
    const struct object *object; /* of the table */
    char *url;               /* malloced by ops->open: encoded, without secrets where the store can keep them in headers */
    struct http_store store; /* by ops->open; its data may be this struct */
    void *data;              /* the backend's, freed in ops->close; may be NULL */
    pthread_mutex_t lock;    /* of what follows */
    char *head;
    size_t head_bytes;
    bool head_done;
};

struct object_ops {
    /* Optional; NULL = the store cannot list, stat is asked name by name. Adds every object of the artifact, or of the folder
     * `below`, with object_source_add(), by names that begin with it; folders by names that end with a slash. Called at most
     * once for each; may block. */
    int (*list)(struct object_source *source, struct error *error);
    void (*listed)(struct object_source *source); /* optional: the listing was good; the table is sorted now */
    /* Optional when there is list, which then serves for single files, too. One object: for a reference to a single file,
     * for stores that cannot list, for weak pins. Fills all but `name`. NOT_FOUND when there is none. */
    int (*stat)(struct object_source *source, const char *name, struct object *object, struct error *error);
    /* Optional. What open has to know of an object beyond the table, and the store to be asked for: before it is opened, or
     * earlier where several are expected, of one object first, then of all others at once. A failure is open's to report. */
    void (*ask)(struct object_source *source, struct object *object);
    /* Required. Fills url, store and data of a file about to be read. */
    int (*open)(struct object_source *source, struct object_file *file, struct error *error);
    void (*close)(struct object_file *file); /* optional */
};

struct object_source {
    struct source base;
    const struct object_ops *objects_by;
    struct stores *stores;
    struct cancel cancel; /* base.cancel or that of all stores: for requests that have none of their own */
    char *origin;         /* "https://host:port": whose statistics are ours; NULL = all */
    pthread_mutex_t lock; /* of the table while it is made */
    bool listed;
    struct error refused; /* why the listing failed; it is not asked for again. Without one: why there is nothing to list */
    struct object **objects; /* and folders; sorted by name once listed */
    size_t n_objects, objects_capacity;
    const char *below; /* the folder that is being listed, "host_003/"; NULL = the artifact's own */
    char **belows;     /* folders of which the objects are in the table */
    size_t n_belows, belows_capacity;
    uint64_t object_bytes;
    struct quota_charge charge; /* of them, to who asks */
};

/* The end of a backend's open: fills caps. `type` is caps.filesystem_type, `origin` is borrowed and may be NULL.
 * A source without stores (options->stores == NULL) is refused with UNIMPLEMENTED. */
int object_source_init(struct object_source *source, const struct object_ops *ops, const struct source_options *options,
                       const char *type, const char *origin, struct error *error);
void object_source_fini(struct object_source *source); /* the backend's close; accepts what init refused or never saw */

/* Takes the texts of `object`, also on failure (too many). A name that occurs twice fails the listing afterwards. */
int object_source_add(struct object_source *source, struct object *object, struct error *error);
void object_clear(struct object *object); /* frees the texts */
/* What is left of `key` below `prefix` ("" or ending in a slash), or NULL when it does not lie there or what is left is no
 * plain file name: it is empty, "." or "..", or has a slash. An artifact is one folder, as on a disk: what lies deeper
 * belongs to others, folders' place holders are no files, and such names write to no disk. */
const char *object_source_name_below(const char *key, const char *prefix);

/* The rows of struct source_ops that every store shares. */
int object_source_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error);
int object_source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error);
int object_source_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                            struct error *error);
int object_source_read(struct source *source, struct source_read *read, struct error *error);
/* Nothing is asked where every range was pinned: what was read is one version, whatever the name leads to now. */
int object_source_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error);
void object_source_speed(struct source *source, struct source_speed *speed);
void object_source_close_files(struct source *source);

#define OBJECT_SOURCE_OPS(scheme, type, open_function, close_function)                                                      \
    .name = (scheme), .source_size = sizeof(type), .open = (open_function), .list = object_source_list,                     \
    .expect = object_source_expect, .open_file = object_source_open_file, .read = object_source_read,                       \
    .check_unchanged = object_source_check_unchanged, .speed = object_source_speed,                                         \
    .close_files = object_source_close_files, .close = (close_function)

#endif
