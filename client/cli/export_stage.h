/* `export --out gs://...`: the folder in which the files are written before they are uploaded, and the way from there.
 *
 * It is $XDG_CACHE_HOME/tensorcast/exports/HASH (else ~/.cache), private, of the reference's own; so it takes the room of the whole
 * export on this disk. It goes when everything has arrived, and stays for --resume when not. */
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
/* Uploads what is in it, then removes it. */
int export_stage_upload(struct export_stage *stage, struct backend *backend, const char *reference, struct error *error);
void export_stage_close(struct export_stage *stage);

#endif
