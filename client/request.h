/* From the library's view and options to the protocol's LoadRequest. */
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include "base/arena.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* Allocates in `arena` and borrows the texts. view and options may be NULL. */
Tensorcast__Daemon__V1__LoadRequest *request_build(const char *artifact, const struct tc_view *view,
                                                   const struct tc_options *options, struct arena *arena,
                                                   struct error *error);

ProtobufCBinaryData request_variant(const struct tc_variant *variant); /* borrows */

#endif
