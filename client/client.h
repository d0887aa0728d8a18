/* What the files of the library share, with the command: the client, how its errors reach the caller, and reports. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/arena.h"
#include "base/error.h"
#include "rpc_client.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct tc_client {
    char *socket_path;
    struct rpc_client *rpc;
};

/* What the caller calls an artifact, as the daemon takes it: base/reference.h with this process's working folder and home,
 * and "models/llama" for "./models/llama" when that is there. In the arena, or `text` itself; NULL on error. */
const char *client_reference(const char *text, struct arena *arena, struct error *error);
struct wait client_wait(const struct tc_options *options); /* NULL = no limit */
/* Where the daemon's hand-off socket is for us, which it has at `path`; in the arena. NULL: it is not. */
const char *client_handoff(struct tc_client *client, const char *path, const struct wait *wait, struct arena *arena,
                           struct error *error);
/* For a call that says nothing until it is done: options->progress is told what the daemon waits for when that takes long. */
struct wait client_patient_wait(struct tc_client *client, const struct tc_options *options);

struct report_json_tensor;
/* Of all tensors of a load, whose bytes can be read at `memory`; NULL: they cannot be. The caller frees. */
struct report_json_tensor *client_load_tensors(const struct tc_load *load, const char *memory);
/* What the daemon told of a load; its arena has it. */
const Tensorcast__Daemon__V1__LoadReport *client_load_report(const struct tc_load *load);
/* tc_prewarm_with(); its answer, which has a report unless it is detached, in the arena. NULL on error. */
const Tensorcast__Daemon__V1__PrewarmResponse *client_prewarm(struct tc_client *client, const char *artifact,
                                                              const struct tc_view *view, const struct tc_options *options,
                                                              int flags, struct arena *arena, struct error *error);
/* Traces of that load, or of all that are kept for "", in the arena. NULL on error; of a load there is at least one. */
const Tensorcast__Daemon__V1__BlameResponse *client_blame(struct tc_client *client, const char *load_id, uint64_t timeout_ms,
                                                          struct arena *arena, struct error *error);
/* In the arena; NULL on error. is_short: only `state`, and the requests of this client. */
const Tensorcast__Daemon__V1__StatusResponse *client_status(struct tc_client *client, bool is_short, uint64_t timeout_ms,
                                                            struct arena *arena, struct error *error);
/* Of an answer in the arena, which they take: of the daemon, or of what this process found out itself. Artifact NULL: the answer
 * contradicts itself. */
struct tc_artifact *client_artifact(struct arena *arena, const Tensorcast__Daemon__V1__ResolveResponse *response,
                                    struct error *error);
const Tensorcast__Daemon__V1__ResolveResponse *client_artifact_response(const struct tc_artifact *artifact);
struct tc_verification *client_verification(struct arena *arena, const Tensorcast__Daemon__V1__VerifyResponse *response);
int client_fail(struct tc_error *to, const struct error *from); /* returns -1; `to` may be NULL */

#endif
