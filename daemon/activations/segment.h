/* A segment while it is written: samples one behind the other in segment_N.open, a record of each durable one in
 * segment_N.journal. Sealing puts the safetensors header in front, in room that was left for it, and gives the file its name.
 *
 *     created --write, add--> samples --sync--> durable --seal--> segment_N.safetensors
 *                  |  ^
 *                  +--+ drop: what came of a sample that did not end
 *
 * Where the room does not fit the header (many samples smaller than was expected of the first, or few of them), sealing copies
 * the data behind one that does. Nothing is ever overwritten that was durable. Blocks: helpers; one owner at a time. */
#ifndef ACTIVATIONS_SEGMENT_H
#define ACTIVATIONS_SEGMENT_H

#include "activations/segment_contents.h"

#define SEGMENT_OPEN ".open"
#define SEGMENT_JOURNAL ".journal"
#define SEGMENT_COPY ".copy"

enum { SEGMENT_BLOCK_BYTES = 4096 }; /* of memory and file, for O_DIRECT: as much as any disk asks for */

struct segment_builder;

/* folder_fd: of the host, borrowed for the segment's life. `first`: the sample that comes first; it says how much room the
 * header of a whole segment will take. ALREADY_EXISTS when there is such a file. */
int segment_create(int folder_fd, uint32_t number, uint64_t segment_bytes, const struct sample *first,
                   struct segment_builder **created, struct error *error);
/* One that a crash left, with the samples that are durable; NULL in *found when none are, and then its files are removed. */
int segment_recover(int folder_fd, uint32_t number, struct segment_builder **found, struct error *error);
/* Of one whose other file is gone. DATA_LOSS when another process has removed that: no crash leaves data without a journal, or
 * a journal with samples alone. */
int segment_check_open_alone(int folder_fd, uint32_t number, struct error *error);
int segment_check_journal_alone(int folder_fd, uint32_t number, struct error *error);
void segment_close(struct segment_builder *segment); /* its files stay; accepts NULL */

/* What is in it, and what the files take now, journal included. */
uint32_t segment_number(const struct segment_builder *segment);
const struct segment_contents *segment_contents(const struct segment_builder *segment);
uint64_t segment_disk_bytes(const struct segment_builder *segment);
/* What is taken for the header, when a segment of so many bytes begins with that sample. */
uint64_t segment_room(uint64_t segment_bytes, const struct sample *first);
/* What a sample adds to the sealed file, header and data. */
uint64_t segment_cost(const struct sample *sample);

/* Takes the room of a sample that is coming from the disk, where that is worth it and the file system can: then no write of it
 * fails for want of room, and segment_is_reserved(). RESOURCE_EXHAUSTED: the disk is full. */
int segment_reserve(struct segment_builder *segment, uint64_t bytes, struct error *error);
bool segment_is_reserved(const struct segment_builder *segment);
uint64_t segment_data_end(const struct segment_builder *segment); /* in its file, of the samples that were added */
/* Appends bytes of the sample that is coming. `bytes` may be memory that another process changes or takes away: then FAILED_
 * PRECONDITION, or whatever was there. RESOURCE_EXHAUSTED: the disk is full. After an error the sample is to be dropped. */
int segment_write(struct segment_builder *segment, const void *bytes, uint64_t count, struct error *error);
/* All bytes of the sample were written. RESOURCE_EXHAUSTED when the thread's user has too much metadata. */
int segment_add(struct segment_builder *segment, const struct sample *sample, struct error *error);
void segment_drop(struct segment_builder *segment);
/* Everything that was added is durable when it returns 0. */
int segment_sync(struct segment_builder *segment, struct error *error);
/* Syncs; renames. `facts` are of the file as it is read back. After a failure it may be called again. */
int segment_seal(struct segment_builder *segment, struct segment_facts *facts, struct error *error);
int segment_remove_journal(const struct segment_builder *segment, struct error *error); /* the manifest has it */

#endif
