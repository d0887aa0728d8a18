/* Between the wire's messages and the daemon's structs. Pure; any thread. Results live in the arena and may point into the
 * message and the mapping, which must outlive them. What fails does so because the user has too much metadata. */
#ifndef API_CODEC_H
#define API_CODEC_H

#include "base/arena.h"
#include "base/error.h"
#include "load/load_result.h"
#include "normalize/load_spec.h"
#include "replica/handoff.h"
#include "resolve/mapped_view.h"
#include "resolve/mapping.h"
#include "resolve/target.h"
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

/* An empty message of that kind. */
#define CODEC_NEW(kind, arena) codec_new(&tensorcast__daemon__v1__##kind##__descriptor, arena)
void *codec_new(const ProtobufCMessageDescriptor *kind, struct arena *arena);

/* Checks that the columns fit together; what they mean is checked by mapping_build(). The list is in the arena and points
 * into the message; of its regions nothing is known yet. Pure; any thread. */
int codec_targets(const Tensorcast__Daemon__V1__Targets *wire, struct arena *arena, struct target_list **list,
                  struct error *error);

/* Takes the offers and says where each lies. The caller has the regions afterwards; on an error none is left. Loop thread. */
int codec_take_regions(const Tensorcast__Daemon__V1__Targets *wire, struct handoff *handoff, uid_t uid,
                       struct target_list *list, struct device_region **regions, struct error *error);

/* Of a scrub, which may go then; manifest_json NULL = none was made. */
struct scrub;
Tensorcast__Daemon__V1__VerifyResponse *codec_verification(const struct scrub *scrub, const char *manifest_json,
                                                           const char *manifest_name, struct arena *arena);

#endif
