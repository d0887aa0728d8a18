/* What became of every file when its bytes were compared, the same whether the daemon read them or this process did. */
#ifndef CLI_CHECKED_H
#define CLI_CHECKED_H

#include "backend.h"
#include "base/arena.h"

struct checked {
    struct tc_verified_file *files;
    size_t n_files;
    const char *manifest_json; /* "" = none was made */
    const char *manifest_name;
    struct arena arena; /* all of the above */
};

struct checked *checked_from_daemon(struct tc_verification *verification); /* takes it */
/* Reads the files in this process. NULL on error. */
struct checked *checked_here(struct backend *backend, struct artifact *artifact, bool with_manifest, struct error *error);
void checked_destroy(struct checked *checked); /* accepts NULL */

/* DATA_LOSS with what is wrong with the first damaged file; 0 when there is none. */
int checked_damage(const struct checked *checked, struct error *error);

#endif
