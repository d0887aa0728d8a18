/* Files of an artifact, through the daemon, into a folder. */
#ifndef CLI_FETCH_FILES_H
#define CLI_FETCH_FILES_H

#include "backend.h"
#include "client/file_set.h"

struct fetched {
    struct file_set set;
    uint64_t read_bytes; /* without those that an earlier run had fetched */
};

/* Lists the files that the command line asks for, and fetches them. To be given to fetched_fini() also after a failure. */
int fetch_into_folder(struct backend *backend, const char *folder, struct fetched *fetched, struct error *error);
void fetched_fini(struct fetched *fetched);

/* What `folder` does, too: the list, then the bytes. Signals only raise a flag meanwhile. */
int fetch_list(struct backend *backend, struct fetched *fetched, struct error *error);
/* UNIMPLEMENTED where a file lies in a folder below. */
int fetch_check_flat(const struct fetched *fetched, struct error *error);
int fetch_bytes(struct backend *backend, struct fetched *fetched, const struct file_sink *sink, struct error *error);

#endif
