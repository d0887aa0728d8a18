/* `export --out gs://...`: the folder in which the files are written before they are uploaded, and the way from there.
 *
 * An export to $XDG_CACHE_HOME/tensorcast/exports/HASH (else ~/.cache; HASH is of the reference) is prepared in the work folder beside
 * it (export_target.h) and uploaded from there, without being renamed. So it takes the room of the whole export on this disk; --resume
 * finds what was written in the work folder, which is removed when everything has arrived. */
#ifndef CLI_EXPORT_STAGE_H
#define CLI_EXPORT_STAGE_H

#include "backend.h"
#include "upload_files.h"

struct export_stage {
    char *path;                 /* NULL = the export goes to a folder */
    struct upload_files upload; /* of what is in it */
};

/* Decides by the form of `out`. */
int export_stage_open(struct export_stage *stage, const char *out, struct error *error);
/* Uploads what is in `folder`. */
int export_stage_upload(struct export_stage *stage, struct backend *backend, const char *folder, const char *reference,
                        struct error *error);
void export_stage_close(struct export_stage *stage);

#endif
