/* A configuration that is not taken, and why. */
#ifndef TESTS_SUPPORT_CONFIG_REFUSED_H
#define TESTS_SUPPORT_CONFIG_REFUSED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "config/config.h"

#include <cmocka.h> /* last: it has a macro called fail */

/* With a message that begins with `place` and has `word` in it. */
static inline void refused(const char *text, const char *place, const char *reason, const char *word)
{
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "/etc/store.yaml", &error);
    if (config)
        fail_msg("accepted: %s", text);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (strncmp(error.message, place, strlen(place)) != 0 || !strstr(error.message, word) ||
        strcmp(error.reason, reason) != 0)
        fail_msg("%s\ngives %s: %s\ninstead of %s ... %s", text, error.reason, error.message, place, word);
}

#endif
