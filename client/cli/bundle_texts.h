/* What `doctor --bundle` packs: texts about the configuration, the daemon, its log and the host, without secrets. */
#ifndef CLI_BUNDLE_TEXTS_H
#define CLI_BUNDLE_TEXTS_H

#include "backend.h"
#include "bundle.h"
#include "config/config_origin.h"
#include "doctor.h"

/* All but what the daemon tells is from files of this host; what cannot be read is named in README.txt. Within 30 s, also when the
 * daemon hangs. */
void bundle_texts_add(struct bundle *bundle, struct backend *backend, const struct config_origin *origin,
                      const struct patient *patient, const char *checks_json);

#endif
