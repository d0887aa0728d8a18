/* The folder that an export makes: everything is prepared in a folder beside it, and appears by one rename.
 *
 *   PARENT/.NAME.exporting/           private; locked by the process that works in it
 *   PARENT/.NAME.exporting/journal    what of it is done, see export_files.h
 *   PARENT/.NAME.exporting/content/   becomes PARENT/NAME
 *
 * Whatever dies at whatever moment, NAME is absent, the old one, or complete. One owner at a time; blocks. */
#ifndef EXPORT_TARGET_H
#define EXPORT_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

struct export_target {
    char shown[TEXT_NAME_CHARS]; /* as the user wrote it, escaped */
    char path[PATH_MAX];         /* absolute, without links */
    char name[NAME_MAX + 1], work_name[NAME_MAX + 1];
    char content_path[PATH_MAX + 64];
    bool exists, has_force;
    int parent_fd, work_fd, content_fd, journal_fd; /* -1 = not open */
};

/* Looks, and writes nothing: a target that has something in it is FAILED_PRECONDITION unless `force`, one that is no folder
 * always. */
int export_target_open(struct export_target *target, const char *path, bool force, struct error *error);
/* Makes or finds the folder beside it and takes its lock: FAILED_PRECONDITION while another process has it. */
int export_target_begin(struct export_target *target, struct error *error);
int export_target_empty(struct export_target *target, struct error *error); /* what an earlier export left in content goes */
/* Syncs the folder and puts it in its place. What was there before is gone. Nothing is left beside it. */
int export_target_publish(struct export_target *target, struct error *error);
void export_target_discard(struct export_target *target); /* removes the folder beside it */
void export_target_close(struct export_target *target);   /* what lies beside it stays; also after a failed open */

/* Adds to an error of writing how much room is needed and there is, when that is what it is about. */
void export_target_explain(const struct export_target *target, uint64_t needed_bytes, struct error *error);

/* Is the file or folder at `path` the target, or within it? */
bool export_target_meets(const struct export_target *target, const char *path);

#endif
