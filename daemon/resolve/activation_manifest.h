/* What the manifests of an activation store's hosts (docs/activations.md) say of its segments, as the manifest of an artifact that
 * is made of them: the store, a host's folder, or one segment. */
#ifndef RESOLVE_ACTIVATION_MANIFEST_H
#define RESOLVE_ACTIVATION_MANIFEST_H

#include "resolve/document.h"
#include "resolve/manifest.h"

/* Blocks. `beside` is the folder whose files the source has, without their names' folders. NULL: they are no segments, none of
 * their hosts has a manifest, or *problem says what is wrong with one. */
struct manifest *activation_manifest_read(const struct source *source, struct source *beside,
                                          const struct source_options *options, const struct lookup *lookup,
                                          struct error *problem);

#endif
