/* Where a command's work is done: by the daemon (served.c) or in this process (standalone.c). Same calls, same results.
 *
 * Created for one command, used from the main thread, blocking. The deadline of --timeout counts from backend_create().
 * What is loaded stays in memory until backend_release(). */
#ifndef CLI_BACKEND_H
#define CLI_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "args.h"
#include "base/cancel.h"
#include "base/error.h"
#include "catalog.h"
#include "client/file_set.h"
#include "client/report_json.h"
#include "progress.h"
#include "read_file.h"
#include "selection.h"

struct backend;

/* Tensors in this process's memory, wherever they came from. Names and shapes are borrowed from what owns the memory. */
struct loaded {
    struct report_json_tensor *tensors; /* view order */
    size_t n_tensors;
    const Tensorcast__Daemon__V1__LoadReport *report;
    void *copy;  /* of GPU memory, so that it can be looked at; NULL = none was needed */
    void *owner; /* of memory and report, known to the backend that loaded it */
};

struct sidecar_taker { /* is told of each file that was written */
    void (*take)(void *data, const char *name, uint64_t bytes);
    void *data;
    bool is_anew; /* documents are to be true of tensors that are written anew, see variant/documents.h */
};

struct backend_ops {
    const char *name;
    int (*open)(struct backend *backend, struct error *error);
    /* flags: TC_RESOLVE_FRESH, TC_RESOLVE_INDEXES. */
    struct catalog *(*resolve)(struct backend *backend, int flags, struct error *error);
    int (*load)(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error);
    int (*explain)(struct backend *backend, const struct tc_view *view, char **json, char **text, struct error *error);
    int (*fetch_sidecars)(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                          struct error *error);
    /* The files of the kind that the command line asks for, and their bytes. */
    int (*list_files)(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error);
    int (*fetch_files)(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                       struct error *error);
    struct tc_verification *(*verify)(struct backend *backend, bool with_manifest, struct error *error);
    int (*read_config)(struct backend *backend, const char *artifact, char **json, size_t *length, struct error *error);
    int (*blame)(struct backend *backend, const char *load_id, struct arena *arena,
                 const Tensorcast__Daemon__V1__BlameResponse **response, struct error *error);
    void (*release)(struct backend *backend, struct loaded *loaded);
    void (*close)(struct backend *backend);
};

struct backend {
    const struct backend_ops *ops;
    const struct args *args;
    struct progress progress;
    uint64_t deadline_ns;       /* UINT64_MAX = none */
    struct cancel cancel;       /* the signal and --timeout, for what waits in this process */
    struct selection selection; /* see selection_build() */
    struct tc_variant *variant; /* NULL = the artifact as it is stored */
    struct input_text standard_input;
    bool gives_stdout;     /* the result goes to standard output, for the process that reads it there */
    bool has_told_failure; /* by a command: the object that it printed holds the error */
    void *state;           /* the backend's own */
};

extern const struct backend_ops backend_served, backend_standalone;

/* Chooses by args->standalone. */
int backend_create(struct backend *backend, const struct args *args, struct error *error);
void backend_destroy(struct backend *backend); /* also after a failed create */

/* What --variant and --dtype say, with each ${KEY} filled in; nothing where there is none. Before anything below. */
int backend_read_variant(struct backend *backend, struct error *error);
/* An artifact's config.json, which the caller frees; NULL = it has none. */
int backend_read_config(struct backend *backend, const char *artifact, char **json, size_t *length, struct error *error);
struct catalog *backend_resolve(struct backend *backend, int flags, struct error *error); /* NULL on error */
/* view NULL = everything. An interrupt ends it with CANCELLED. */
int backend_load(struct backend *backend, const struct tc_view *view, struct loaded *loaded, struct error *error);
void backend_release(struct backend *backend, struct loaded *loaded); /* accepts a zeroed one */
/* Traces of loads that have ended: of that one, of which there is at least one then, or of all for "". In the arena, or for as
 * long as the backend. */
int backend_blame(struct backend *backend, const char *load_id, struct arena *arena,
                  const Tensorcast__Daemon__V1__BlameResponse **response, struct error *error);
/* The caller frees both texts. */
int backend_explain(struct backend *backend, const struct tc_view *view, char **json, char **text, struct error *error);
/* Every byte is read and compared with what is known of it. NULL on error, which damage is none. Signals only raise a flag
 * from here on. */
struct tc_verification *backend_verify(struct backend *backend, bool with_manifest, struct error *error);
/* DATA_LOSS with what is wrong with the first damaged file; 0 when there is none. */
int backend_fail_damage(const struct tc_verification *verification, struct error *error);
/* Writes the artifact's sidecars into a folder, each as a whole. Signals only raise a flag from here on. */
int backend_fetch_sidecars(struct backend *backend, const char *folder, const struct sidecar_taker *taker,
                           struct error *error);

/* The list of the artifact's files, then their bytes. Signals only raise a flag meanwhile. */
int backend_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error);
int backend_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                        struct error *error);

/* What the command line says of a load; progress is the caller's. */
struct tc_options backend_options(const struct backend *backend);

/* Milliseconds until the deadline, at least 1; 0 = there is none. Fails with DEADLINE_EXCEEDED when it has passed. */
int backend_time_left(const struct backend *backend, uint64_t *left_ms, struct error *error);
/* The work is to end: a signal, or a reader of the result that has left. */
bool backend_is_unwanted(const struct backend *backend);
/* -1, with an error that came of backend.cancel made to say what that was about. */
int backend_fail(const struct backend *backend, struct error *error);
void backend_warn(const char *note); /* a line on standard error */

#endif
