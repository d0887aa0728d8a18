/* Between the messages of ActivationStore and the structs of daemon/activations. Pure; any thread. */
#ifndef API_CODEC_ACTIVATIONS_H
#define API_CODEC_ACTIVATIONS_H

#include "activations/activation_writer.h"
#include "tensorcast/daemon/v1/activation_store.pb-c.h"

/* The part, with a checked sample when it is the first one; everything is copied into its arena, which is the caller's to end
 * after a failure. */
int codec_append_part(const Tensorcast__Daemon__V1__AppendActivationsRequest *wire, struct append_part *part,
                      struct error *error);

void codec_resume(const struct host_resume *resume, Tensorcast__Daemon__V1__ActivationsResume *wire);

#endif
