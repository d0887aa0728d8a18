/* Between the wire's messages and the daemon's structs. Pure; any thread. Results live in the arena and may point into the
 * message and the mapping, which must outlive them. What fails does so because the user has too much metadata. */
#ifndef API_CODEC_H
#define API_CODEC_H

#include "base/arena.h"
#include "base/error.h"
#include "load/load_result.h"
#include "normalize/load_spec.h"
#include "resolve/mapped_view.h"
#include "resolve/mapping.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* Checks that the columns of the view fit together; what the values mean is load_spec_build()'s business. */
int codec_load_request(const Tensorcast__Daemon__V1__LoadRequest *wire, struct arena *arena, struct load_request *request,
                       struct error *error);

/* view: where the tensors lie in files that are handed out; NULL = it is memory. with_names: the client sent no view and does
 * not know them. */
Tensorcast__Daemon__V1__Layout *codec_layout(const struct mapping *mapping, const struct mapped_view *view, bool with_names,
                                             struct arena *arena, struct error *error);

/* The lists are left out when the client knows this identity already. */
Tensorcast__Daemon__V1__ResolveResponse *codec_artifact(const struct artifact *artifact, const char *known_identity,
                                                        struct arena *arena, struct error *error);

/* On a disk a name may be any bytes, in a message it is text: what is no UTF-8 is escaped. Borrows name or arena. */
const char *codec_file_name(const char *name, struct arena *arena);

Tensorcast__Daemon__V1__LoadReport *codec_report(const struct load_result *result, struct arena *arena);
/* Of a plan that nobody runs: without a load id, by which clients know that its figures are estimates. */
Tensorcast__Daemon__V1__LoadReport *codec_plan(const struct load_result *result, struct arena *arena);

#endif
