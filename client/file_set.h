/* The files of an artifact as they are, through the daemon: a list of them, then their bytes, window by window into memory of
 * this process, several windows at once. Every byte is checked against what the store says of its file. */
#ifndef CLIENT_FILE_SET_H
#define CLIENT_FILE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/error.h"
#include "client.h"

struct set_file {
    const char *name; /* checked: a plain file name, or one below plain folders */
    const char *identity;
    uint64_t bytes;
    struct checksum sums[CHECKSUM_PER_FILE];
    uint64_t
        had_bytes; /* from its beginning, which the fetching process has and the sink gives back: 0 unless set after listing */
};

struct file_set {         /* const once listed */
    const char *artifact; /* borrowed */
    struct set_file *files;
    size_t n_files;
    const char *identity; /* of all of them; changes when one does */
    uint64_t total_bytes;
    const char **notes; /* what was left out, for people */
    size_t n_notes;
    struct arena arena;
};

enum file_set_kind { FILE_SET_SIDECARS, FILE_SET_TENSORS, FILE_SET_ALL }; /* as on the wire */

/* Of `options` the time limit, the cancel flag and missing shards count. */
int file_set_list(struct tc_client *client, const char *artifact, enum file_set_kind kind, const struct tc_options *options,
                  struct file_set *set, struct error *error);
void file_set_fini(struct file_set *set); /* accepts a zeroed one */

/* Takes the bytes of a file from its beginning to its end. Files come on several threads at once, each on one at a time. */
struct file_sink {
    int (*begin)(void *data, size_t file, struct error *error);
    int (*put)(void *data, size_t file, const void *bytes, size_t count, struct error *error);
    int (*end)(void *data, size_t file, struct error *error); /* every byte came, and is what the store has sums of */
    void *data;
    /* Optional unless files have had_bytes: those again, for the sums; and that a file came and is not what the store has. */
    int (*had)(void *data, size_t file, uint64_t offset, void *bytes, size_t count, struct error *error);
    void (*spoil)(void *data, size_t file);
};

/* Another way to the bytes than the daemon: exactly these, into memory of `count`; on several threads at once. */
struct file_reader {
    int (*read)(void *data, size_t file, uint64_t offset, void *memory, uint64_t count, struct error *error);
    uint64_t most_bytes; /* of one read */
    void *data;
};

/* After an error no begun file is ended. options->progress is called on any thread, on one at a time. */
int file_set_fetch(struct tc_client *client, const struct file_set *set, const struct file_sink *sink,
                   const struct tc_options *options, struct error *error);
int file_set_read(const struct file_set *set, const struct file_reader *reader, const struct file_sink *sink,
                  const struct tc_options *options, struct error *error);

#endif
