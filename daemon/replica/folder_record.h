/* What the state directory holds of a folder on tmpfs: STATE/folders/UID-DEVICE-INODE.json, one for each, so that the next daemon
 * knows it. Device and inode are a user's word, so his records are never another user's. Blocks; any thread. */
#ifndef REPLICA_FOLDER_RECORD_H
#define REPLICA_FOLDER_RECORD_H

#include "replica/folders.h"

/* Durable when it returns 0. */
int folder_record_write(const char *state_dir, const struct folder *folder, struct error *error);
void folder_record_remove(const char *state_dir, uid_t uid, uint64_t device, uint64_t inode);
/* Calls take() for every good record, which takes its texts; a damaged one is removed. */
void folder_record_read_all(const char *state_dir, void (*take)(void *data, const struct folder *folder), void *data);

#endif
