/* Files and folders into a store, with the rights and credentials of the command's user: what `put` does, and `export` with a
 * reference behind --out. A folder's documents (*.json) go last, so that a reader of the store does not find an index without
 * its files. */
#ifndef CLI_UPLOAD_FILES_H
#define CLI_UPLOAD_FILES_H

#include "backend.h"
#include "base/json.h"
#include "sink/sink.h"

enum { UPLOAD_FILES_MAX = 1000000, UPLOAD_FILES_MAX_DEPTH = 64 };

struct uploaded_file {
    char *name, *path, *reference; /* name: below the folder; of a single file its own */
    uint64_t bytes, device, inode; /* as it was found: what is sent is this file and no other that has its name by then */
    struct sink_result result;
    uint64_t done_bytes; /* so far */
};

struct upload_files {
    struct backend *backend;
    struct uploaded_file *files; /* sorted by name */
    size_t n_files, capacity;
    uint64_t total_bytes;
    bool force, resume;
};

/* Is it a reference that is written to by sink_put(), not a path? */
bool upload_files_is_reference(const char *text);
/* Looks at what is at `path`: a file, or a folder with all that is below it. Symbolic links to files are followed
 * (followed_link.h), to folders not. A reference that ends with a slash gets the name of a single file added. Sends nothing. */
int upload_files_find(struct upload_files *upload, const char *path, const char *reference, struct error *error);
/* Sends them. Signals only raise a flag from here on. */
int upload_files_send(struct upload_files *upload, struct error *error);
void upload_files_fini(struct upload_files *upload);

/* "files": [...], "bytes": {...} */
void upload_files_put(const struct upload_files *upload, struct json_writer *json);

#endif
