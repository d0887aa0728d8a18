/* A recipe as it goes to the daemon: read from a file, a built-in one or text, its ${KEY}s filled in, checked, canonical;
 * with the lines of its steps, so that what the daemon says of a step can be found in the file. */
#ifndef CLIENT_VARIANT_H
#define CLIENT_VARIANT_H

#include "base/error.h"
#include "tensorcast.h"

struct tc_variant {
    char *json; /* canonical */
    size_t length;
    char *name;      /* of the file; NULL = there is none */
    uint32_t *lines; /* of each step; 0 = unknown */
    size_t n_steps;
};

struct variant_input {
    const char *recipe; /* a file, or the name of a built-in one; with a text: its name. NULL: text is JSON */
    const char *text;   /* with a name: YAML of that length; else JSON that ends with its NUL */
    size_t length;
    const struct tc_setting *settings;
    size_t n_settings;
    /* The artifact's config.json, asked for at most once and only when a key is in no setting. 0 with text that the caller
     * frees, NULL = it has none; -1. */
    int (*config)(void *data, char **json, size_t *length, struct error *error);
    void *data;
};

enum { VARIANT_MAX_FILE_BYTES = 16 << 20 };

/* NULL: INVALID_ARGUMENT naming file, line and step; or the file cannot be read. */
struct tc_variant *variant_read(const struct variant_input *input, struct error *error);

/* Adds a step, as canonical JSON, behind the others; *variant NULL = it becomes the only one. */
void variant_append(struct tc_variant **variant, const char *step);

/* Puts "FILE:LINE: " before an error that notes the number of a step. variant may be NULL. Returns -1. */
int variant_locate(const struct tc_variant *variant, struct error *error);

#endif
