/* Sessions of uploads; see upload_session.h. */
#include "upload_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"
#include "sink/sink.h"
#include "source/secret.h"

/* What XDG_STATE_HOME or HOME says, or NULL. */
static const char *base_folder(bool *is_home)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    *is_home = !state || *state != '/';
    if (!*is_home)
        return state;
    return home && *home == '/' ? home : NULL;
}

static bool is_foreign(const struct stat *status)
{
    return status->st_uid != geteuid() && status->st_uid != 0;
}

static char *state_folder(void)
{
    bool is_home;
    struct stat status;
    const char *base = base_folder(&is_home);
    return base && !(stat(base, &status) == 0 && is_foreign(&status))
               ? memory_print("%s%s/tensorcast/uploads", base, is_home ? "/.local/state" : "")
               : NULL;
}

int upload_session_check(struct error *error)
{
    bool is_home;
    struct stat status;
    char shown[TEXT_NAME_CHARS];
    const char *base = base_folder(&is_home);
    if (!base || stat(base, &status) < 0 || !is_foreign(&status))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "FOREIGN_STATE_DIR",
                "%s is %s, which belongs to user %u: what is begun is neither kept nor looked for there; set it to a folder "
                "of your own (sudo -H)",
                is_home ? "HOME" : "XDG_STATE_HOME", text_escape(base, strlen(base), shown), (unsigned)status.st_uid);
}

void upload_session_open(struct upload_session *session, const char *file, uint64_t bytes, const char *reference)
{
    unsigned char value[DIGEST_BYTES];
    char hex[DIGEST_HEX_CHARS + 1], *folder = state_folder();
    struct digest *digest = digest_create();
    digest_add_text(digest, file);
    digest_add_text(digest, reference);
    digest_add_u64(digest, bytes);
    digest_finish(digest, value);
    digest_hex(value, sizeof value, hex);
    session->path = folder ? memory_print("%s/%s", folder, hex) : NULL;
    free(folder);
}

void upload_session_close(struct upload_session *session)
{
    free(session->path);
    session->path = NULL;
}

char *upload_session_read(const struct upload_session *session)
{
    size_t length;
    char *text = session->path ? secret_read_own_file(session->path, SINK_MAX_SESSION_CHARS - 1, &length) : NULL;
    if (text && length < SINK_MAX_SESSION_CHARS && strlen(text) == length)
        return text;
    secret_free(text);
    return memory_copy_text("");
}

int upload_session_write(const struct upload_session *session, const char *text, bool is_durable, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    if (!session->path)
        return 0;
    if (!*text)
        return unlink(session->path) == 0 || errno == ENOENT
                   ? 0
                   : fail_errno(error, errno, "cannot forget an upload that is over");
    bool is_kept = file_io_make_folders(session->path, 0700) == 0 &&
                   file_io_replace(AT_FDCWD, session->path, text, strlen(text), is_durable) == 0;
    return !is_kept ? fail_errno(error, errno, "cannot keep what was begun for --resume in %s",
                                 text_escape(session->path, strlen(session->path), shown))
                    : 0;
}
