/* Exports on their way to a store; see export_stage.h. */
#include "export_stage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"
#include "sink/sink.h"
#include "source/environment.h"
#include "upload_files.h"

int export_stage_open(struct export_stage *stage, const char *out, struct error *error)
{
    unsigned char value[DIGEST_BYTES];
    char hex[DIGEST_HEX_CHARS + 1];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *stage = (struct export_stage){0};
    if (!upload_files_is_reference(out))
        return 0;
    char *object = sink_join(out, "x");
    int status = sink_check_reference(object, error);
    free(object);
    if (status < 0)
        return -1;
    struct digest *digest = digest_create();
    digest_add_text(digest, out);
    digest_finish(digest, value);
    digest_hex(value, sizeof value, hex);
    if (cache && *cache == '/')
        stage->path = memory_print("%s/tensorcast/exports/%s", cache, hex);
    else if (environment_home_is_foreign())
        return fail(
            error, ERROR_FAILED_PRECONDITION, "FOREIGN_STATE_DIR",
            "an export to a store is written to this disk first, and HOME is another user's: set XDG_CACHE_HOME, or HOME to "
            "your own (sudo -H)");
    else if (home && *home == '/')
        stage->path = memory_print("%s/.cache/tensorcast/exports/%s", home, hex);
    else
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_HOME",
                    "an export to a store is written to this disk first: set XDG_CACHE_HOME or HOME");
    char shown[TEXT_NAME_CHARS];
    return file_io_make_folders(stage->path, 0700) < 0 ? fail_errno(error, errno, "cannot make the folder of %s",
                                                                    text_escape(stage->path, strlen(stage->path), shown))
                                                       : 0;
}

int export_stage_upload(struct export_stage *stage, struct backend *backend, const char *folder, const char *reference,
                        struct error *error)
{
    const struct export_args *args = &backend->args->export;
    char shown[TEXT_NAME_CHARS];
    stage->upload = (struct upload_files){.backend = backend, .force = args->force, .resume = args->resume};
    if (upload_files_find(&stage->upload, folder, reference, error) < 0 || upload_files_send(&stage->upload, error) < 0)
        return error_append(error, "; what was written is kept in %s: go on with --resume, or remove it",
                            text_escape(folder, strlen(folder), shown));
    return 0;
}

void export_stage_close(struct export_stage *stage)
{
    upload_files_fini(&stage->upload);
    free(stage->path);
}
