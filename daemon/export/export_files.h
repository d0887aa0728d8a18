/* The files of an export, open for writing: made of their final size, so that a full disk is found before anything is read
 * and whole blocks can be written in any order. One owner at a time, but for output_file_write(); blocks. */
#ifndef EXPORT_FILES_H
#define EXPORT_FILES_H

#include "execute/destination_file.h"
#include "export/export_layout.h"

struct export_files {
    const struct export_layout *layout;
    struct output_file *list; /* as in the layout; those that are not written have no descriptor */
    struct output_edges *edges;
    int folder_fd; /* borrowed */
    char **paths;
    uint64_t document_bytes;
    const char *shown; /* borrowed: the target, for messages */
};

/* Are they all there and of their size? For --resume. */
bool export_files_are_there(int folder_fd, const struct export_layout *layout);
/* What else a killed run left beside them: documents, sidecars, half of one. All of that is written again. */
int export_files_drop_others(int folder_fd, const struct export_layout *layout, struct error *error);
/* Makes them, or opens those there are, and writes their headers and the document. A disk without room is
 * RESOURCE_EXHAUSTED naming target, needed and available bytes. */
int export_files_open(struct export_files *files, int folder_fd, const char *shown, const struct export_layout *layout,
                      struct error *error);
/* Everything that was written so far is on the disk then. Any one thread. */
int export_files_sync(const struct export_files *files, struct error *error);
void export_files_close(struct export_files *files); /* accepts a zeroed one */

#endif
