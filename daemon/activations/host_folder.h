/* One host's folder in a store, open for one writer.
 *
 *     host_003/segment_000001.safetensors   sealed
 *     host_003/manifest.json                what is sealed
 *     host_003/segment_000002.open          samples, see segment.h
 *     host_003/segment_000002.journal       those of them that are durable
 *
 *     host_003/.writer                      locked (flock) by its writer, so that no second daemon writes
 *
 * Opening finishes whatever a crash left: durable samples are sealed, the manifest is made true.
 *
 * Appending, committing and the end are one thread's at a time; host_folder_seal() another's beside it; where sealed segments lie
 * is any thread's to ask and to change. All of them block. */
#ifndef ACTIVATIONS_HOST_FOLDER_H
#define ACTIVATIONS_HOST_FOLDER_H

#include "activations/segment.h"
#include "activations/store_path.h"

struct host_folder;

struct host_folder_options {
    struct store_roots roots;
    const char *path; /* of the store, absolute */
    uint32_t host;
    uint64_t segment_bytes;
    bool must_exist; /* after a crash: nothing is made anew */
};

struct host_resume {
    bool has_samples;
    uint32_t last_sample, next_segment; /* the highest; the number that the next segment will have */
    uint64_t n_samples, n_segments, bytes;
};

/* FAILED_PRECONDITION (WRITER_EXISTS) naming the host while another writer has it; PERMISSION_DENIED outside of the
 * roots; DATA_LOSS when a segment is gone, or a sample is in two of them. */
int host_folder_open(const struct host_folder_options *options, struct host_folder **opened, struct error *error);
/* What is sealed stays; the rest is found by the next one to open it. Accepts NULL. */
void host_folder_close(struct host_folder *folder);

struct host_resume host_folder_resume(const struct host_folder *folder);
/* Whether its samples are in the open segment and nowhere else on the disk. Between two calls of its owner. */
bool host_folder_is_all_open(const struct host_folder *folder);
uint64_t host_folder_disk_bytes(const struct host_folder *folder); /* of its files, about and at most; any thread */
/* Bytes of the files of a folder that no writer has open; 0 when the folder is gone, unchanged when it cannot be read. */
void host_folder_measure(const struct store_roots *roots, const char *path, uint32_t host, uint64_t *bytes);

/* begin, write as often as it takes, end. A sample that is there already is INVALID_ARGUMENT. After an error of any of them the
 * sample is gone and the next one may begin. Between begin and end: has the disk taken the sample's room, so that no write of it
 * fails for want of that; and where in a block of the file a byte of it will lie. `most_bytes`: no more than that will come, so that
 * a segment that begins with it needs no room for a longer header. */
int host_folder_begin(struct host_folder *folder, const struct sample *sample, uint64_t most_bytes, struct error *error);
bool host_folder_is_reserved(const struct host_folder *folder);
uint32_t host_folder_block_offset(const struct host_folder *folder, uint64_t offset);
int host_folder_write(struct host_folder *folder, const void *bytes, uint64_t count, struct error *error);
int host_folder_end(struct host_folder *folder, const struct sample *sample, struct error *error);
void host_folder_drop(struct host_folder *folder);

int host_folder_commit(struct host_folder *folder, struct error *error);
/* Commits, and makes the open segment full. */
int host_folder_finish(struct host_folder *folder, struct error *error);

/* A segment that is full and durable, the caller's until it is sealed; NULL = none. Not beside an append. */
struct segment_builder *host_folder_take_full(struct host_folder *folder);
/* Seals it, tells the manifest, and frees it. After a failure it is still the caller's. */
int host_folder_seal(struct host_folder *folder, struct segment_builder *segment, struct error *error);

/* --- where sealed segments lie --- */

struct sealed_segment {
    uint32_t number, crc32c;
    uint64_t file_bytes;
    bool is_local;
    const char *uploaded; /* the object that holds its bytes; NULL = none. Lives during the call */
};
/* False: it is not listed. `uploaded` is left out. */
bool host_folder_find(struct host_folder *folder, uint32_t number, struct sealed_segment *segment);
/* In the order of numbers. take() may not call host_folder_*(). Ends when it returns non-zero, with that. */
int host_folder_each(struct host_folder *folder,
                     int (*take)(void *data, const struct sealed_segment *segment, struct error *error), void *data,
                     struct error *error);
/* `reference` holds the very bytes of a segment: the manifest says so, durably. */
int host_folder_uploaded(struct host_folder *folder, uint32_t number, const char *reference, struct error *error);
/* Nothing that is here is known to be anywhere else any more. */
int host_folder_forget_uploads(struct host_folder *folder, struct error *error);
/* Removes the files of those of the segments that were uploaded; before that the manifest says so, durably. */
int host_folder_drop_local(struct host_folder *folder, const uint32_t *numbers, size_t n, struct error *error);

#endif
