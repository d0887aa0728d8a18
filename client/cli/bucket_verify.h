/* Segments of a store in a bucket, each read from its beginning to its end and compared with its manifest. */
#ifndef CLI_BUCKET_VERIFY_H
#define CLI_BUCKET_VERIFY_H

#include "bucket_store.h"

/* `tell` is told of each segment that is not as it was sealed: DATA_LOSS. One thread at a time. Another error ends it. */
int bucket_verify_host(const struct bucket_store *store, const struct stored_host *host,
                       void (*tell)(void *data, const struct error *error), void *data, struct error *error);

#endif
