/* Small objects that several write: read with the version that a later write names (sink_upload.if_version), so that no writer
 * replaces what it has not seen. Of a sink_upload `reference`, `cancel` and `uid` count. Blocks; any thread but the loop's. */
#ifndef SINK_SINK_DOCUMENT_H
#define SINK_SINK_DOCUMENT_H

#include "sink/sink.h"

struct sink_document {
    char *bytes; /* malloced, NUL behind them */
    size_t count;
    char version[SINK_VERSION_CHARS]; /* "" = the store gives none */
};

/* NOT_FOUND when there is none (or no such bucket); FAILED_PRECONDITION (DOCUMENT_TOO_LARGE) beyond max_bytes; UNIMPLEMENTED
 * for disk:. */
int sink_document_read(struct stores *stores, const struct sink_upload *where, uint64_t max_bytes,
                       struct sink_document *document, struct error *error);
void sink_document_fini(struct sink_document *document); /* accepts a zeroed one */

/* Whether the store refuses writes whose condition does not hold, which some only pretend: UNIMPLEMENTED (NO_CONDITIONS). Asks
 * it by writing `where`, an object for nothing else; two requests where that is there. */
int sink_document_check_conditions(struct stores *stores, const struct sink_upload *where, struct error *error);

#endif
