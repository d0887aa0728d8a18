/* Where the command keeps what it has begun in a store, for the run with --resume after it was killed: a file for each upload below
 * $XDG_STATE_HOME/tensorcast/uploads, readable by its owner only, because an upload's address is a secret. Blocks. */
#ifndef CLI_UPLOAD_SESSION_H
#define CLI_UPLOAD_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct upload_session { /* of one file on its way to one object */
    char *path;         /* NULL = there is no home to keep it in, or it is another user's */
};

/* FOREIGN_STATE_DIR: the folder around it belongs to another user, who could have begun uploads there. */
int upload_session_check(struct error *error);
void upload_session_open(struct upload_session *session, const char *file, uint64_t bytes, const char *reference);
void upload_session_close(struct upload_session *session);
char *upload_session_read(const struct upload_session *session); /* malloced, for secret_free(); "" = nothing is begun */
/* "" removes it. is_durable: it is on the disk when it returns 0. */
int upload_session_write(const struct upload_session *session, const char *text, bool is_durable, struct error *error);

#endif
