/* The files of an artifact as they are, to be copied: an artifact again, whose tensors are whole files, named
 * as they are, of type U8 and as long. Everything that loads tensors so loads files, too. Blocks; any thread. */
#ifndef RESOLVE_ARTIFACT_FILES_H
#define RESOLVE_ARTIFACT_FILES_H

#include "normalize/load_spec.h"
#include "resolve/artifact.h"

enum artifact_file_kind { ARTIFACT_FILES_SIDECARS, ARTIFACT_FILES_TENSORS, ARTIFACT_FILES_ALL };

enum { ARTIFACT_MAX_FILES = 10000 };

/* Every file of that kind. Those of the tensors come first, after their headers were checked as by artifact_resolve() with
 * these flags, then the document that names them, then sidecars. */
int artifact_files_list(const char *reference, const struct source_options *options, struct header_cache *cache,
                        unsigned flags, enum artifact_file_kind kind, struct artifact **artifact, struct error *error);
/* These files, in this order. INVALID_ARGUMENT for a name that no file of an artifact can have, FAILED_PRECONDITION
 * (SOURCE_CHANGED) when they are not what `wanted` says they were. */
int artifact_files_open(const char *reference, const struct source_options *options, const struct file_names *wanted,
                        struct artifact **artifact, struct error *error);
/* What `identity` would be of one of its files alone. */
void artifact_file_identity(const struct artifact *artifact, size_t file, char identity[DIGEST_HEX_CHARS + 1]);

#endif
